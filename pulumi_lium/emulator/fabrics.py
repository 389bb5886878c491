"""Fabric: which hosts share a wire, what was proven about their pairs, and the offers that follow (contract 7.1)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import scenario
from .hosts import Host
from .records import UNSTORED, Record

# Steps of the search for the largest proven set before the best one found so far is taken.
_SEARCH_STEPS = 20_000


@dataclass(slots=True, eq=False, repr=False)
class Fabric(Record):
    """One wire of one provider. `pairs` are [host, host, Gb/s or null]; `all_pairs` means that every pair is proven."""

    spec: scenario.Fabric = field(metadata=UNSTORED)
    provider: scenario.Provider = field(metadata=UNSTORED)
    all_pairs: bool = False
    pairs: list[list[Any]] = field(default_factory=list)
    groups: list[FabricGroup] = field(metadata=UNSTORED, default_factory=list)
    proven: dict[str, set[str]] = field(metadata=UNSTORED, default_factory=dict)

    def __post_init__(self) -> None:
        measured = self.spec.measured
        self.all_pairs = measured == "all"
        pairs = [list(pair) for pair in measured.pairs] if isinstance(measured, scenario.MeasuredPairs) else []
        self.measure(pairs, self.all_pairs)

    @property
    def id(self) -> str:
        return f"{self.provider.name}/{self.spec.name}"

    def load(self, record: Mapping[str, Any]) -> Fabric:
        Record.load(self, record)
        self.measure(self.pairs, self.all_pairs)
        return self

    def measure(self, pairs: Iterable[list[Any]], all_pairs: bool = False) -> None:
        """Replace the proof. A pair counts when its rate is above zero, in whichever order it is named."""
        self.all_pairs = all_pairs
        self.pairs = [list(pair) for pair in pairs]
        self.proven = {}
        for a, b, rate in self.pairs:
            if rate is not None and rate > 0:
                self.proven.setdefault(a, set()).add(b)
                self.proven.setdefault(b, set()).add(a)
        for a, b, rate in self.pairs:
            # A failed measurement of a pair outweighs a good one of the same pair.
            if rate is None or rate <= 0:
                self.proven.get(a, set()).discard(b)
                self.proven.get(b, set()).discard(a)
        for group in self.groups:
            group.stale = True

    def is_proven(self, hosts: list[Host]) -> bool:
        """Whether RDMA is proven between all of them; InfiniBand needs no proof (contract 7.1.5)."""
        if self.spec.type == "infiniband" or self.all_pairs:
            return True
        names = [host.id for host in hosts]
        return all(b in self.proven.get(a, ()) for i, a in enumerate(names) for b in names[i + 1 :])

    def proven_set(self, hosts: list[Host]) -> list[Host]:
        """The largest set of `hosts` with every pair proven, in their order."""
        if self.is_proven(hosts):
            return hosts
        names = [host.id for host in hosts]
        keep = _largest_set({a: {b for b in names if b != a and b not in self.proven.get(a, ())} for a in names})
        return [host for host in hosts if host.id in keep]

    def addresses(self, hosts: list[Host]) -> None:
        """Give every host of a RoCE segment its address: the scenario's, else the next free one from .11 on."""
        if self.spec.segment is None:
            return
        network = ipaddress.IPv4Network(self.spec.segment)
        used = {host.spec.fabric_ip for host in hosts}
        offset = 11 if network.num_addresses > 16 else 1
        for host in hosts:
            if host.spec.fabric_ip is not None:
                host.fabric_ip = host.spec.fabric_ip
                continue
            while str(network.network_address + offset) in used:
                offset += 1
            host.fabric_ip = str(network.network_address + offset)
            offset += 1


class FabricGroup:
    """The hosts of a fabric that are alike in GPU model and count: at most one offer (contract 7.1.3).

    `stale`: a host's occupancy or the proof has changed since the offer was made.
    """

    __slots__ = ("fabric", "fabric_id", "hosts", "offer_cache", "stale")

    def __init__(self, fabric: Fabric, hosts: list[Host]) -> None:
        self.fabric = fabric
        self.hosts = hosts
        wire = fabric.spec
        model, count = hosts[0].spec.gpu_model, hosts[0].spec.gpu_count
        # The partition key stands in the id as in the service's own; the provider keeps ids apart between racks.
        place = f"{wire.identity}:0x7fff" if wire.type == "infiniband" else wire.identity
        self.fabric_id = f"hot:{wire.type}:{fabric.provider.name}:{place}:{model}:{count}"
        self.offer_cache: dict[str, Any] | None = None
        self.stale = True
        for host in hosts:
            host.group = self

    def on_sale(self) -> list[Host]:
        """Free hosts that one cluster can span now; empty when fewer than two (contract 7.1.1, 7.1.5, 7.1.7)."""
        if self.fabric.spec.type == "infiniband" and self.fabric.spec.udp_51820 == "closed":
            return []
        hosts = self.fabric.proven_set([host for host in self.hosts if host.whole])
        return hosts if len(hosts) >= 2 else []

    def offer(self) -> dict[str, Any] | None:
        """The offer (contract 3.2), or None. Shared: the reader must not change it."""
        if self.stale:
            hosts = self.on_sale()
            wire = self.fabric.spec
            self.offer_cache = (
                {
                    "fabric_id": self.fabric_id,
                    "fabric_type": wire.type,
                    "link_rate": wire.link_rate,
                    "fabric_measured": wire.type == "roce" or self.fabric.all_pairs or bool(self.fabric.pairs),
                    "node_count": len(self.hosts),
                    "nodes": [host.row() for host in hosts],
                }
                if hosts
                else None
            )
            self.stale = False
        return self.offer_cache


def _largest_set(conflicts: dict[str, set[str]]) -> set[str]:
    """The largest set of names without a conflict inside.

    Branches on the name with most conflicts: with it (its conflicts go) or without it. Exact within the step budget.
    """
    best: set[str] = set()
    steps = _SEARCH_STEPS

    def search(rest: list[str], kept: set[str]) -> None:
        nonlocal best, steps
        steps -= 1
        if len(kept) + len(rest) <= len(best) or (steps < 0 and best):
            return
        left = set(rest)
        worst = max(rest, key=lambda name: len(conflicts[name] & left), default=None)
        if worst is None or not conflicts[worst] & left:
            best = kept | left
            return
        if len(conflicts[worst] & left) == 1:
            # With one conflict left on each, keeping the earlier of the two is never worse.
            other = next(iter(conflicts[worst] & left))
            search([name for name in rest if name != other], kept)
            return
        search([name for name in rest if name != worst], kept)
        search([name for name in rest if name != worst and name not in conflicts[worst]], kept | {worst})

    search(list(conflicts), set())
    return best
