"""Where a redirect may lead: to the same origin and nowhere else (contract 1.6).

Stricter than the official client in one thing: a redirect that would turn a write into a GET is not followed. The
answer to that GET would say nothing about the write, yet read as a success, or as a 404 of the cluster.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urljoin, urlsplit

from ._scrub import Scrubber
from .errors import RedirectRefused

STATUSES = frozenset({301, 302, 303, 307, 308})
MOST_HOPS = 5

_PORTS = {"http": 80, "https": 443}


def next_url(url: str, location: str | None, scrub: Scrubber) -> str:
    """The URL to go to. Raises `RedirectRefused` for another scheme, host or port, or a target that is none."""
    if not location:
        raise RedirectRefused("The service answered with a redirect that names no target")
    if "\\" in location or any(not 0x21 <= ord(character) < 0x7F for character in location):
        # Readers of URLs disagree about these; one of them would be the library that sends the key.
        raise RedirectRefused("The service redirects to a target that is no clean URL")
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location))
        same = _origin(here) == _origin(there)
    except ValueError:
        raise RedirectRefused("The service redirects to a target that is no URL") from None
    if not same or "@" in there.netloc:
        raise RedirectRefused(
            f"The service at {here.scheme}://{here.netloc} redirects to {_shown_origin(there, scrub)};"
            " the API key is not sent there"
        )
    # Built on our own origin: whatever the target's authority looked like, the request goes where the last one went.
    return f"{here.scheme}://{here.netloc}{there.path or '/'}" + (f"?{there.query}" if there.query else "")


def keeps_method(status: int, method: str) -> bool:
    """Whether the request goes on as it is; if not, HTTP makes a GET without a body of it."""
    return method == "GET" or status in (307, 308) or (status == 301 and method != "POST")


def _origin(url: SplitResult) -> tuple[str, str, int | None]:
    return url.scheme, url.hostname or "", url.port if url.port is not None else _PORTS.get(url.scheme)


def _shown_origin(url: SplitResult, scrub: Scrubber) -> str:
    return scrub.sentence(f"{url.scheme}://{url.netloc.rpartition('@')[2]}")
