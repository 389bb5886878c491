"""The service without a socket, for simulations: the client's transport, answered in the caller's own thread.

It has the shape of the client's transport protocol and imports nothing of it; a lost answer is the `OSError` that a
real connection would raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from .exchange import Cut, Request, split_path
from .service import Service


class RawAnswer(NamedTuple):
    """Status, headers with lower-cased names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class InProcessTransport:
    """Sends requests straight to a service.

    Args:
        service: who answers.
        sleep: waits out a delay, in seconds; a simulation moves its clock instead. A delay longer than the read timeout
            is a `TimeoutError`, although the service acts.
        base_path: the path in front of the API's routes.
    """

    def __init__(self, service: Service, *, sleep: Callable[[float], None], base_path: str = "/api") -> None:
        self._service = service
        self._sleep = sleep
        self._base_path = base_path

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        """One exchange.

        Raises ConnectionRefusedError where nothing was sent, else TimeoutError or ConnectionResetError.
        """
        parts = urlsplit(url)
        request = Request(
            method,
            split_path(parts.path.removeprefix(self._base_path)),
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in headers.items()},
            body or b"",
        )
        admitted = self._service.admit(request)
        before, after = admitted.effects.delay_before, admitted.effects.delay_after
        self._sleep(before)
        outcome = self._service.perform(admitted)
        self._sleep(after)
        if outcome is Cut.REFUSED:
            raise ConnectionRefusedError(f"{method} {parts.path}: connection refused")
        if before + after > timeout[1]:
            raise TimeoutError(f"{method} {parts.path}: no answer within {timeout[1]:g} s")
        if isinstance(outcome, Cut):
            raise ConnectionResetError(f"{method} {parts.path}: connection closed without an answer")
        return RawAnswer(outcome.status, outcome.headers, outcome.body)
