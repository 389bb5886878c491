"""A service of fixed answers on loopback: real HTTP for what an emulator cannot be made to say."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer. `content_length` may lie, to break the connection in the middle of a body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_length: int | None = None


@dataclass(frozen=True)
class Drop:
    """The request is read and the connection closed without an answer."""


@dataclass(frozen=True)
class Stall:
    """The first bytes of an answer (none, or up to some way into its body), then nothing until the service ends."""

    start: bytes = b""


def ok(document: Any = None, status: int = 200, **headers: str) -> Reply:
    """A JSON answer; header names with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json", **named})


def page(status: int = 200, text: str = "<html><title>502 Bad Gateway</title></html>") -> Reply:
    return Reply(status, text.encode(), {"Content-Type": "text/html"})


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body) if self.body else None


Answer = Reply | Drop | Stall


class LoopbackService:
    """Answers in the order given, the last one again and again; a callable decides by the request."""

    def __init__(self, *answers: Answer | Callable[[Seen], Answer]) -> None:
        self._answers = list(answers) or [ok([])]
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.seen: list[Seen] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/api"

    def __enter__(self) -> LoopbackService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _next(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        return answer(seen) if callable(answer) else answer

    def _handler(service) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = service._next(Seen(self.command, self.path, headers, body))
                if isinstance(answer, Reply):
                    self._reply(answer)
                    return
                if isinstance(answer, Stall):
                    self.wfile.write(answer.start)
                    service._ended.wait()
                self._hang_up()

            def _reply(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.status != 204:
                    length = len(reply.body) if reply.content_length is None else reply.content_length
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(reply.body)
                if reply.content_length is not None:
                    self._hang_up()

            def _hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, format: str, *args: object) -> None:
                pass

            do_GET = do_POST = do_DELETE = do_PUT = _serve

        return Handler
