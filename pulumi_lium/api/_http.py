"""The HTTP core: the only place where calls are retried, redirects followed and answers decoded."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from ._envelope import api_error, read_envelope
from ._redirect import MOST_HOPS, STATUSES, keeps_method, next_url
from ._retry_after import retry_after_seconds
from ._scrub import Scrubber
from .clock import Clock
from .errors import (
    ApiError,
    InvalidArgument,
    LiumError,
    RateLimited,
    RedirectRefused,
    Refused,
    ServerError,
    TransportError,
    UndecodableAnswer,
)
from .settings import Settings
from .transport import RawAnswer, Transport

M = TypeVar("M", bound=BaseModel)

TIMEOUT = (10.0, 30.0)
"""Seconds to connect and to read (contract 1.3)."""

_ATTEMPTS = 3
_FIRST_DELAY = 1.0
_JITTER = 0.5


class Retry(Enum):
    """When a call may be sent again; see `HttpCore`."""

    READ = "read"
    IDEMPOTENT = "idempotent write"
    WRITE = "write"
    NEVER = "never"


@dataclass(frozen=True)
class Answer:
    """A 2xx answer: its JSON, and what an error about it has to name."""

    document: Any
    headers: Mapping[str, str]
    status: int
    method: str
    path: str
    is_write: bool

    def rows(self, model: type[M]) -> list[M]:
        """The answer as a list of rows. Anything that is no list raises: it is never read as empty."""
        if not isinstance(self.document, list):
            raise self.undecodable(f"a list was expected, {_kind(self.document)} came")
        return [self._parse(model, row, f"row {number}") for number, row in enumerate(self.document)]

    def row(self, model: type[M]) -> M:
        """The answer as one object."""
        return self._parse(model, self.object(), "the answer")

    def object(self) -> dict[str, Any]:
        """The answer as it is, where it is an object."""
        if not isinstance(self.document, dict):
            raise self.undecodable(f"an object was expected, {_kind(self.document)} came")
        return self.document

    def undecodable(self, why: str) -> UndecodableAnswer:
        return UndecodableAnswer(
            f"The answer cannot be used: {why}",
            status=self.status,
            request_id=self.headers.get("x-request-id"),
            outcome_unknown=self.is_write,
            method=self.method,
            path=self.path,
        )

    def _parse(self, model: type[M], row: Any, place: str) -> M:
        if not isinstance(row, dict):
            raise self.undecodable(f"{place} is {_kind(row)}, not an object")
        try:
            return model.model_validate(row)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:3]]
            raise self.undecodable(f"{place}, {'; '.join(faults)}") from error


class HttpCore:
    """Sends one call: retries, redirects, errors, JSON.

    Retries (not a contract, may change). Up to 3 attempts, 1 s and then 2 s apart, each plus up to 0.5 s at random; a
    `Retry-After` (seconds or date) that is longer is obeyed up to 60 s.

    ==================================  =====================================================================
    reads (GET)                         429, 5xx, any network error
    schedule-removal                    the same: its body says the same thing each time
    other writes                        429 only, with the same body and idempotency key
    cluster order                       as other writes; whatever else happens is settled by the caller (contract 5.3)
    pod events                          never
    ==================================  =====================================================================

    Redirects go at most 5 hops, within the same scheme, host and port, and never turn a write into a read. Both
    timeouts are always set: 10 s to connect, 30 s to read.
    """

    def __init__(self, settings: Settings, transport: Transport, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._scrub = Scrubber(settings.api_key.get_secret_value())

    def get(self, path: str) -> Answer:
        """A read."""
        return self.call("GET", path, retry=Retry.READ)

    def command(self, method: str, path: str, *, retry: Retry, body: Any = None) -> None:
        """A write whose answer holds nothing to read: any JSON or 204, but not `success: false`."""
        answer = self.call(method, path, retry=retry, body=body, may_be_empty=True)
        if isinstance(answer.document, dict) and answer.document.get("success") is False:
            raise self.refusal(Refused, answer)

    def call(
        self,
        method: str,
        path: str,
        *,
        retry: Retry,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        may_be_empty: bool = False,
        before_repeat: Callable[[], None] | None = None,
    ) -> Answer:
        """One logical call. `path` begins with a slash and has its ids encoded by `segment`. Raises `LiumError`.

        `before_repeat` is called each time before the request leaves again.
        """
        attempt = 1
        while True:
            try:
                return self._send(method, path, body, headers or {}, may_be_empty)
            except LiumError as error:
                error.method, error.path = method, path
                if attempt == _ATTEMPTS or not _may_repeat(error, retry):
                    raise
                delay = self._delay(attempt, error)
            self._clock.sleep(delay)
            if before_repeat is not None:
                before_repeat()
            attempt += 1

    def reason(self, answer: Answer) -> str:
        """Why the service says no inside a 2xx answer, as one clean line; empty where it does not say."""
        return read_envelope(answer.document, b"", answer.headers, self._scrub).message

    def refusal(self, kind: type[Refused], answer: Answer) -> Refused:
        """The error for a 2xx answer that says `success: false`."""
        envelope = read_envelope(answer.document, b"", answer.headers, self._scrub)
        return kind(
            envelope.message or "The service refused and gave no reason",
            status=answer.status,
            method=answer.method,
            path=answer.path,
            **envelope.facts,
        )

    def _delay(self, attempt: int, error: LiumError) -> float:
        delay = _FIRST_DELAY * 2.0 ** (attempt - 1) + self._rng.uniform(0, _JITTER)
        wish = error.retry_after if isinstance(error, ApiError) else None
        return max(delay, wish or 0.0)

    def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str], may_be_empty: bool) -> Answer:
        """One attempt, redirects included."""
        payload = None if body is None else json.dumps(body).encode()
        url = self._settings.base_url + path
        for _ in range(MOST_HOPS + 1):
            raw = self._exchange(method, url, payload, headers)
            if raw.status not in STATUSES:
                return self._answer(method, path, raw, may_be_empty)
            try:
                url = next_url(url, raw.headers.get("location"), self._scrub)
                if not keeps_method(raw.status, method):
                    raise RedirectRefused("The service answers a write with a redirect to read something else")
            except RedirectRefused as refusal:
                refusal.status, refusal.outcome_unknown = raw.status, _may_be_done(method, raw.status)
                raise
        raise RedirectRefused(
            f"The service redirects more than {MOST_HOPS} times",
            status=raw.status,
            outcome_unknown=_may_be_done(method, raw.status),
        )

    def _exchange(self, method: str, url: str, payload: bytes | None, extra: Mapping[str, str]) -> RawAnswer:
        """One request and its answer."""
        headers = {
            "X-API-KEY": self._settings.api_key.get_secret_value(),
            "X-Source": "sdk",  # the service knows `sdk` and `cli` (contract 1.2); our own name is in the next two
            "X-Pulumi-Lium-Version": _version(),
            "User-Agent": f"pulumi-lium/{_version()}",
            "Accept": "application/json",
            **extra,
        }
        if payload is not None:
            headers["Content-Type"] = "application/json"
        try:
            return self._transport.send(method, url, headers=headers, body=payload, timeout=TIMEOUT)
        except TransportError as error:
            error.outcome_unknown = error.sent and method != "GET"
            raise
        except OSError as error:
            sent = not isinstance(error, ConnectionRefusedError)
            why = error.strerror or type(error).__name__
            failure = TransportError(
                f"The connection failed: {why}", sent=sent, outcome_unknown=sent and method != "GET"
            )
        raise failure

    def _answer(self, method: str, path: str, raw: RawAnswer, may_be_empty: bool) -> Answer:
        headers = {name: self._scrub.sentence(value) for name, value in raw.headers.items()}
        is_error, is_write = raw.status >= 400, method != "GET"
        decoded, problem = _decode(raw.body, self._scrub.document if is_error else self._scrub.answer)
        if is_error:
            raise api_error(
                raw.status,
                read_envelope(decoded, raw.body, headers, self._scrub),
                is_write=is_write,
                retry_after=retry_after_seconds(headers.get("retry-after"), self._clock.now()),
                method=method,
                path=path,
            )
        answer = Answer(decoded, headers, raw.status, method, path, is_write)
        if not 200 <= raw.status < 300:
            raise answer.undecodable("its status is neither a success nor an error")
        if problem and not (may_be_empty and raw.status == 204):
            raise answer.undecodable(problem)
        return answer


def _decode(body: bytes, clean: Callable[[Any], Any]) -> tuple[Any, str | None]:
    """The cleaned JSON of a body, or null and what is wrong with it."""
    if not body.strip():
        return None, "it is empty"
    try:
        # NaN and infinity are no JSON, but Python services send them: a number that is none is not known.
        return clean(json.loads(body, parse_constant=lambda _: None)), None
    except RecursionError:
        return None, "it is nested too deeply"
    except ValueError:
        return None, "it is a web page, not JSON" if body.lstrip()[:1] == b"<" else "it is not JSON"


def _may_repeat(error: LiumError, retry: Retry) -> bool:
    if retry is Retry.WRITE:
        return isinstance(error, RateLimited)
    return retry is not Retry.NEVER and isinstance(error, (RateLimited, ServerError, TransportError))


def _may_be_done(method: str, status: int) -> bool:
    """307 and 308 say that nothing was done here; the other redirects may follow a write that was."""
    return method != "GET" and status not in (307, 308)


def segment(value: str, name: str) -> str:
    """An id as one segment of a path, nothing left unencoded. Raises `InvalidArgument` for what is no id."""
    if not isinstance(value, str) or value.strip() in ("", ".", ".."):
        raise InvalidArgument(f"{name} is {value!r}: an id is needed.")
    return quote(value, safe="")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pulumi-lium")
    except PackageNotFoundError:
        return "unknown"
