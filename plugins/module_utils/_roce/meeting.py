# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""One test between two agents that are connected: the server listens before the client starts (host-contract 5.2).

The end that runs perftest's client *drives*: it judges, writes the record and hands it to the other end, which
*serves*.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ansible_collections.lium.cluster.plugins.module_utils._roce.child import Child
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import (
    CONTAINER,
    RailAt,
    Settings,
    bound_to_node,
    perftest,
)
from ansible_collections.lium.cluster.plugins.module_utils._roce.exchange import Link, LinkClosed
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End, classify
from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import POLL_S, Loop
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import Reading, lost_race, read
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import Ends, measured

#: How long perftest's server may take to end by itself after its client has.
SERVER_END_S = 1.0
_MOST_TEXT = 4000


class Limits(NamedTuple):
    """Time limits in seconds, and how often a lost race may be repeated.

    One test; a server's way to its listening port; and a host that says nothing, before it counts as gone.
    """

    test_s: float = 30.0
    listen_s: float = 10.0
    retry: int = 1
    patience_s: float = 20.0


class Bench(Protocol):
    """What a host gives to its tests. A rehearsal gives the same, emulated."""

    environ: Mapping[str, str]

    def listens(self, port: int, address: str) -> bool:
        """Whether a TCP port of this host is taken."""

    def counters(self, rail: RailAt) -> dict[str, int]:
        """The rail's error counters now; empty where none can be read."""

    def snapshot(self, rail: RailAt) -> dict[str, dict[str, int]]:
        """All counters that tell of an incast: those of the netdevs (``ethtool``), those of queue pairs (``hardware``).

        Counters that cannot be read are not in it.
        """

    def version(self, program: str) -> str | None:
        """The version of a perftest program; ``None`` where it tells none."""

    def now(self) -> str:
        """The wall clock as ISO 8601 with its zone."""


class Runner:
    """Runs the tests of one host, one at a time."""

    def __init__(self, loop: Loop, bench: Bench, settings: Settings) -> None:
        self._loop = loop
        self._bench = bench
        self._settings = settings

    @functools.cached_property
    def _version(self) -> str | None:
        """Asked once, for the first record that this host writes. An image's perftest is not asked."""
        return None if self._settings.image else self._bench.version(self._settings.perftest)

    def drive(self, link: Link, ends: Ends, rail: int, limits: Limits, *, alone: bool) -> dict[str, Any]:
        """Runs the client's end; answers the record, which the other end has then as well. Raises LinkClosed."""
        before = self._counters(ends.client_rail)
        tries = limits.retry + 1
        while True:
            word = link.receive(self._loop.clock() + limits.listen_s + limits.patience_s)
            tries -= 1
            seconds = 0.0
            if "failed" in word:
                server = end_of(word["failed"])
                reading = Reading(None, classify(End(None), server))
            else:
                started = self._loop.clock()
                client = self.run_client(ends, rail, limits.test_s)
                seconds = self._loop.clock() - started
                link.send({"ended": plain(client)})
                word = link.receive(self._loop.clock() + limits.patience_s)
                server = end_of(word["server"])
                reading = read(client, server, gid_index=self._gid_index(ends.client_rail), seconds=seconds)
            if reading.failure and lost_race(reading.failure) and tries > 0:
                link.send({"again": True})
                continue
            served, sent = word.get("counters"), self._grown(before, ends.client_rail)
            named = {f"client.{name}": value for name, value in (sent or {}).items()}
            record = measured(
                ends,
                rail,
                self._settings,
                reading,
                seconds=seconds,
                measured_at=self._bench.now(),
                counters=None if served is None and sent is None else {**(served or {}), **named},
                alone=alone,
                perftest=self._version,
            )
            link.send({"record": record})
            return record

    def serve(self, link: Link, ends: Ends, rail: int, limits: Limits) -> dict[str, Any]:
        """Runs the server's end; answers the record that the other end wrote. Raises LinkClosed."""
        before = self._counters(ends.server_rail)
        while True:
            child, failed = self._start_server(ends.server_rail, rail, limits.listen_s)
            try:
                if failed is not None:
                    link.send({"failed": plain(failed)})
                elif child is not None:
                    link.send({"go": True})
                    link.receive(self._loop.clock() + limits.test_s + limits.patience_s)
                    child.wait(self._loop.clock() + SERVER_END_S)
                    left = self.finish(child)
                    link.send({"server": plain(left), "counters": self._grown(before, ends.server_rail)})
                word = link.receive(self._loop.clock() + limits.patience_s)
            finally:
                if child is not None:
                    self.finish(child)
            if "record" in word:
                return dict(word["record"])
            if "again" not in word:
                raise LinkClosed("the peer's agent said something out of turn")

    def _start_server(self, own: RailAt, rail: int, listen_s: float) -> tuple[Child | None, End | None]:
        """A server that listens, or what is left of one that does not."""
        child, failed = self.launch_server(own, rail)
        if child is None or self.came_up(child, own, rail, self._loop.clock() + listen_s):
            return child, failed
        return None, self.finish(child)

    def launch_server(self, own: RailAt, number: int) -> tuple[Child | None, End | None]:
        """A server that was started on the port of that number, or what is left of one that could not be."""
        port = self._settings.port_of(number)
        if self._bench.listens(port, own.address):
            return None, End(1, f"Couldn't listen to port {port}: another program does")
        try:
            return self._start(own, number, None), None
        except OSError as exc:
            return None, _unstartable(exc)

    def came_up(self, child: Child, own: RailAt, number: int, deadline: float) -> bool:
        """Waits until a server listens; false when it ended, or was too slow."""
        port = self._settings.port_of(number)
        up = self._loop.wait(lambda: child.ended() or self._bench.listens(port, own.address), deadline, poll=POLL_S)
        return up and not child.ended()

    def run_client(self, ends: Ends, number: int, test_s: float) -> End:
        """Runs a client to its end against the server on the port of that number."""
        try:
            child = self._start(ends.client_rail, number, ends.server_rail.address)
        except OSError as exc:
            return _unstartable(exc)
        try:
            child.wait(self._loop.clock() + test_s)
        finally:
            end = self.finish(child)
        return end

    def _start(self, own: RailAt, number: int, server_address: str | None) -> Child:
        environ = self._bench.environ
        argv = perftest(self._settings, own, number, server_address)
        if self._settings.diagnostic and not self._settings.image:
            argv = bound_to_node(argv, own.numa, environ)
        return Child(self._loop, argv, environ)

    def finish(self, child: Child) -> End:
        """Ends a process. In a container the process is the daemon's, so the container is removed by name."""
        if self._settings.image and not child.ended():
            remover = Child(self._loop, ["docker", "rm", "-f", CONTAINER], self._bench.environ)
            try:
                remover.wait(self._loop.clock() + 10.0)
            finally:
                remover.finish()
        return child.finish()

    def _gid_index(self, own: RailAt) -> int | None:
        """The platform's image picks its index itself, by the same rule; a native run is given it."""
        return None if self._settings.image else own.gid_index

    def _counters(self, own: RailAt) -> dict[str, int]:
        """The error counters, and in the diagnostic mode also what the netdevs dropped or paused; empty: unreadable."""
        if not self._settings.diagnostic:
            return self._bench.counters(own)
        groups = self._bench.snapshot(own).values()
        return {**{name: value for group in groups for name, value in group.items()}, **self._bench.counters(own)}

    def _grown(self, before: Mapping[str, int], own: RailAt) -> dict[str, int] | None:
        """Counters that grew, ``None`` where none can be read. They are 32 bits wide on mlx5 and may wrap (4.6)."""
        after = self._counters(own)
        both = {name: value - before[name] for name, value in after.items() if name in before}
        return {name: by % 2**32 if by < 0 else by for name, by in both.items() if by} if both else None


def _unstartable(exc: OSError) -> End:
    return End(127 if isinstance(exc, FileNotFoundError) else 126, f"{exc.filename or 'perftest'}: {exc.strerror}")


def plain(end: End) -> dict[str, Any]:
    """What an agent tells the other one of its end."""
    return {"rc": end.rc, "text": end.text.strip()[-_MOST_TEXT:], "timed_out": end.timed_out}


def end_of(row: Mapping[str, Any]) -> End:
    """What the peer's agent told of its end, see :func:`plain`."""
    return End(row["rc"], str(row["text"]), "", bool(row["timed_out"]))
