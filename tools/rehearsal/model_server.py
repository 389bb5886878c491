"""Answers the rehearsal's perftests from the fabric model, over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from tools.rehearsal.counters import Counters
from tools.rehearsal.fabric import Fabric, Flow, Shown
from tools.rehearsal.printed import client_output, failed

#: What perftest's own start, its second of sleep and a short transfer take on real hosts (host-contract 5.5).
FLOOR_S = 1.5
#: How much longer a test takes whose packets are lost: the card sends them again before it gives up.
RETRY_S = 4.0
#: A server that fails does so at its start.
_SERVER_WORDS = ("memlock", "no_perftest", "docker", "no_device")


class ModelServer:
    """Knows which tests run at this moment, so that a crowded link is crowded by those that really run.

    ``hangs`` lets tests without RDMA packets hang for good, as Soft-RoCE does, instead of failing with status 12 after
    ``retry_s``, as hardware does. ``counters`` move with each test that has a duration, which are those of incasts.
    ``netdevs`` are the rails' names on all hosts, by default ``rail0`` and so on.
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
            return self._server(words)
        if words[0] == "client":
            return await self._client(words, reader)
        program, host, port = words
        if program == "ethtool":
            return self.counters.ethtool(host, self._rail_of[port])
        return self.counters.rdma(host, _rail(port.removesuffix("/1")))

    def _server(self, words: list[str]) -> tuple[int, str]:
        _, host, device, duration, _ = words
        for fault in self.fabric.faults:
            name = getattr(fault, "failure", None)
            here = getattr(fault, "host", None) == host and getattr(fault, "rail", _rail(device)) == _rail(device)
            if here and name in _SERVER_WORDS:
                return failed(name, device)
        if int(duration):
            self._incasts.setdefault((host, _rail(device)), [0, 0])[0] += 1
        return 0, ""

    async def _client(self, words: list[str], reader: asyncio.StreamReader) -> tuple[int, str]:
        _, client, device, duration, tclass, server_address = words
        flow = Flow(self._host_at[server_address], client, _rail(device))
        self.collisions += [(flow, other) for other in self._running if set(flow[:2]) & set(other[:2])]
        if self._running:
            self.accompanied.update([flow, *self._running])
        self._running.append(flow)
        self.tests += 1
        self.most_at_once = max(self.most_at_once, len(self._running))
        try:
            await asyncio.sleep(self._floor_s / 2)
            shown = self.fabric.run(flow, self._running)
            if shown.gigabits_per_second is not None:
                await asyncio.sleep(self._floor_s / 2)
            elif shown.failure == "fabric_drop" and self._hangs:
                await reader.read()  # until the agent's deadline ends the process
            elif shown.failure == "fabric_drop":
                await asyncio.sleep(self._retry_s)
        finally:
            self._running.remove(flow)
        if int(duration):
            shown = self._share_of_incast(flow, shown, int(tclass))
        return client_output(shown, device, self._addresses[client], server_address)

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
