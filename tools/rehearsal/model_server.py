"""Answers the rehearsal's perftests from the fabric model, over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tools.rehearsal.counters import Counters
from tools.rehearsal.fabric import Fabric, Flow, Shown
from tools.rehearsal.hosts import GID_INDEX
from tools.rehearsal.printed import NO_GID, failed, gid, result, table

#: What perftest's own start, its second of sleep and a short transfer take on real hosts (host-contract 5.5).
FLOOR_S = 1.5
#: How much longer a test takes whose packets are lost: the card sends them again before it gives up.
RETRY_S = 4.0
#: A server that fails does so at its start.
_SERVER_WORDS = ("memlock", "no_perftest", "docker", "no_device")


class Arguments(NamedTuple):
    """What an end of a test was called with, in the order in which perftest.c tells it.

    ``gid_index`` is -1 without ``-x``: perftest then picks the index itself.
    """

    host: str
    device: str
    tcp_port: int
    port: int
    gid_index: int
    iterations: int
    qps: int
    duration: int
    duplex: int
    gbits: int
    tclass: int

    @classmethod
    def read(cls, words: list[str]) -> Arguments:
        return cls(*words[:2], *map(int, words[2:]))

    def negotiated(self) -> dict[str, object]:
        """What perftest 6.28 compares with the other end's before it sends anything, by its names and in its order."""
        timed = self.duration > 0
        return {
            "test_type": "DURATION" if timed else "ITERATIONS",
            "report_fmt": "GBS" if self.gbits else "MBS",
            "iters": self.iterations,
            "duplex": "ON" if self.duplex else "OFF",
            "num_of_qps": self.qps,
            "duration": self.duration,
        }


class ModelServer:
    """Knows which tests run at this moment, so that a crowded link is crowded by those that really run.

    ``hangs`` lets tests without RDMA packets hang for good, as Soft-RoCE does, instead of failing with status 12 after
    ``retry_s``, as hardware does. ``counters`` move with each test that has a duration, which are those of incasts.
    ``netdevs`` are the rails' names on all hosts, by default ``rail0`` and so on; their devices are ``mlx5_0`` and so
    on, each with one port and one GID, at ``GID_INDEX``. A test that asks for another one is refused as perftest would.
    """

    def __init__(
        self,
        fabric: Fabric,
        addresses: Mapping[str, str],
        *,
        floor_s: float = FLOOR_S,
        retry_s: float = RETRY_S,
        hangs: bool = False,
        counters: Counters | None = None,
        netdevs: Mapping[str, int] | None = None,
    ) -> None:
        self.fabric = fabric
        self.counters = counters or Counters()
        self._rail_of = netdevs or {f"rail{rail}": rail for rail in range(fabric.rails)}
        #: By host and TCP port, the server that was started last.
        self._servers: dict[tuple[str, int], Arguments] = {}
        #: By port: servers that were started for the incast that runs there, and how many of them have been sent to.
        self._incasts: dict[tuple[str, int], list[int]] = {}
        self._host_at = {address: host for host, address in addresses.items()}
        self._addresses = addresses
        self._floor_s = floor_s
        self._retry_s = retry_s
        self._hangs = hangs
        self._running: list[Flow] = []
        self.tests = 0
        self.most_at_once = 0
        #: Tests that shared a host with another one at the same time: the timetable must never let that happen.
        self.collisions: list[tuple[Flow, Flow]] = []
        #: Tests beside which at some moment another one ran.
        self.accompanied: set[Flow] = set()

    async def serve(self, path: Path) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self._answer, str(path), backlog=1024)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            words = (await reader.readline()).decode().split()
            if words:
                code, text = await self._told(words, reader)
                writer.write(f"{code}\n{text}".encode())
                await writer.drain()
        writer.close()

    async def _told(self, words: list[str], reader: asyncio.StreamReader) -> tuple[int, str]:
        if words[0] == "server":
            return self._server(Arguments.read(words[1:]))
        if words[0] == "client":
            return await self._client(Arguments.read(words[1:-1]), words[-1], reader)
        program, host, port = words
        if program == "ethtool":
            return self.counters.ethtool(host, self._rail_of[port])
        return self.counters.rdma(host, _rail(port.removesuffix("/1")))

    def _server(self, asked: Arguments) -> tuple[int, str]:
        refused = self._refused(asked)
        if refused:
            return refused
        for fault in self.fabric.faults:
            name = getattr(fault, "failure", None)
            rail = _rail(asked.device)
            here = getattr(fault, "host", None) == asked.host and getattr(fault, "rail", rail) == rail
            if here and name in _SERVER_WORDS:
                return failed(name, device=asked.device)
        self._servers[asked.host, asked.tcp_port] = asked
        if asked.duration:
            self._incasts.setdefault((asked.host, _rail(asked.device)), [0, 0])[0] += 1
        if not self._has_gid(asked):  # which the server learns when it has its client
            code, text = failed("gid_or_route")
            return -code, self._table(asked, NO_GID, NO_GID) + text
        return 0, ""

    async def _client(self, asked: Arguments, server_address: str, reader: asyncio.StreamReader) -> tuple[int, str]:
        refused = self._refused(asked)
        if refused:
            return refused
        server = self._servers[self._host_at[server_address], asked.tcp_port]
        flow = Flow(server.host, asked.host, _rail(asked.device))
        self.collisions += [(flow, other) for other in self._running if set(flow[:2]) & set(other[:2])]
        if self._running:
            self.accompanied.update([flow, *self._running])
        self._running.append(flow)
        self.tests += 1
        self.most_at_once = max(self.most_at_once, len(self._running))
        local = gid(self._addresses[asked.host]) if self._has_gid(asked) else NO_GID
        remote = gid(server_address) if self._has_gid(server) else NO_GID
        above = self._table(asked, local, remote)
        try:
            await asyncio.sleep(self._floor_s / 2)
            for (name, own), other in zip(asked.negotiated().items(), server.negotiated().values(), strict=True):
                if own != other:
                    return failed("mismatch", name=name, local=own, remote=other)
            if NO_GID in (local, remote):
                code, text = failed("gid_or_route")
                return code, above + text
            shown = self.fabric.run(flow, self._running)
            if shown.gigabits_per_second is not None:
                await asyncio.sleep(self._floor_s / 2)
            elif shown.failure == "fabric_drop" and self._hangs:
                await reader.read()  # until the agent's deadline ends the process
            elif shown.failure == "fabric_drop":
                await asyncio.sleep(self._retry_s)
        finally:
            self._running.remove(flow)
        if asked.duration:
            shown = self._share_of_incast(flow, shown, asked.tclass)
        return result(shown, above, asked.device, asked.iterations, gbits=bool(asked.gbits))

    def _refused(self, asked: Arguments) -> tuple[int, str] | None:
        """What perftest says at once of a device or port that the host does not have."""
        if asked.device not in {f"mlx5_{rail}" for rail in range(self.fabric.rails)}:
            return failed("no_device", device=asked.device)
        return failed("port", port=asked.port) if asked.port != 1 else None

    def _has_gid(self, asked: Arguments) -> bool:
        return asked.gid_index in (-1, GID_INDEX)

    def _table(self, asked: Arguments, local: str, remote: str) -> str:
        return table(asked.device, asked.gid_index, asked.qps, local, remote)

    def _share_of_incast(self, flow: Flow, shown: Shown, tclass: int) -> Shown:
        """All senders of an incast share its receiver's port, and its counters move."""
        port = flow.server, flow.rail
        senders, ended = self._incasts[port]
        self._incasts[port][1] = ended + 1
        if ended + 1 == senders:
            del self._incasts[port]
        if shown.gigabits_per_second is None:
            return shown
        self.counters.sent(flow, tclass, crowded=senders > 1)
        idle = self.counters.here(flow.server) == "idle"
        return shown._replace(gigabits_per_second=shown.gigabits_per_second / senders / (3 if idle else 1))


def _rail(device: str) -> int:
    """The devices of an emulated host are called after their rail: ``mlx5_3``."""
    return int(device.rsplit("_", 1)[1])
