"""The sellable set against brute force, its budget, and the order of repairs."""

from __future__ import annotations

import itertools
import random

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.sellable import largest_set, what_to_fix_first
from hypothesis import given, settings
from hypothesis import strategies as st

Pairs = set[frozenset[str]]


def names(n: int) -> list[str]:
    return [f"gpu{number:02}" for number in range(n)]


def all_pairs(hosts: list[str]) -> Pairs:
    return {frozenset(pair) for pair in itertools.combinations(hosts, 2)}


def some_pairs(n: int, share: float, seed: int) -> Pairs:
    rng = random.Random(seed)
    return {pair for pair in sorted(all_pairs(names(n)), key=sorted) if rng.random() < share}


def brute_force(hosts: list[str], good: Pairs) -> int:
    for size in range(len(hosts), 1, -1):
        if any(all_pairs(list(some)) <= good for some in itertools.combinations(hosts, size)):
            return size
    return 0


@given(st.integers(0, 9), st.data())
@settings(max_examples=150, deadline=None)
def test_as_large_as_brute_force_finds(n: int, data: st.DataObject) -> None:
    every = sorted(all_pairs(names(n)), key=sorted)
    good = set(data.draw(st.lists(st.sampled_from(every), unique=True))) if every else set()
    found = largest_set(names(n), good)
    assert found.exact
    assert all_pairs(list(found.hosts)) <= good
    assert len(found.hosts) == brute_force(names(n), good)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.9, 0.95, 0.98])
def test_exact_to_64_hosts_within_the_budget(share: float) -> None:
    for seed in range(3):
        found = largest_set(names(64), some_pairs(64, share, seed))
        assert found.exact
        assert found.at_most == len(found.hosts)


@pytest.mark.parametrize("ring", [3, 5, 7])
def test_exact_where_bad_pairs_form_rings(ring: int) -> None:
    """Of each odd ring of bad pairs just under a half can be sold; no colouring tells that, so the bound is loose."""
    hosts = names(63)
    rings = [hosts[first : first + ring] for first in range(0, len(hosts) // ring * ring, ring)]
    bad = {frozenset((own[place - 1], own[place])) for own in rings for place in range(ring)}
    found = largest_set(hosts, all_pairs(hosts) - bad, budget_s=1.0)
    assert found.exact
    assert len(found.hosts) == len(rings) * (ring // 2) + len(hosts) % ring
    assert not any(pair <= set(found.hosts) for pair in bad)


def test_one_sick_host_is_left_out() -> None:
    hosts = names(40)
    good = {pair for pair in all_pairs(hosts) if "gpu07" not in pair}
    assert largest_set(hosts, good).hosts == tuple(host for host in hosts if host != "gpu07")


def test_when_the_budget_ends_the_set_is_good_and_says_so() -> None:
    ticks = itertools.count()
    good = some_pairs(128, 0.9, 1)
    found = largest_set(names(128), good, budget_s=3.0, clock=lambda: float(next(ticks)))
    assert not found.exact
    assert 25 <= len(found.hosts) < found.at_most
    assert all_pairs(list(found.hosts)) <= good


def test_nothing_proven_is_no_cluster() -> None:
    assert largest_set(names(5), set()).hosts == ()
    assert largest_set([], set()).hosts == ()


def test_the_repair_that_sells_most_comes_first() -> None:
    hosts = names(8)
    bad_host = {pair for pair in all_pairs(hosts) if "gpu00" in pair}
    left, right = set(hosts[:4]), set(hosts[4:])
    cut = {frozenset((a, b)) for a in left for b in right}
    path = {frozenset(("gpu05", "gpu06"))}
    good = all_pairs(hosts) - bad_host - cut - path
    assert len(largest_set(hosts, good).hosts) == 3
    steps = what_to_fix_first(hosts, good, {"gpu00": bad_host, "uplink": cut, "path": path})
    assert [(step.repair, step.size) for step in steps] == [("uplink", 6), ("gpu00", 7), ("path", 8)]
