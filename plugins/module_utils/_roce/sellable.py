# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts can be sold as one cluster: the largest set in which every pair is proven (host-contract 5.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

#: Seconds that the search for the largest set may take. To 64 hosts it takes about a tenth of one for the hardest bad
#: pairs that were found (test_sellable.py).
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
    """A repair and the size of the sellable set after it, the repairs before it included.

    Where ``exact`` is false the budget ended the search, and the set may be larger.
    """

    repair: str
    size: int
    exact: bool


def largest_set(
    hosts: Sequence[str],
    good: Collection[frozenset[str]],
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> Sellable:
    """The largest set of hosts whose every pair is in ``good``; a set of one host is no cluster and comes back empty.

    Branch and bound over the bad pairs (see :class:`_Search`). It starts from a set that is good already, so the budget
    costs proof and not usefulness.
    """
    bad = _bad_pairs(hosts, good)
    deadline = clock() + budget_s
    best = at_most = 0
    for part in sorted(_parts(bad, (1 << len(hosts)) - 1), key=int.bit_count):
        search = _Search(bad, deadline, clock)
        for start in (_greedy(bad, part), _greedy_by_removal(bad, part)):
            search.offer(start)
        proved = search.run(part)
        best |= search.best
        size = search.best.bit_count()
        at_most += size if proved else max(size, _bound(bad, part))
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
        found = {
            repair: largest_set(hosts, proven | pairs, budget_s=share, clock=clock) for repair, pairs in left.items()
        }
        repair = max(left, key=lambda name: (len(found[name].hosts), len(left[name] - proven)))
        proven |= left.pop(repair)
        steps.append(Gain(repair, len(found[repair].hosts), found[repair].exact))
    return steps


def _bad_pairs(hosts: Sequence[str], good: Collection[frozenset[str]]) -> list[int]:
    """For each host a bit mask of those with which it has no proven pair."""
    index = {host: number for number, host in enumerate(hosts)}
    bad = [(1 << len(hosts)) - 1 ^ 1 << number for number in range(len(hosts))]
    for pair in good:
        numbers = [index[host] for host in pair if host in index]
        if len(numbers) == 2:
            first, second = numbers
            bad[first] &= ~(1 << second)
            bad[second] &= ~(1 << first)
    return bad


def _parts(bad: Sequence[int], left: int) -> Iterable[int]:
    """The hosts in parts: within one, bad pairs link every host with every other; between two, all pairs are good."""
    while left:
        part, reached = 0, left & -left
        while reached:
            part |= reached
            linked = 0
            for number in _members(reached):
                linked |= bad[number]
            reached = linked & left & ~part
        left &= ~part
        yield part


def _members(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _greedy(bad: Sequence[int], candidates: int) -> int:
    """Takes the host with fewest bad pairs among the candidates, again and again."""
    chosen = 0
    while candidates:
        best = min(_members(candidates), key=lambda number: (bad[number] & candidates).bit_count())
        chosen |= 1 << best
        candidates &= ~(bad[best] | 1 << best)
    return chosen


def _greedy_by_removal(bad: Sequence[int], candidates: int) -> int:
    """Drops the host with most bad pairs among those that are left, until none is bad.

    Good where few hosts are sick.
    """
    left = candidates
    while left:
        worst = max(_members(left), key=lambda number: (bad[number] & left).bit_count())
        if not bad[worst] & left:
            break
        left &= ~(1 << worst)
    return left


def _bound(bad: Sequence[int], candidates: int) -> int:
    """What no good set among the candidates exceeds: they are split into groups in which no two hosts go together."""
    groups = 0
    while candidates:
        groups += 1
        free = candidates
        while free:
            lowest = free & -free
            candidates ^= lowest
            free &= bad[lowest.bit_length() - 1]
    return groups


class _Search:
    """The branch and bound: ``best`` is a bit mask of hosts, the largest good set so far.

    It looks for a maximum independent set of the graph of bad pairs, which is a maximum clique of the good ones. Where
    few pairs are bad, hosts that some largest set has are taken without a branch and the rest soon falls into parts;
    where many are, the bound cuts.
    """

    def __init__(self, bad: Sequence[int], deadline: float, clock: Callable[[], float]) -> None:
        self._bad = bad
        self._deadline = deadline
        self._clock = clock
        self.best = 0

    def offer(self, found: int) -> None:
        if found.bit_count() > self.best.bit_count():
            self.best = found

    def run(self, candidates: int) -> bool:
        """Whether the search came to its end."""
        try:
            self._largest(0, candidates, self.best.bit_count())
        except TimeoutError:
            return False
        return True

    def _largest(self, kept: int, candidates: int, floor: int) -> int:
        """The largest good set among the candidates if it has more than ``floor`` hosts, else none or a smaller one.

        ``kept`` are hosts that go with every candidate.
        """
        best = taken = 0
        while True:
            if self._clock() > self._deadline:
                raise TimeoutError
            certain, candidates, worst = self._certain(candidates)
            taken |= certain
            room = floor - taken.bit_count()
            parts = list(_parts(self._bad, candidates))
            if len(parts) != 1:
                found = taken | self._largest_of_parts(kept | taken, parts, room)
                self.offer(kept | found)
                return max(best, found, key=int.bit_count)
            if _bound(self._bad, candidates) <= room:
                return best
            found = taken | 1 << worst
            found |= self._largest(kept | found, candidates & ~(self._bad[worst] | found), room - 1)
            self.offer(kept | found)
            best = max(best, found, key=int.bit_count)
            floor = max(floor, best.bit_count())
            candidates &= ~(1 << worst)

    def _largest_of_parts(self, kept: int, parts: Iterable[int], floor: int) -> int:
        """As :meth:`_largest`, for candidates in parts that do not limit each other: each is searched by itself."""
        bounds = sorted((_bound(self._bad, part), part) for part in parts)
        spare = sum(bound for bound, _ in bounds) - floor
        found = 0
        for bound, part in bounds:
            if spare <= 0:
                return 0
            one = self._largest(kept | found, part, bound - spare)
            found |= one
            spare -= bound - one.bit_count()
        return found

    def _certain(self, candidates: int) -> tuple[int, int, int]:
        """Hosts that some largest set has, the candidates that are left, and the one of these with most bad pairs.

        Certain is who has no bad pair, or one, or two whose other ends do not go together either: at most one of them
        all can be chosen, and he costs nobody else.
        """
        certain, changed = 0, True
        worst = most = 0
        while changed:
            changed = False
            worst = most = 0
            for number in _members(candidates):
                if not candidates >> number & 1:
                    continue
                peers = self._bad[number] & candidates
                count = peers.bit_count()
                if count < 2 or (count == 2 and self._bad[peers.bit_length() - 1] & peers):
                    certain |= 1 << number
                    candidates &= ~(peers | 1 << number)
                    changed = changed or count > 0
                elif count > most:
                    worst, most = number, count
        return certain, candidates, worst
