"""A pair verification without hosts: timetable, fabric model, reruns and verdict, as pure calls.

It runs the collection's own timetable, marks, rerun plan and diagnosis; only perftest is replaced by the model.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce import culprit
from ansible_collections.lium.cluster.plugins.module_utils._roce.culprit import Guilty, Outcome, diagnose
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import failure
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import OK, Rail, ceiling, mark
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import plan_reruns
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest, Round, timetable

from tools.rehearsal.fabric import (
    CableFault,
    Fabric,
    Fault,
    Flow,
    GroupFault,
    HostFault,
    NicFault,
    Oversubscription,
    PathFault,
    Shown,
)

MTU = 4096
#: What a host's own end says when the host, or a NIC of it, is at fault; "" stands for a fault without words.
HOST_WORDS = ("memlock", "no_perftest", "connect", "docker")
NIC_WORDS = ("no_device", "gid_or_route", "gid_types")


class Verdict(NamedTuple):
    """What a simulated verification found, and what it cost."""

    guilty: list[Guilty]
    outcomes: list[Outcome]
    rounds: list[Round]
    extra_rounds: int


def outcome(fabric: Fabric, test: LinkTest, shown: Shown, alone: bool = False) -> Outcome:
    """A shown result, judged with the collection's own marks."""
    rail = Rail(fabric.link_gbps)
    told = mark(shown.gigabits_per_second, ceiling(rail, rail, MTU))
    accused = None
    if shown.failure:
        accused = failure(shown.failure, end=shown.end).accuses(server=test.server, client=test.client)
    return Outcome(test, told.status != OK, told.share, shown.failure, accused, alone)


def run_rounds(fabric: Fabric, rounds: Sequence[Round]) -> list[Outcome]:
    """Runs a timetable: the first tests of all meetings of a round at one time, then the second ones."""
    outcomes = []
    for meetings in rounds:
        for slot in range(max((len(meeting.tests) for meeting in meetings), default=0)):
            tests = [meeting.tests[slot] for meeting in meetings if slot < len(meeting.tests)]
            shown = fabric.run_round([Flow(*test) for test in tests])
            outcomes += [outcome(fabric, test, seen) for test, seen in zip(tests, shown, strict=True)]
    return outcomes


def sweep(fabric: Fabric, *, full: bool) -> Verdict:
    """The sweep alone: every rail and both directions when ``full``, else the platform's rail one way."""
    rails = {host: range(fabric.rails) for host in fabric.hosts}
    rounds = timetable(rails, wanted_rails=None if full else [0], both_directions=full)
    return Verdict([], run_rounds(fabric, rounds), rounds, 0)


def verify(fabric: Fabric, *, full: bool, swept: Verdict | None = None) -> Verdict:
    """A whole verification: the sweep (or the one given), reruns where it left something open, and the guilty parts."""
    swept = swept or sweep(fabric, full=full)
    outcomes = list(swept.outcomes)
    extra = plan_reruns(outcomes, {host: range(fabric.rails) for host in fabric.hosts})
    for again in extra:
        shown = fabric.run_round([Flow(*test) for test in again.tests])
        outcomes += [outcome(fabric, test, seen, again.alone) for test, seen in zip(again.tests, shown, strict=True)]
    return Verdict(diagnose(outcomes), outcomes, swept.rounds, len(extra))


def plant(rng: random.Random, fabric: Fabric, taken: Sequence[str] = (), *, full: bool = True) -> Fault:
    """A random fault of a random kind that concerns none of the hosts ``taken``."""
    free = [host for host in fabric.hosts if host not in taken]
    host, rail = rng.choice(free), rng.randrange(fabric.rails) if full else 0
    kinds = [
        "host_words",
        "host_silent",
        "nic_words",
        "nic_cap",
        "cable_out",
        "cable_in",
        "cable",
        "cable_lossy",
        "path",
    ]
    if fabric.rails > 1:
        kinds.append("host_slow")
    if len(fabric.hosts) > fabric.leaf_size and len(fabric.hosts) % fabric.leaf_size != 1:
        kinds += ["group_cut", "group_slow", "oversubscription"]
    kind = rng.choice(kinds)
    if kind == "host_words":
        return HostFault(host, rng.choice(HOST_WORDS))
    if kind == "host_silent":
        return HostFault(host, "fabric_drop")
    if kind == "host_slow":
        return HostFault(host, factor=rng.uniform(0.2, 0.85))
    if kind == "nic_words":
        return NicFault(host, rail, rng.choice(NIC_WORDS))
    if kind == "nic_cap":
        return NicFault(host, rail, factor=rng.choice((0.24, 0.48, 0.6)))
    if kind.startswith("cable"):
        role = {"cable_out": "client", "cable_in": "server"}.get(kind)
        return CableFault(host, rail, role, lossy=kind == "cable_lossy" or rng.random() < 0.3)
    if kind == "path":
        return PathFault(host, rng.choice([name for name in free if name != host]))
    if kind == "oversubscription":
        return Oversubscription(flows=max(1.0, rng.uniform(0.3, 0.6) * fabric.leaf_size))
    leaf = rng.randrange((len(fabric.hosts) + fabric.leaf_size - 1) // fabric.leaf_size)
    plane = rng.choice([None, rail])
    return GroupFault(leaf, plane, 0.0 if kind == "group_cut" else rng.uniform(0.1, 0.8))


def hosts_of(fabric: Fabric, fault: Fault) -> tuple[str, ...]:
    """The hosts that a fault concerns by name."""
    if isinstance(fault, PathFault):
        return fault.first, fault.second
    if isinstance(fault, (HostFault, NicFault, CableFault)):
        return (fault.host,)
    if isinstance(fault, GroupFault):
        return tuple(host for host in fabric.hosts if fabric.leaf(host) == fault.leaf)
    return ()


def sides_of(fabric: Fabric, fault: Fault) -> tuple[set[str], ...]:
    """The sets of hosts that name a fault rightly: of a cut no test tells which side is the cut-off one."""
    hosts = set(hosts_of(fabric, fault))
    return (hosts, set(fabric.hosts) - hosts) if isinstance(fault, GroupFault) else (hosts,)


def names_it(fabric: Fabric, fault: Fault, part: Guilty) -> bool:
    """Whether a guilty part is the planted fault: its kind and its place.

    What no test can tell apart counts as the same: on a fabric of one rail a silent host, NIC and cable, where
    ``host`` is the word for all; which side of a cut is the cut-off one; and on which side of it a host stands that
    no test reaches.
    """
    hosts = set(hosts_of(fabric, fault))
    one_rail = fabric.rails == 1
    if isinstance(fault, Oversubscription):
        return part.kind == culprit.OVERSUBSCRIPTION
    if isinstance(fault, GroupFault):
        lost = {host for other in fabric.faults if other is not fault for host in hosts_of(fabric, other)}
        sides = [side - lost for side in sides_of(fabric, fault)]
        return part.kind == culprit.GROUP and set(part.hosts) - lost in sides and (one_rail or part.rail == fault.rail)
    if isinstance(fault, PathFault):
        return part.kind == culprit.PATH and set(part.hosts) == hosts
    if set(part.hosts) != hosts:
        return False
    if isinstance(fault, HostFault):
        return part.kind == culprit.HOST
    if isinstance(fault, NicFault):
        return part.kind == culprit.NIC and part.rail == fault.rail
    if one_rail and part.kind == culprit.HOST:
        return True
    return part.kind == culprit.CABLE and part.rail == fault.rail and part.role == fault.role


def agree(fabric: Fabric, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the guilty parts in a file of results are the planted faults, each of them and no more."""
    parts = [
        Guilty(row["part"], tuple(row["hosts"]), row["rail"], row["direction"], frozenset(), (), row["share"])
        for row in rows
    ]
    named = [[names_it(fabric, fault, part) for part in parts] for fault in fabric.faults]
    return len(parts) == len(fabric.faults) and all(map(any, named)) and all(map(any, zip(*named, strict=True)))


def observable(fabric: Fabric, swept: Verdict) -> bool:
    """Whether each planted fault shows in the sweep beside the others: without it, other tests would fail.

    A cut that leaves less than two hosts of a side in working order is no group, so that is left out too.
    """

    def bad(outcomes: Sequence[Outcome]) -> set[LinkTest]:
        return {seen.test for seen in outcomes if seen.bad}

    every = bad(swept.outcomes)
    for fault in fabric.faults:
        others = tuple(other for other in fabric.faults if other is not fault)
        without = run_rounds(dataclasses.replace(fabric, faults=others), swept.rounds) if others else []
        if every == bad(without):
            return False
        if isinstance(fault, GroupFault):
            lost = {host for other in others for host in hosts_of(fabric, other)}
            hosts = set(hosts_of(fabric, fault))
            if min(len(hosts - lost), len(set(fabric.hosts) - hosts - lost)) < 2:
                return False
    return True
