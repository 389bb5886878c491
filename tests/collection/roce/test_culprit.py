"""The guilty part, found on the fabric model with faults planted in it."""

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce import culprit
from ansible_collections.lium.cluster.plugins.module_utils._roce.culprit import Outcome, diagnose
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import CAUSES
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import budget, plan_reruns
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest

from tools.rehearsal.fabric import (
    CableFault,
    Fabric,
    Fault,
    GroupFault,
    HostFault,
    NicFault,
    Oversubscription,
    PathFault,
)
from tools.rehearsal.faults import KINDS, make_fault
from tools.rehearsal.simulation import (
    Verdict,
    agree,
    hosts_of,
    names_it,
    observable,
    plant,
    sides_of,
    sweep,
    verify,
)


def fabric(n: int, rails: int = 1, leaf: int = 4, *faults: Fault, seed: int = 0) -> Fabric:
    return Fabric([f"gpu{number:02}" for number in range(n)], rails, 200.0, leaf, faults, seed)


def planted(seed: int) -> tuple[Fabric, bool]:
    """A fabric of 4 to 12 hosts with one or two faults, and whether the sweep is a full one."""
    rng = random.Random(seed)
    n = rng.choice([4, 5, 6, 7, 8, 8, 9, 10])
    rails = rng.choice([1, 2, 2, 4]) if n < 9 else rng.choice([1, 2])
    full = rng.random() < 0.6
    bare = fabric(n, rails, rng.choice([2, 3, 4]), seed=seed)
    faults: list[Fault] = []
    for _ in range(1 if n < 5 else rng.choice([1, 2])):
        taken = [host for fault in faults for host in hosts_of(bare, fault)]
        if len(taken) <= n - 2:
            faults.append(plant(rng, bare, taken, full=full))
    return fabric(n, rails, bare.leaf_size, *faults, seed=seed), full


def is_right(sick: Fabric, verdict: Verdict) -> bool:
    """Each planted fault is named with kind and place, nothing else is accused, and the reruns kept their budget."""
    return (
        len(verdict.guilty) == len(sick.faults)
        and all(any(names_it(sick, fault, part) for part in verdict.guilty) for fault in sick.faults)
        and verdict.extra_rounds <= math.log2(len(sick.hosts)) + 2
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_single_and_double_faults() -> None:
    right = wrong = 0
    missed: list[int] = []
    seed = -1
    while right + wrong < 10_000:
        seed += 1
        sick, full = planted(seed)
        swept = sweep(sick, full=full)
        if not observable(sick, swept):
            continue
        if is_right(sick, verify(sick, full=full, swept=swept)):
            right += 1
        else:
            wrong += 1
            missed.append(seed)
    assert seed < 10_700, "too many of the planted faults hide one another"
    assert right >= 9_900, f"{right} of 10000 right; wrong with the seeds {missed[:20]}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("full", [True, False])
def test_larger_fabrics(seed: int, full: bool) -> None:
    bare = fabric(32 if full else 48, 2, 8, seed=seed)
    sick = fabric(len(bare.hosts), 2, 8, plant(random.Random(seed), bare, full=full), seed=seed)
    swept = sweep(sick, full=full)
    if observable(sick, swept):
        assert is_right(sick, verify(sick, full=full, swept=swept)), sick.faults


@pytest.mark.parametrize("n", [2, 3, 8, 33])
def test_a_healthy_fabric_accuses_nobody_and_repeats_nothing(n: int) -> None:
    verdict = verify(fabric(n, 2), full=True)
    assert (verdict.guilty, verdict.extra_rounds) == ([], 0)


@pytest.mark.parametrize(
    ("fault", "kind", "rail", "role"),
    [
        (HostFault("gpu03", "memlock"), culprit.HOST, None, None),
        (HostFault("gpu03", "connect"), culprit.HOST, None, "server"),
        (HostFault("gpu03", "fabric_drop"), culprit.HOST, None, None),
        (NicFault("gpu03", 1, "no_device"), culprit.NIC, 1, None),
        (NicFault("gpu03", 1, factor=0.48), culprit.NIC, 1, None),
        (CableFault("gpu03", 1), culprit.CABLE, 1, None),
        (CableFault("gpu03", 1, "server", lossy=True), culprit.CABLE, 1, "server"),
        (GroupFault(1), culprit.GROUP, None, None),
        (GroupFault(1, 1, 0.4), culprit.GROUP, 1, None),
        (PathFault("gpu00", "gpu07"), culprit.PATH, None, None),
        (Oversubscription(2.0), culprit.OVERSUBSCRIPTION, None, None),
    ],
)
def test_each_kind_of_part_is_named(fault: Fault, kind: str, rail: int | None, role: str | None) -> None:
    sick = fabric(12, 2, 4, fault)
    (part,) = verify(sick, full=True).guilty
    assert (part.kind, part.rail, part.role) == (kind, rail, role)
    assert kind == culprit.OVERSUBSCRIPTION or set(part.hosts) == set(hosts_of(sick, fault))


def test_the_platforms_sweep_looks_at_another_rail_before_it_accuses_a_host() -> None:
    one_rail = fabric(8, 4, 4, CableFault("gpu02", 0))
    (part,) = verify(one_rail, full=False).guilty
    assert (part.kind, part.rail) == (culprit.CABLE, 0)
    (part,) = verify(fabric(8, 4, 4, HostFault("gpu02", "fabric_drop")), full=False).guilty
    assert (part.kind, part.rail) == (culprit.HOST, None)


def test_what_passes_when_repeated_is_no_fault() -> None:
    pair = LinkTest("a", "b", 0)
    good = [Outcome(LinkTest(*names, 0), False, 0.98) for names in (("a", "c"), ("c", "b"), ("d", "a"), ("d", "b"))]
    once = [*good, Outcome(pair, True, None, "hang")]
    assert [part.kind for part in diagnose(once)] == [culprit.PATH]
    assert [part.kind for part in diagnose([*once, Outcome(pair, False, 0.98, alone=True)])] == [culprit.TRANSIENT]
    assert [part.kind for part in diagnose([*once, Outcome(pair, True, None, "hang", alone=True)])] == [culprit.PATH]


def test_two_hosts_alone_cannot_accuse_one_of_them_without_its_own_words() -> None:
    pair = LinkTest("a", "b", 0)
    assert [part.kind for part in diagnose([Outcome(pair, True, None, "fabric_drop")])] == [culprit.PATH]
    (part,) = diagnose([Outcome(pair, True, None, "memlock", accused="b")])
    assert (part.kind, part.hosts) == (culprit.HOST, ("b",))


@pytest.mark.parametrize("n", range(2, 70))
def test_reruns_keep_their_budget(n: int) -> None:
    assert budget(n) <= math.log2(n) + 2
    rails = {f"h{number}": [0, 1] for number in range(n)}
    every = [Outcome(LinkTest(f"h{i}", f"h{j}", 0), True, None, "hang") for i in range(n) for j in range(i)]
    rounds = plan_reruns(every, rails)
    assert 0 < len(rounds) <= budget(n)
    for again in rounds:
        hosts = [host for test in again.tests for host in test[:2]]
        assert len(hosts) == len(set(hosts))
        assert not again.alone or len(again.tests) == 1


def test_every_class_that_accuses_names_a_known_part() -> None:
    assert {cause.part for cause in CAUSES.values()} <= {culprit.HOST, culprit.NIC, culprit.CABLE, None}


def test_either_side_of_a_cut_names_it() -> None:
    fault = GroupFault(leaf=0, rail=None, factor=0.0)
    fabric = Fabric([f"g{number}" for number in range(6)], 1, leaf_size=3, faults=(fault,))
    assert sides_of(fabric, fault) == ({"g0", "g1", "g2"}, {"g3", "g4", "g5"})
    assert sides_of(fabric, HostFault("g1")) == ({"g1"},)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rails", [1, 2])
def test_a_rehearsal_agrees_with_the_part_that_was_planted_and_with_no_other(kind: str, rails: int) -> None:
    fault = make_fault(kind, fabric(12, rails, 6), random.Random(3))
    sick = fabric(12, rails, 6, fault)
    (row,) = (
        {"part": part.kind, "hosts": list(part.hosts), "rail": part.rail, "direction": part.role, "share": part.share}
        for part in verify(sick, full=rails > 1).guilty
    )
    assert agree(sick, [row])
    assert not agree(sick, [])
    assert not agree(sick, [row, row])
    assert not agree(fabric(12, rails, 6), [row])
    # On one rail no test tells a silent host from its cable, and "host" is the word for both.
    same = {row["part"], *(["host"] if rails == 1 and kind.startswith("cable") else [])}
    for other in {"host", "nic", "cable", "group", "oversubscription", "path", "transient"} - same:
        assert not agree(sick, [{**row, "part": other}])
