# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which part is guilty of the pairs that fail: host, NIC, cable or port, a group's link, oversubscription (5.8).

The parts are found as an explanation: a part accounts for a set of tests; it is accepted when all of them went wrong,
and the part that accounts for most is taken first. What is left over after that is a single path, or a load problem.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import CAUSES
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest

HOST = "host"
NIC = "nic"
CABLE = "cable"
GROUP = "group"
OVERSUBSCRIPTION = "oversubscription"
PATH = "path"
TRANSIENT = "transient"

#: Below this share of the ceiling packets are lost and sent again; above it something caps the rate (5.4, hints).
LOSS_SHARE = 0.12
#: Classes that a host's closed test port gives, and only as the server.
_PORT_CLOSED = ("connect", "connect_refused")


class Outcome(NamedTuple):
    """One test that was run. ``share`` is its rate as a share of the ceiling, ``None`` when nothing was carried.

    ``name`` is the class of a failure. ``accused`` is the host whose own end printed a cause that lies with that host.
    ``alone`` says that nothing else ran on the fabric.
    """

    test: LinkTest
    bad: bool
    share: float | None = None
    name: str | None = None
    accused: str | None = None
    alone: bool = False

    @property
    def slow(self) -> bool:
        """Bad, but too much was carried for lost packets: something caps the rate."""
        return self.bad and self.share is not None and self.share >= LOSS_SHARE


class Guilty(NamedTuple):
    """A guilty part and the tests it accounts for.

    ``hosts``: the host; the smaller side of a group; the pair of a path. ``rail`` and ``role`` (``server`` receives,
    ``client`` sends) narrow it; ``None`` means all that were measured. ``names`` are the failure classes seen.
    """

    kind: str
    hosts: tuple[str, ...]
    rail: int | None
    role: str | None
    tests: frozenset[LinkTest]
    names: tuple[str, ...]
    share: float | None


class _Place(NamedTuple):
    """A host's end of tests, the place that an endpoint fault sits at."""

    host: str
    rail: int | None
    role: str | None


def diagnose(outcomes: Sequence[Outcome]) -> list[Guilty]:
    """The guilty parts behind the bad tests, those that account for most first. No bad test: an empty list.

    Give it all tests of the sweep and of the reruns together. Tests that carried next to nothing are explained first,
    and by parts that let nothing else pass; tests that are merely slow after that.
    """
    bad = {outcome.test: outcome for outcome in outcomes if outcome.bad and not outcome.alone}
    alone = {outcome.test: outcome for outcome in outcomes if outcome.alone}
    bad.update({test: outcome for test, outcome in alone.items() if outcome.bad})
    good = {outcome.test for outcome in outcomes if not outcome.bad}
    slow = {test: outcome for test, outcome in bad.items() if outcome.slow}
    broken = {test: outcome for test, outcome in bad.items() if not outcome.slow}
    guilty: list[Guilty] = []
    for wrong, fine in ((broken, good | set(slow)), (slow, good)):
        if not wrong:
            continue
        stage = _Stage(wrong, fine, alone, {test.rail for test in (*bad, *good)})
        guilty += stage.peel()
        sick = {part.hosts[0] for part in guilty if part.kind in (HOST, NIC, CABLE)}
        guilty += stage.leftovers(sick)
    return sorted(guilty, key=lambda part: -len(part.tests))


class _Stage:
    """Tests that went wrong in one way, what contradicts a suspicion, and what is not explained yet."""

    def __init__(
        self, bad: dict[LinkTest, Outcome], fine: set[LinkTest], alone: dict[LinkTest, Outcome], rails: set[int]
    ) -> None:
        self.bad = bad
        self.fine = fine
        self.alone = alone
        self.all_rails = sorted(rails)
        self.open = set(bad)
        self.cleared = {test for test in bad if test in alone and not alone[test].bad}
        self.rails: dict[str, set[int]] = defaultdict(set)
        for test in (*bad, *fine):
            self.rails[test.server].add(test.rail)
            self.rails[test.client].add(test.rail)
        innocent = {place for test in fine for place in _places(test)}
        self._tests: dict[_Place, list[LinkTest]] = defaultdict(list)
        for test, outcome in bad.items():
            for place in _places(test):
                if place not in innocent and outcome.accused in (None, place.host):
                    self._tests[place].append(test)

    def peel(self) -> list[Guilty]:
        """Takes the part that explains most of what is open, until none explains two hosts' worth of tests."""
        guilty = []
        groups = self._groups()
        while self.open:
            best: tuple[int, int, Guilty] | None = None
            for place, tests in self._tests.items():
                fresh = [test for test in tests if test in self.open]
                peers = {test.client if test.server == place.host else test.server for test in fresh}
                if not fresh or not self._enough(place, peers, fresh) or not self._confirmed(tests):
                    continue
                # Of places with the same tests the wider one counts; the kind is told from the tests.
                rank = (len(fresh), (place.rail is None) + (place.role is None))
                if best is None or rank > best[:2]:
                    best = (*rank, self._endpoint(place, tests))
            for group in groups:
                fresh_tests = group.tests & self.open
                if len(fresh_tests) > 1 and (best is None or (len(fresh_tests), 3) > best[:2]):
                    best = (len(fresh_tests), 3, group)
            if best is None:
                break
            guilty.append(best[2])
            self.open -= best[2].tests
        return guilty

    def leftovers(self, sick: Collection[str]) -> list[Guilty]:
        """What no host and no group explains: load, a single path, or something that has passed.

        A path to a host that is ``sick`` already cannot be judged before that host is mended, so it is not accused.
        """
        tests, cleared = set(self.open), self.open & self.cleared
        hosts = {host for test in tests for host in test[:2]}
        slow = any(self.bad[test].slow for test in tests)
        if cleared and (slow or (len(hosts) > 3 and len(tests) > 1)):
            still = {test for test in tests - cleared if test in self.alone}
            load = self._guilty(OVERSUBSCRIPTION, sorted(hosts), None, None, tests - still)
            return [load, *self._paths(still, sick=sick)]
        return [*self._paths(tests - cleared, sick=sick), *self._paths(cleared, TRANSIENT, sick=sick)]

    def _enough(self, place: _Place, peers: set[str], fresh: Sequence[LinkTest]) -> bool:
        """One peer proves nothing against a host, unless the host's own end said that the cause is there."""
        return len(peers) > 1 or any(self.bad[test].accused == place.host for test in fresh)

    def _confirmed(self, tests: Sequence[LinkTest]) -> bool:
        """Where a test came out well alone, load is a rival explanation: only what was seen wrong alone counts then."""
        return not self.cleared or any(test in self.alone for test in tests)

    def _endpoint(self, place: _Place, tests: Sequence[LinkTest]) -> Guilty:
        """Names the part at a host's end, by the words of the failures and by what still works at that host."""
        outcomes = [self.bad[test] for test in tests]
        names = [outcome.name for outcome in outcomes if outcome.name]
        parts = [CAUSES[outcome.name].part for outcome in outcomes if outcome.name and outcome.accused == place.host]
        shares = [outcome.share for outcome in outcomes if outcome.share is not None]
        lossy = not shares or statistics.median(shares) < LOSS_SHARE
        measured = self.rails[place.host]
        whole = place.rail is None and len(measured) > 1
        if parts:
            kind = max(set(parts), key=parts.count) or HOST
        elif (names and all(name in _PORT_CLOSED for name in names) and place.role == "server") or whole:
            kind = HOST
        elif not lossy:
            kind = NIC
        elif place.role is None and not shares and len(measured) == 1:
            # One rail, both ways, nothing carried: no test can tell the host from its NIC or its cable (5.8: "host").
            kind = HOST
        else:
            kind = CABLE
        rail = place.rail if place.rail is not None or whole or kind == HOST else min(measured)
        return self._guilty(kind, [place.host], rail, place.role, tests)

    def _groups(self) -> list[Guilty]:
        """Cuts of the fabric: sets of hosts that are fine among themselves and wrong with all others.

        Looked for on each rail, and on all rails together.
        """
        found: list[Guilty] = []
        for rail in [None, *self.all_rails] if len(self.all_rails) > 1 else [None]:
            within = [test for test in self.fine if rail is None or test.rail == rail]
            sides = [side for side in _components(within) if len(side) > 1]
            if len(sides) < 2:
                continue
            side_of = {host: number for number, side in enumerate(sides) for host in side}
            crossing = [
                test
                for test in self.bad
                if rail in (None, test.rail)
                and side_of.get(test.server, -1) != side_of.get(test.client, -1)
                and test.server in side_of
                and test.client in side_of
            ]
            for side in sorted(sides, key=len)[: len(sides) - 1]:
                tests = [test for test in crossing if (test.server in side) != (test.client in side)]
                if tests and self._confirmed(tests):
                    found.append(self._guilty(GROUP, sorted(side), rail, None, tests))
        return found

    def _paths(self, tests: Iterable[LinkTest], kind: str = PATH, *, sick: Collection[str]) -> list[Guilty]:
        """One entry a pair, with its rail when only one is concerned."""
        by_pair: dict[tuple[str, ...], list[LinkTest]] = defaultdict(list)
        for test in tests:
            if test.server not in sick and test.client not in sick:
                by_pair[tuple(sorted(test[:2]))].append(test)
        guilty = []
        for pair, own in sorted(by_pair.items()):
            rails = {test.rail for test in own}
            guilty.append(self._guilty(kind, pair, rails.pop() if len(rails) == 1 else None, None, own))
        return guilty

    def _guilty(
        self, kind: str, hosts: Sequence[str], rail: int | None, role: str | None, tests: Iterable[LinkTest]
    ) -> Guilty:
        own = frozenset(tests)
        shares = [share for test in own if (share := self.bad[test].share) is not None]
        names = sorted({name for test in own if (name := self.bad[test].name)})
        return Guilty(kind, tuple(hosts), rail, role, own, tuple(names), statistics.median(shares) if shares else None)


def _places(test: LinkTest) -> Iterable[_Place]:
    for host, role in ((test.server, "server"), (test.client, "client")):
        for rail in (None, test.rail):
            yield _Place(host, rail, None)
            yield _Place(host, rail, role)


def _components(tests: Iterable[LinkTest]) -> list[set[str]]:
    """The sets of hosts that good tests join."""
    side_of: dict[str, set[str]] = {}
    for test in tests:
        first = side_of.setdefault(test.server, {test.server})
        second = side_of.setdefault(test.client, {test.client})
        if first is second:
            continue
        small, large = sorted((first, second), key=len)
        large |= small
        for host in small:
            side_of[host] = large
    return list({id(side): side for side in side_of.values()}.values())
