# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The extra rounds after a sweep with bad pairs: alone, with the roles swapped, on another rail (host-contract 5.8).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce import culprit
from ansible_collections.lium.cluster.plugins.module_utils._roce.culprit import Guilty, Outcome
from ansible_collections.lium.cluster.plugins.module_utils._roce.quarantine import FEW
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest


class RerunRound(NamedTuple):
    """Tests of disjoint hosts that run at one time. ``alone``: the only test on the whole fabric."""

    tests: tuple[LinkTest, ...]
    alone: bool


def budget(hosts: int) -> int:
    """How many extra rounds a diagnosis may cost: log2(n) + 2."""
    return max(hosts, 2).bit_length() + 1


def plan_reruns(
    outcomes: Sequence[Outcome], rails: Mapping[str, Collection[int]], most: int | None = None
) -> list[RerunRound]:
    """The rounds that tell apart what the sweep leaves open, at most ``most`` (default :func:`budget`).

    ``rails`` gives the rails of each host, measured or not. Without bad tests there is nothing to repeat. Every
    suspect gets a test alone, for only that tells a slow part from a crowded link; a suspect seen on one rail gets
    another rail; one seen in one role only gets the other.
    """
    suspects = culprit.diagnose(outcomes)
    if not suspects:
        return []
    limit = budget(len(rails)) if most is None else most
    sick = {host for part in suspects if part.kind not in (culprit.GROUP, culprit.PATH) for host in part.hosts}
    shared = _disjoint(_other_rails_and_roles(suspects, outcomes, rails, sick))[: max(1, limit - 2)]
    repeats = list(dict.fromkeys(_representatives(suspects, outcomes, sick)))[: limit - len(shared)]
    return [RerunRound((test,), True) for test in repeats] + [RerunRound(tuple(tests), False) for tests in shared]


def resume(outcomes: Sequence[Outcome], left_out: Collection[LinkTest]) -> list[RerunRound]:
    """Rounds for the tests that a quarantine left out too early: those of two hosts that are both in trouble.

    Behind a cut link the hosts of the smaller side fail with all others, and some leave their tests out before they
    have met each other. Whether they are good together is what tells a cut from sick hosts. These rounds are the rest
    of the sweep and come on top of :func:`budget`.
    """
    failed: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        if outcome.bad:
            failed[outcome.test.server].add(outcome.test.client)
            failed[outcome.test.client].add(outcome.test.server)
    troubled = {host for host, peers in failed.items() if len(peers) > FEW}
    tests = sorted(test for test in left_out if troubled.issuperset(test[:2]))
    return [RerunRound(tuple(own), False) for own in _disjoint(tests)]


def _representatives(suspects: Sequence[Guilty], outcomes: Sequence[Outcome], sick: set[str]) -> Iterable[LinkTest]:
    """One test of each suspect, then a second one; slow ones first, since load can explain those."""
    shares = {outcome.test: outcome.share for outcome in outcomes if outcome.bad}
    paths_slow = [part for part in suspects if part.kind == culprit.PATH and part.share is not None]
    others = [part for part in suspects if part not in paths_slow]
    ranked = sorted(others, key=lambda part: part.share is None)
    ordered = ranked[:1] + paths_slow[:1] + ranked[1:] + paths_slow[1:]

    def fitness(part: Guilty, test: LinkTest) -> tuple[bool, float, LinkTest]:
        # A test like the others of its part, so that no second fault speaks through it.
        strangers = [host for host in test[:2] if host not in part.hosts or part.kind in (culprit.PATH, culprit.GROUP)]
        return any(host in sick for host in strangers), abs((shares[test] or 0.0) - (part.share or 0.0)), test

    for place in (0, -1):
        for part in ordered:
            own = sorted(part.tests, key=partial(fitness, part))
            yield own[0 if place == 0 else len(own) // 3]


def _other_rails_and_roles(
    suspects: Sequence[Guilty],
    outcomes: Sequence[Outcome],
    rails: Mapping[str, Collection[int]],
    sick: set[str],
) -> Iterable[LinkTest]:
    """Tests that were not run yet and would narrow a suspect down to a rail or a direction."""
    known = {outcome.test for outcome in outcomes}
    roles = {(test.server, "server") for test in known} | {(test.client, "client") for test in known}
    healthy = [name for name in rails if name not in sick]
    cuts = [set(part.hosts) for part in suspects if part.kind == culprit.GROUP]

    def apart(first: str, second: str) -> bool:
        return any((first in side) != (second in side) for side in cuts)

    for part in suspects:
        if part.kind in (culprit.OVERSUBSCRIPTION, culprit.TRANSIENT):
            continue
        seen = {test.rail for test in known if set(part.hosts) & set(test[:2])}
        wanted: list[LinkTest] = []
        if part.kind == culprit.PATH:
            # The same end in the same role with a third host, where the sweep gave it no other such test.
            for test in part.tests:
                third = [name for name in healthy if name not in test[:2] and test.rail in rails[name]]
                for name in third[-1:]:
                    wanted += [LinkTest(test.server, name, test.rail), LinkTest(name, test.client, test.rail)]
            wanted += _swapped(part)
        if part.kind in (culprit.PATH, culprit.GROUP):
            first = min(part.tests)
            wanted += [LinkTest(*first[:2], rail) for rail in _unseen(rails, first[:2], seen)]
        else:
            host = part.hosts[0]
            others = sorted((name for name in healthy if name != host), key=partial(apart, host))
            pairs = [(host, name) for name in others[:1]] + [(name, host) for name in others[1:2]]
            wanted += [LinkTest(*pair, rail) for pair in pairs for rail in _unseen(rails, pair, seen)]
            if ((host, "server") in roles) != ((host, "client") in roles):
                wanted += _swapped(part)[:1]
        yield from (test for test in wanted if test not in known)


def _unseen(rails: Mapping[str, Collection[int]], pair: Sequence[str], seen: Collection[int]) -> list[int]:
    """A rail that both hosts have and no test of the suspect has used yet: one is enough to tell."""
    return sorted(set(rails[pair[0]]).intersection(rails[pair[1]]).difference(seen))[:1]


def _swapped(part: Guilty) -> list[LinkTest]:
    return [LinkTest(test.client, test.server, test.rail) for test in sorted(part.tests)]


def _disjoint(tests: Iterable[LinkTest]) -> list[list[LinkTest]]:
    """Packs tests into rounds in which no host is twice."""
    rounds: list[list[LinkTest]] = []
    for test in dict.fromkeys(tests):
        for own in rounds:
            if not {host for other in own for host in other[:2]} & set(test[:2]):
                own.append(test)
                break
        else:
            rounds.append([test])
    return rounds
