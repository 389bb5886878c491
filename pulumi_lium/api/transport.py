"""One HTTP exchange: no retries, no redirects followed, both timeouts always set."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from .clock import SYSTEM_CLOCK, Clock
from .errors import TransportError

if TYPE_CHECKING:
    import requests

_LARGEST_BODY = 64 * 2**20


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
    """`requests`, with a session per thread so that connections are kept and nothing is shared.

    Proxies and certificate bundles come from the environment, as `requests` reads it; loopback is never asked of a
    proxy. `.netrc` is not read and cookies are not kept: the API key is the only credential. A body may take as long as
    the read timeout in all, not only between two bytes, and is refused above 64 MiB.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._local = threading.local()
        self._sessions: weakref.WeakSet[requests.Session] = weakref.WeakSet()
        self._lock = threading.Lock()

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        import requests
        import urllib3

        host = urlsplit(url).hostname or ""
        try:
            with self._session().request(
                method,
                url,
                headers=dict(headers),
                data=body,
                timeout=timeout,
                allow_redirects=False,
                stream=True,
                proxies={"no_proxy": host} if _is_loopback(host) else None,
            ) as response:
                content = self._read(response, timeout[1])
                return RawAnswer(
                    response.status_code, {name.lower(): value for name, value in response.headers.items()}, content
                )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            failure = _failure(error, url, timeout)
        # Raised out here, so that the library's error is not chained: it holds the request, and with it the API key.
        raise failure

    def close(self) -> None:
        """Close the connections of every thread."""
        with self._lock:
            for session in list(self._sessions):
                session.close()

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = _new_session()
            with self._lock:
                self._sessions.add(session)
        return session

    def _read(self, response: requests.Response, seconds: float) -> bytes:
        deadline = self._clock.monotonic() + seconds
        content = bytearray()
        while chunk := response.raw.read1(2**16, decode_content=True):
            content += chunk
            if len(content) > _LARGEST_BODY:
                raise TransportError(f"The answer is larger than {_LARGEST_BODY // 2**20} MiB")
            if self._clock.monotonic() > deadline:
                raise TransportError(f"The answer was not complete after {seconds:g} s")
        return bytes(content)


@cache
def _session_class() -> type[requests.Session]:
    import requests

    class Session(requests.Session):
        # `requests` looks at the target even when it does not follow, and fails on a strange one.
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            return None

    return Session


def _new_session() -> requests.Session:
    from http.cookiejar import DefaultCookiePolicy

    session = _session_class()()
    session.auth = lambda request: request  # any value keeps .netrc out
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _failure(error: Exception, url: str, timeout: tuple[float, float]) -> TransportError:
    """The error in our words. `sent` is false only for what fails before a request leaves."""
    import requests
    from urllib3.exceptions import NewConnectionError, ReadTimeoutError

    parts = urlsplit(url)
    host = parts.hostname or ""
    causes = list(_causes(error))
    why = str(getattr(causes[-1], "strerror", None) or type(causes[-1]).__name__)
    if isinstance(error, requests.ConnectTimeout):
        return TransportError(f"No connection to {host} within {timeout[0]:g} s", sent=False)
    if isinstance(error, (requests.ReadTimeout, ReadTimeoutError)):
        return TransportError(f"No answer from {host} within {timeout[1]:g} s")
    if isinstance(error, requests.exceptions.ProxyError):
        return TransportError(f"The proxy for {host} cannot be reached: {why}", sent=False)
    if any(isinstance(cause, NewConnectionError) for cause in causes):
        where = f"{host}:{parts.port}" if parts.port else host
        hint = "Is `pulumi-lium emulator` running?" if _is_loopback(host) else None
        return TransportError(f"{where} cannot be reached: {why}", sent=False, hint=hint)
    if certificate := next((cause for cause in causes if hasattr(cause, "verify_message")), None):
        return TransportError(f"The certificate of {host} is not accepted: {certificate.verify_message}", sent=False)
    # `requests` reports with these what it will not send: a URL, a proxy or a certificate bundle that cannot be used.
    unsendable = isinstance(error, requests.RequestException) and isinstance(error, ValueError)
    if unsendable or type(error) is OSError:
        shown = why if isinstance(error, requests.exceptions.InvalidHeader) else error  # its text holds the header
        return TransportError(f"The request to {host} cannot be made: {shown}", sent=False)
    return TransportError(f"The connection to {host} broke before the answer was complete: {why}")
