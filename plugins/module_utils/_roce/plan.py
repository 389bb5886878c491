# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of each host's agent, from the timetable or from the rounds of a rerun.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import Limits
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import RerunRound
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest, Meeting, Round

#: The agents' own TCP port on the fabric, below the ports of the tests.
CONTROL_PORT = 18614


class Options(NamedTuple):
    """What holds for all hosts of a run. ``budget_s=None`` is the number of rounds times the limit of one test."""

    run: str
    settings: Settings = Settings()
    limits: Limits = Limits()
    control_port: int = CONTROL_PORT
    budget_s: float | None = None
    start_wait_s: float = 120.0


def sweep_plans(options: Options, rails: Mapping[str, Sequence[RailAt]], rounds: Sequence[Round]) -> dict[str, Any]:
    """The plan of each host that has a meeting. A host that fails with all of its first peers leaves the rest out."""
    after = max(4, len(rails).bit_length() + 1)
    numbered = [(number, meeting, False) for number, meetings in enumerate(rounds) for meeting in meetings]
    return _plans(options, rails, numbered, len(rounds), quarantine_after=after, serial=())


def rerun_plans(
    options: Options, rails: Mapping[str, Sequence[RailAt]], rounds: Sequence[RerunRound]
) -> dict[str, Any]:
    """The plan of each host in a rerun: the rounds do not overlap, limits are not shortened, and nobody is left out."""
    numbered = [
        (number, Meeting(test.server, test.client, (test,)), again.alone)
        for number, again in enumerate(rounds)
        for test in again.tests
    ]
    hosts = [sorted({host for test in again.tests for host in test[:2]}) for again in rounds]
    return _plans(options, rails, numbered, len(rounds), quarantine_after=0, serial=hosts)


class Incast(NamedTuple):
    """One load of the counter proof: all ``senders`` to one port of the receiver, over the rail of this index."""

    receiver: str
    rail: int
    senders: tuple[str, ...]


def incasts(rails: Mapping[str, Sequence[RailAt]]) -> list[Incast]:
    """All others to one, once a port, for the hosts of one segment. A rail that nobody else has takes no part."""
    most = max(map(len, rails.values()), default=0)
    every = [
        Incast(host, rail, tuple(peer for peer in rails if peer != host and rail < len(rails[peer])))
        for rail in range(most)
        for host in rails
        if rail < len(rails[host])
    ]
    return [incast for incast in every if incast.senders]


def incast_plans(options: Options, rails: Mapping[str, Sequence[RailAt]], planned: Sequence[Incast]) -> dict[str, Any]:
    """The plan of each host of one segment: one incast a round.

    All who have the rail take part in each round, so that no two incasts run at the same time.
    """
    numbered = [
        (number, Meeting(receiver, sender, (LinkTest(receiver, sender, rail),)), False)
        for number, (receiver, rail, senders) in enumerate(planned)
        for sender in senders
    ]
    return _plans(options, rails, numbered, len(planned), quarantine_after=0, serial=())


def _plans(
    options: Options,
    rails: Mapping[str, Sequence[RailAt]],
    meetings: Sequence[tuple[int, Meeting, bool]],
    rounds: int,
    *,
    quarantine_after: int,
    serial: Sequence[Sequence[str]],
) -> dict[str, Any]:
    tests = max((len(meeting.tests) for _, meeting, _ in meetings), default=0)
    spent = options.limits.test_s * max(1, rounds * tests) + options.start_wait_s
    own: dict[str, list[Any]] = {}
    for number, meeting, alone in meetings:
        row = [number, meeting.server, meeting.client, [list(test) for test in meeting.tests], alone]
        own.setdefault(meeting.server, []).append(row)
        own.setdefault(meeting.client, []).append(row)
    hosts = {host: [rail._asdict() for rail in rails[host]] for host in own}
    common = {
        "run": options.run,
        "control_port": options.control_port,
        "limits": options.limits._asdict(),
        "budget_s": spent if options.budget_s is None else options.budget_s,
        "start_wait_s": options.start_wait_s,
        "quarantine_after": quarantine_after,
        "shorten": quarantine_after > 0,
        "settings": options.settings._asdict(),
        "hosts": hosts,
        "rounds": [list(names) for names in serial],
    }
    return {host: {**common, "host": host, "appointments": rows} for host, rows in own.items()}
