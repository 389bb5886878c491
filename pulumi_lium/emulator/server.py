"""Runs the emulator behind uvicorn: one process, one event loop, one address."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .asgi import API, CUT, Emulator, Receive, Scope, Send
from .exchange import Cut

_LINGER_RESET = struct.pack("ii", 1, 0)


class AddressInUse(OSError):
    """The address cannot be listened on; the text says what to do."""


class _CuttingProtocol(H11Protocol):
    """uvicorn's HTTP protocol, with a way for the application to end the connection without an answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        application = self.app

        async def with_cut(scope: Scope, receive: Receive, send: Send) -> None:
            scope[CUT] = self._cut
            await application(scope, receive, send)

        self.app = with_cut

    def _cut(self, cut: Cut) -> None:
        if cut is Cut.REFUSED:
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.transport.abort()


class _Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. Raises AddressInUse where it cannot be had."""
    if not host.strip():
        # The socket would take it for every address of the machine, and the keys here are no secret.
        raise AddressInUse("the host is empty: name an address with --host, 127.0.0.1 for this machine alone")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        # Listening already here makes a taken port an error before anything else is started.
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise AddressInUse(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "choose another with --host or --port; --port 0 takes a free one"
        ) from error
    return sock


def base_url(host: str, sock: socket.socket) -> str:
    """The API's address on a listening socket, as `LIUM_BASE_URL` wants it."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{sock.getsockname()[1]}{API}"


def serve(emulator: Emulator, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once requests are answered."""
    config = uvicorn.Config(
        emulator,
        http=_CuttingProtocol,
        ws="none",
        proxy_headers=False,
        loop="asyncio",
        log_config=None,
        # A request that a fault still delays is cut off at the end; that is no news. Own failures print by themselves.
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config, ready)
    # uvicorn raises the signal that ended it once more: then it is done, and quiet.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    with contextlib.closing(sock):
        server.run(sockets=[sock])
