# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts can be sold as one cluster: the largest set in which every pair is proven (host-contract 5.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

#: Seconds that the search for the largest set may take. To 64 hosts it ends well within them, but for odd rings of bad
#: pairs that further bad pairs chain to each other.
BUDGET_S = 5.0


class Sellable(NamedTuple):
    """The set, in the hosts' order.

    ``exact`` is false where the budget ended the search before the proof that no larger set exists; ``at_most`` then
    says how large one could be.
    """

    hosts: tuple[str, ...]
    exact: bool
    at_most: int


class Gain(NamedTuple):
    """A repair and the size of the sellable set after it, the repairs before it included."""

    repair: str
    size: int


def largest_set(
    hosts: Sequence[str],
    good: Collection[frozenset[str]],
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> Sellable:
    """The largest set of hosts whose every pair is in ``good``; a set of one host is no cluster and comes back empty.

    Branch and bound with a colouring of the candidates as the bound. The first descent is a good set already, so the
    budget costs proof and not usefulness. Hosts that no chain of bad pairs links do not limit each other, so each such
    part is searched by itself, small ones first.
    """
    near = _neighbours(hosts, good)
    deadline = clock() + budget_s
    best = at_most = 0
    for part in sorted(_parts(near), key=int.bit_count):
        search = _Search(near, deadline, clock)
        for start in (_greedy(near, part), _greedy_by_removal(near, part)):
            search.offer(start)
        proved = search.run(part)
        best |= search.best
        size = search.best.bit_count()
        at_most += size if proved else max(size, len(_colours(near, part)))
    size = best.bit_count()
    chosen = tuple(host for number, host in enumerate(hosts) if best >> number & 1)
    return Sellable(chosen if size > 1 else (), at_most == size, at_most)


def what_to_fix_first(
    hosts: Sequence[str],
    good: Collection[frozenset[str]],
    mends: Mapping[str, Iterable[frozenset[str]]],
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> list[Gain]:
    """The order of repairs that enlarges the sellable set the fastest.

    ``mends`` gives, for each repair, the pairs that it would make good. Each step takes the repair that gains most
    together with those before it; of equals the one that mends more pairs. Repairs that gain nothing come last.
    """
    left = {repair: set(pairs) for repair, pairs in mends.items()}
    proven = set(good)
    steps: list[Gain] = []
    end = clock() + budget_s
    while left:
        share = max(0.0, end - clock()) / len(left)
        sizes = {
            repair: len(largest_set(hosts, proven | pairs, budget_s=share, clock=clock).hosts)
            for repair, pairs in left.items()
        }
        repair = max(left, key=lambda name: (sizes[name], len(left[name] - proven)))
        proven |= left.pop(repair)
        steps.append(Gain(repair, sizes[repair]))
    return steps


def _neighbours(hosts: Sequence[str], good: Collection[frozenset[str]]) -> list[int]:
    index = {host: number for number, host in enumerate(hosts)}
    near = [0] * len(hosts)
    for pair in good:
        numbers = [index[host] for host in pair if host in index]
        if len(numbers) == 2:
            first, second = numbers
            near[first] |= 1 << second
            near[second] |= 1 << first
    return near


def _parts(near: Sequence[int]) -> Iterable[int]:
    """The hosts in parts: within one, bad pairs link every host with every other; between two, all pairs are good."""
    left = (1 << len(near)) - 1
    while left:
        part, reached = 0, left & -left
        while reached:
            part |= reached
            linked = 0
            for number in _members(reached):
                linked |= left & ~near[number]
            reached = linked & ~part
        left &= ~part
        yield part


def _members(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _greedy(near: Sequence[int], candidates: int) -> int:
    """Takes the host with most proven pairs among the candidates, again and again."""
    chosen = 0
    while candidates:
        best = max(_members(candidates), key=lambda number: (near[number] & candidates).bit_count())
        chosen |= 1 << best
        candidates &= near[best]
    return chosen


def _greedy_by_removal(near: Sequence[int], candidates: int) -> int:
    """Drops the host with most bad pairs among those that are left, until none is bad.

    Good where few hosts are sick.
    """
    left = candidates
    while left:
        worst = min(_members(left), key=lambda number: (near[number] & left).bit_count())
        if (near[worst] & left).bit_count() == left.bit_count() - 1:
            break
        left &= ~(1 << worst)
    return left


def _colours(near: Sequence[int], candidates: int) -> list[int]:
    """Splits the candidates into sets without a proven pair inside; a set of hosts has at most one of each."""
    classes = []
    while candidates:
        free, members = candidates, 0
        while free:
            lowest = free & -free
            members |= lowest
            free &= ~lowest & ~near[lowest.bit_length() - 1]
        classes.append(members)
        candidates &= ~members
    return classes


class _Search:
    """The branch and bound: ``best`` is a bit mask of hosts."""

    def __init__(self, near: Sequence[int], deadline: float, clock: Callable[[], float]) -> None:
        self._near = near
        self._deadline = deadline
        self._clock = clock
        self._ticks = 0
        self.best = 0

    def offer(self, found: int) -> None:
        if found.bit_count() > self.best.bit_count():
            self.best = found

    def run(self, candidates: int) -> bool:
        """Whether the search came to its end."""
        try:
            self._expand(0, candidates)
        except TimeoutError:
            return False
        return True

    def _expand(self, chosen: int, candidates: int) -> None:
        self._ticks += 1
        if self._ticks % 64 == 1 and self._clock() > self._deadline:
            raise TimeoutError
        # Hosts proven with all others that are left belong to some largest set: no need to branch on them.
        certain = 0
        for number in _members(candidates):
            if self._near[number] & candidates == candidates & ~(1 << number):
                certain |= 1 << number
        chosen |= certain
        candidates &= ~certain
        if not candidates:
            self.offer(chosen)
            return
        classes = _colours(self._near, candidates)
        for bound in range(len(classes), 0, -1):
            for number in _members(classes[bound - 1]):
                if chosen.bit_count() + bound <= self.best.bit_count():
                    return
                self._expand(chosen | 1 << number, candidates & self._near[number])
                candidates &= ~(1 << number)
