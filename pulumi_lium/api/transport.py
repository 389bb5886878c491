"""One HTTP exchange: no retries, no redirects followed, both timeouts always set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class RawAnswer(NamedTuple):
    """What came back: header names in lower case, the body as it was sent (content encoding removed)."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request and returns the answer, whatever its status."""

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        """`timeout` is (connect, read) in seconds. Raises `TransportError` when no whole answer came.

        An `OSError` is understood too: `ConnectionRefusedError` as not sent, every other one as perhaps sent.
        """
        ...


class RequestsTransport:
    """`requests` with a session per thread."""

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        raise NotImplementedError
