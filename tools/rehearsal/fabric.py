"""A model of a RoCE fabric: hosts with rails, leaf switches, uplinks, and faults planted in them.

It answers one question: what does a test show, given what else runs at that moment? Simulations, tests and the fake
perftest of the rehearsal all ask it, so that a verdict is judged against a planted fault and not against itself.

Each rail is a plane of its own: the NICs of one rail of the hosts of a rack hang on one leaf, leaves of a plane meet
in a spine. A test that stays in a leaf touches two cables; one that leaves it also touches two uplinks.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: What an undisturbed link carries, as a share of its line rate (path MTU 4096).
PAYLOAD_SHARE = 0.975


class Flow(NamedTuple):
    """A test as the fabric sees it: data from ``client`` to ``server`` on a rail."""

    server: str
    client: str
    rail: int


class Shown(NamedTuple):
    """What a test shows: a rate in Gb/s, or the class of a failure and the end whose output names it."""

    gigabits_per_second: float | None
    failure: str | None = None
    end: str = "client"


@dataclasses.dataclass(frozen=True)
class HostFault:
    """All tests of a host go wrong: ``failure`` names how, or ``factor`` slows all its rails in both directions.

    ``connect`` (a closed test port) shows only where the host is the server.
    """

    host: str
    failure: str | None = None
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class NicFault:
    """One NIC: a failure by its own words, or a cap in both directions (a narrow PCIe slot)."""

    host: str
    rail: int
    failure: str | None = None
    factor: float = 1.0


@dataclasses.dataclass(frozen=True)
class CableFault:
    """Cable, optic or switch port of one NIC loses packets.

    ``role`` says in which direction: what the host receives (``server``), sends (``client``), or both (``None``).
    ``lossy`` leaves a few percent of the rate, else nothing passes.
    """

    host: str
    rail: int
    role: str | None = None
    lossy: bool = False


@dataclasses.dataclass(frozen=True)
class GroupFault:
    """The link that joins a rack's leaves to the rest is cut, or slowed by ``factor``.

    ``rail=None`` means every plane.
    """

    leaf: int
    rail: int | None = None
    factor: float = 0.0


@dataclasses.dataclass(frozen=True)
class Oversubscription:
    """Uplinks carry only ``flows`` flows at full rate at one time.

    More share them. Nothing shows when a test is alone.
    """

    flows: float


@dataclasses.dataclass(frozen=True)
class PathFault:
    """Packets between two hosts are dropped (an access list, a bad link chosen by a hash); all else works."""

    first: str
    second: str


Fault = HostFault | NicFault | CableFault | GroupFault | Oversubscription | PathFault


@dataclasses.dataclass(frozen=True)
class Fabric:
    """A fabric with its faults. Deterministic: noise comes from ``seed`` and the test, not from the order of calls."""

    hosts: Sequence[str]
    rails: int = 1
    link_gbps: float = 200.0
    leaf_size: int = 16
    faults: Sequence[Fault] = ()
    seed: int = 0
    noise: float = 0.01
    _leaf: Mapping[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_leaf", {host: number // self.leaf_size for number, host in enumerate(self.hosts)})

    def leaf(self, host: str) -> int:
        """The rack of a host, so its leaf switch on each plane."""
        return self._leaf[host]

    def crosses(self, flow: Flow) -> bool:
        """Whether the test leaves its leaf and uses uplinks."""
        return self._leaf[flow.server] != self._leaf[flow.client]

    def run(self, flow: Flow, beside: Sequence[Flow] = ()) -> Shown:
        """What the test shows while the tests ``beside`` it run on the fabric; itself among them does not count."""
        chance = zlib.crc32(f"{self.seed}/{flow.server}/{flow.client}/{flow.rail}".encode()) / 2**32
        left = 1.0  # the narrowest place on the way counts
        for fault in self.faults:
            told = self._told(fault, flow)
            if told is not None:
                return told
            left = min(left, self._factor(fault, flow, beside, chance))
        share = PAYLOAD_SHARE * left * (1 - self.noise * chance)
        return Shown(round(share * self.link_gbps, 2)) if left else Shown(None, "fabric_drop")

    def run_round(self, flows: Sequence[Flow]) -> list[Shown]:
        """What tests show that run at the same time."""
        return [self.run(flow, flows) for flow in flows]

    def _told(self, fault: Fault, flow: Flow) -> Shown | None:
        """The failure that an end names itself, before any packet of data is sent."""
        if not isinstance(fault, (HostFault, NicFault)) or fault.failure in (None, "fabric_drop"):
            return None
        if fault.host not in flow[:2] or (isinstance(fault, NicFault) and fault.rail != flow.rail):
            return None
        end = "server" if fault.host == flow.server else "client"
        if fault.failure == "connect":
            return Shown(None, "connect", "client") if end == "server" else None
        return Shown(None, fault.failure, end)

    def _factor(self, fault: Fault, flow: Flow, beside: Sequence[Flow], chance: float) -> float:
        """What a fault leaves of the rate: 1 when it does not concern the test, 0 when nothing passes."""
        if isinstance(fault, PathFault):
            return 0.0 if {fault.first, fault.second} == set(flow[:2]) else 1.0
        if isinstance(fault, Oversubscription):
            return self._crowded(fault, flow, beside)
        if isinstance(fault, GroupFault):
            inside = [self._leaf[host] == fault.leaf for host in flow[:2]]
            return fault.factor if inside[0] != inside[1] and fault.rail in (None, flow.rail) else 1.0
        if fault.host not in flow[:2] or (not isinstance(fault, HostFault) and fault.rail != flow.rail):
            return 1.0
        if isinstance(fault, CableFault):
            role = "server" if fault.host == flow.server else "client"
            if fault.role not in (None, role):
                return 1.0
            return 0.002 + 0.078 * chance if fault.lossy else 0.0
        return 0.0 if fault.failure == "fabric_drop" else fault.factor

    def _crowded(self, fault: Oversubscription, flow: Flow, beside: Sequence[Flow]) -> float:
        """The share of the most crowded of the uplinks in use: up from the client's leaf, down to the server's."""
        if not self.crosses(flow):
            return 1.0
        others = [other for other in beside if other != flow and other.rail == flow.rail and self.crosses(other)]
        up = 1 + sum(self._leaf[other.client] == self._leaf[flow.client] for other in others)
        down = 1 + sum(self._leaf[other.server] == self._leaf[flow.server] for other in others)
        return min(1.0, fault.flows / max(up, down))
