"""The sellable set against brute force, its budget, and the order of repairs."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.sellable import (
    BUDGET_S,
    largest_set,
    what_to_fix_first,
)
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T")
Pairs = set[frozenset[str]]
#: Bad pairs, by the hosts' numbers.
Graph = list[tuple[int, int]]


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


def joined(vertices: Iterable[T], bad: Callable[[T, T], bool]) -> Graph:
    """The graph whose edges are the pairs of which ``bad`` says so."""
    return [(a, b) for (a, one), (b, two) in itertools.combinations(enumerate(vertices), 2) if bad(one, two)]


def chain_of_rings(n: int, ring: int, links: int, rng: random.Random) -> Graph:
    """Of each odd ring of bad pairs just under a half can be sold, which no colouring tells; ``links`` chain them."""
    rings = [range(first, first + ring) for first in range(0, n // ring * ring, ring)]
    own = [(one[place - 1], one[place]) for one in rings for place in range(ring)]
    return own + [(rng.choice(a), rng.choice(b)) for a, b in itertools.pairwise(rings) for _ in range(links)]


def regular(n: int, degree: int, rng: random.Random) -> Graph:
    left, graph = dict.fromkeys(range(n), degree), set()
    for a, b in (rng.sample(range(n), 2) for _ in range(20 * n * degree)):
        if left[a] and left[b] and (a, b) not in graph and (b, a) not in graph:
            graph.add((a, b))
            left[a], left[b] = left[a] - 1, left[b] - 1
    return sorted(graph)


def residues(prime: int, power: int) -> Graph:
    """A Paley-like graph: hosts whose distance is a residue, on the circle of a prime."""
    powers = {pow(number, power, prime) for number in range(1, prime)}
    return joined(range(prime), lambda a, b: (a - b) % prime in powers or (b - a) % prime in powers)


def torus(*sides: int, near: Callable[[list[int]], bool]) -> Graph:
    def bad(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
        return near([min((a - b) % side, (b - a) % side) for a, b, side in zip(one, two, sides, strict=True)])

    return joined(itertools.product(*map(range, sides)), bad)


def hard_graphs(n: int) -> Iterator[tuple[str, Graph]]:
    """Bad pairs that are hard on one kind of search or another, on at most ``n`` hosts."""
    rng = random.Random(n)
    for ring in (3, 5, 7, 9, 13):
        for links in (0, 1, 2, 3):
            yield f"rings of {ring}, {links} links", chain_of_rings(n, ring, links, rng)
    for degree in (2, 3, 4, 5, 6, 7, 8, 10, 12):
        yield f"regular {degree}", regular(n, degree, rng)
    for percent in (1, 2, 4, 6, 8, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 98):
        yield f"random {percent} %", joined(range(n), lambda *_, share=percent / 100: rng.random() < share)
    for size in (7, 9, 16, 21, 32):
        whole = joined(range(n), lambda a, b, size=size: a // size == b // size)
        yield f"parts of {size}", rng.sample(whole, len(whole) * 2 // 5)
    prime = max(number for number in range(5, n + 1) if all(number % by for by in range(2, number)))
    for power in (2, 3, 4, 5, 6, 10, 12):
        yield f"residues of power {power} to {prime}", residues(prime, power)
    side = math.isqrt(n)
    yield "rook", torus(side, side, near=lambda far: 0 in far)
    yield "king", torus(side - 1, n // (side - 1), near=lambda far: max(far) == 1)
    edge = round(n ** (1 / 3))
    yield "rook of three dimensions", torus(edge, edge, edge, near=lambda far: far.count(0) == 2)
    yield "grid of three dimensions", torus(edge, edge, edge, near=lambda far: sum(far) == 1)


def as_pairs(n: int, graph: Graph, rng: random.Random) -> tuple[list[str], Pairs]:
    """Hosts, and the pairs of them that are good: all but those of the graph, whose order is shuffled away."""
    hosts = names(n)
    places = rng.sample(hosts, n)
    return hosts, all_pairs(hosts) - {frozenset((places[a], places[b])) for a, b in graph}


def plain_search(hosts: list[str], good: Pairs) -> int:
    """The largest set by nothing but branching on the host with most bad pairs."""
    bad = {host: {peer for peer in hosts if peer != host and frozenset((host, peer)) not in good} for host in hosts}

    def largest(left: frozenset[str]) -> int:
        worst = max(left, key=lambda host: len(bad[host] & left), default=None)
        if worst is None or not bad[worst] & left:
            return len(left)
        with_it = 1 + largest(left - bad[worst] - {worst})
        return max(with_it, largest(left - {worst})) if len(bad[worst] & left) > 1 else with_it

    return largest(frozenset(hosts))


def test_as_large_as_a_plain_search_finds() -> None:
    for name, graph in hard_graphs(27):
        hosts, good = as_pairs(27, graph, random.Random(name))
        found = largest_set(hosts, good)
        assert found.exact, name
        assert all_pairs(list(found.hosts)) <= good, name
        assert len(found.hosts) == plain_search(hosts, good), name


def test_exact_to_64_hosts() -> None:
    """With a fifth of the budget, in CPU time: what else the machine does is not to count."""
    for name, graph in hard_graphs(64):
        hosts, good = as_pairs(64, graph, random.Random(name))
        found = largest_set(hosts, good, budget_s=BUDGET_S / 5, clock=time.process_time)
        assert found.exact, name
        assert found.at_most == len(found.hosts), name
        assert all_pairs(list(found.hosts)) <= good, name


@pytest.mark.parametrize(
    ("graph", "size"),
    [
        (residues(61, 2), 5),  # the clique number of Paley's graph of 61, which is its own complement
        (torus(7, 9, near=lambda far: max(far) == 1), 13),  # floor(7/2 * floor(9/2)): strong product of odd cycles
        (torus(*[2] * 6, near=lambda far: sum(far) == 1), 32),
        (joined(itertools.combinations(range(11), 2), lambda a, b: not set(a) & set(b)), 10),  # Erdos, Ko, Rado
        (joined(itertools.combinations(range(11), 2), lambda a, b: bool(set(a) & set(b))), 5),  # a matching
    ],
)
def test_as_large_as_theory_says(graph: Graph, size: int) -> None:
    count = 1 + max(b for _, b in graph)
    hosts, good = as_pairs(count, graph, random.Random(size))
    found = largest_set(hosts, good)
    assert (len(found.hosts), found.exact) == (size, True)


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
    (step,) = what_to_fix_first(
        names(128), good, {"all of one": {frozenset(("gpu00", host)) for host in names(128)[1:]}}, budget_s=0.0
    )
    assert not step.exact


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
    assert [tuple(step) for step in steps] == [("uplink", 6, True), ("gpu00", 7, True), ("path", 8, True)]
