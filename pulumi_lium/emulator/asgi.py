"""The emulator as an ASGI application: the API under /api, the control plane under /_emulator.

It serves both straight from the route table. FastAPI describes the same table (`app.py`) and is loaded only when
someone asks for /docs or /openapi.json: importing it takes longer than all the rest of the start, and tests start many.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from . import control as control_plane
from .control import ControlPlane
from .exchange import Answer, Cut, Request, envelope, split_path
from .service import Service, failure
from .store import StoreError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

API = "/api"
CONTROL = "/_emulator"
FRAMING = ("content-length", "transfer-encoding")
"""Headers that say how long the body is: always the server's own, whatever a fault sets."""
CUT = "lium.cut"
"""Key of the ASGI scope under which the server puts its way to end a connection without an answer."""


class Emulator:
    """The ASGI application around one service."""

    def __init__(self, service: Service, control: ControlPlane) -> None:
        self.service = service
        self.control = control
        self._described: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            path = scope["path"]
            if path in ("/docs", "/openapi.json") and scope["method"] == "GET":
                await self._description()(scope, receive, send)
            else:
                await self.serve(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the API or of the control plane; there is nothing elsewhere."""
        raw_path = (scope.get("raw_path") or scope["path"].encode()).decode("ascii", "replace")
        body = await _read(receive)
        if raw_path == CONTROL or raw_path.startswith(CONTROL + "/"):
            request = _request(scope, raw_path.removeprefix(CONTROL), body)
            outcome: Answer | Cut = self._control(request)
        elif raw_path == API or raw_path.startswith(API + "/"):
            outcome = await self._exchange(_request(scope, raw_path.removeprefix(API), body))
        else:
            hint = f"The API is under {API}, the control plane under {CONTROL}"
            outcome = Answer.of_json(404, envelope(404, "not_found", f"Nothing at {raw_path}", "outside", hint))
        if isinstance(outcome, Cut):
            await _cut(scope, receive, outcome)
        else:
            await _answer(send, outcome)

    async def _exchange(self, request: Request) -> Answer | Cut:
        try:
            admitted = self.service.admit(request)
        except StoreError as error:
            return _unkept(error, "unadmitted")
        # The waits are not tied to the connection: the service acts though the caller has gone.
        await asyncio.sleep(admitted.effects.delay_before)
        try:
            outcome = self.service.perform(admitted)
        except StoreError as error:
            admitted.entry.status = 500
            return _unkept(error, admitted.request_id)
        except Exception:  # noqa: BLE001 - the caller still gets an answer in the service's own form
            _tell(traceback.format_exc())
            admitted.entry.status = 500
            return failure(admitted.request_id)
        await asyncio.sleep(admitted.effects.delay_after)
        return outcome

    def _control(self, request: Request) -> Answer:
        try:
            return control_plane.respond(self.control, request)
        except StoreError as error:
            return _unkept(error, control_plane.REQUEST_ID)
        except Exception:  # noqa: BLE001 - as above
            _tell(traceback.format_exc())
            return failure(control_plane.REQUEST_ID)

    def _description(self) -> Any:
        if self._described is None:
            from .app import create_app

            self._described = create_app(self)
        return self._described


def _unkept(error: StoreError, request_id: str) -> Answer:
    """The answer where the state file takes nothing: one line for whoever runs the emulator, too."""
    _tell(f"{error}\n")
    return failure(request_id, str(error))


def _tell(text: str) -> None:
    """To whoever runs the emulator. Where that is a file on a full disk, the caller still gets an answer."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _request(scope: Scope, path: str, body: bytes) -> Request:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    return Request(scope["method"], split_path(path), query, headers, body)


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _answer(send: Send, answer: Answer) -> None:
    bodiless = answer.status in (204, 304)
    body = b"" if bodiless else answer.body
    headers = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in answer.headers.items()
        if name not in FRAMING
    ]
    if not bodiless:
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _cut(scope: Scope, receive: Receive, cut: Cut) -> None:
    end = scope.get(CUT)
    if end is None:
        raise ConnectionAbortedError("a fault ends this connection without an answer")
    end(cut)
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
