# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""How the agents of two hosts talk: lines of JSON over a TCP port of their own on the fabric.

A client's agent calls the server's agent for a meeting and keeps the connection through it; any agent answers at once
how far it is. Nothing here touches the port of the test itself.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import errno
import json
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import POLL_S, Loop

_MOST_LINE = 256 * 1024


class LinkClosed(Exception):
    """The other agent is gone, or said nothing in time."""


class Refused(Exception):
    """Nothing listens there: the agent has not started yet, or has ended."""


class Link:
    """One connection between two agents: objects in, objects out."""

    def __init__(self, loop: Loop, sock: socket.socket, patience_s: float) -> None:
        """``patience_s``: a peer that vanishes without a word (power, cable) is noticed after about this long."""
        self._loop = loop
        self._sock = sock
        self._buffer = b""
        self.inbox: list[dict[str, Any]] = []
        self.on_words: Callable[[], None] | None = None
        self.closed = False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        probe = max(1, int(patience_s / 5))
        for option, value in (("TCP_KEEPIDLE", 2 * probe), ("TCP_KEEPINTVL", probe), ("TCP_KEEPCNT", 3)):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience_s * 1000))
        loop.watch(sock, self._read)

    def _read(self) -> None:
        try:
            some = self._sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            some = b""
        if not some:
            self.close()
            return
        *lines, self._buffer = (self._buffer + some).split(b"\n")
        try:
            for line in lines:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError("not an object")
                self.inbox.append(message)
        except ValueError:  # not an agent of ours
            self.close()
        if len(self._buffer) > _MOST_LINE:
            self.close()
        if self.inbox and self.on_words:
            self.on_words()

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises :class:`LinkClosed`."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        while data and not self.closed:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                select.select([], [self._sock], [], 1.0)
            except OSError:
                self.close()
        if self.closed:
            raise LinkClosed("the connection to the peer's agent broke")

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next object. Raises :class:`LinkClosed` when none came before the deadline, or none can come any more."""
        self._loop.wait(lambda: bool(self.inbox) or self.closed, deadline)
        if not self.inbox:
            raise LinkClosed("the peer's agent has gone" if self.closed else "the peer's agent fell silent")
        return self.inbox.pop(0)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.unwatch(self._sock)
            self._sock.close()


class Desk(Protocol):
    """What an agent answers to those who call."""

    def status(self) -> dict[str, Any]:
        """How far this agent is: ``{"at": round, "state": "running" | "quarantined" | "done"}``."""

    def declines(self, meeting: str) -> str | None:
        """Why this agent will not come to a meeting, ``None`` when it will."""

    def heard(self, message: Mapping[str, Any]) -> None:
        """Takes note of what a caller tells beside its call."""


class Exchange:
    """This host's side of all conversations: the listener, calls that wait for their meeting, and calls to others."""

    def __init__(self, loop: Loop, run: str, address: str, port: int, desk: Desk, patience_s: float) -> None:
        """Listens at once; ``desk`` answers callers. Raises ``OSError`` when the port is taken."""
        self._loop = loop
        self._run = run
        self._address = address
        self._port = port
        self._desk = desk
        self._patience_s = patience_s
        self.waiting: dict[str, Link] = {}
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((address, port))
            self._listener.listen(128)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        loop.watch(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        link = Link(self._loop, sock, self._patience_s)
        link.on_words = lambda: self._first_words(link)

    def _first_words(self, link: Link) -> None:
        """A call for a meeting waits for it; a question is answered; a stranger or another run is hung up on."""
        link.on_words = None
        message = link.inbox.pop(0)
        meeting = message.get("meet")
        try:
            if message.get("run") != self._run:
                link.send({"skip": "the peer's agent works on another run"})
                return
            self._desk.heard(message)
            if meeting is None:
                link.send(self._desk.status())
            else:
                reason = self._desk.declines(str(meeting))
                if reason is None:
                    self.waiting[str(meeting)] = link
                    return
                link.send({"skip": reason})
        except LinkClosed:
            pass
        finally:
            if str(meeting) not in self.waiting or self.waiting[str(meeting)] is not link:
                link.close()

    def call(self, address: str, message: Mapping[str, Any], timeout: float) -> Link:
        """Connects from the own fabric address and says the first words.

        Raises :class:`Refused` at once where nothing listens, :class:`LinkClosed` where no answer comes in time.
        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.bind((self._address, 0))
            code = sock.connect_ex((address, self._port))
            if code == errno.EINPROGRESS:
                deadline = self._loop.clock() + timeout
                if not self._loop.wait(lambda: bool(select.select([], [sock], [], 0)[1]), deadline, poll=POLL_S):
                    raise LinkClosed(f"no answer from {address}:{self._port} within {timeout:g} s")
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == errno.ECONNREFUSED:
                raise Refused(f"{address}:{self._port} refused")
            if code:
                raise LinkClosed(f"{address}:{self._port}: {errno.errorcode.get(code, code)}")
        except BaseException:
            sock.close()
            raise
        link = Link(self._loop, sock, self._patience_s)
        link.send({"run": self._run, **message})
        return link

    def close(self) -> None:
        self._loop.unwatch(self._listener)
        self._listener.close()
        for link in self.waiting.values():
            link.close()
