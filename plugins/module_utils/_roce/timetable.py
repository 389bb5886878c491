# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Who measures whom, and when: the timetable of a pair verification (host-contract 5.5).

A *round* is a set of meetings that may run at the same time, so no host is in two meetings of a round. The tests of a
meeting (rails, directions) run one after the other. Everything here is pure.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class LinkTest(NamedTuple):
    """One run of perftest: data flows from ``client`` to ``server``, over the rail of this index on both hosts."""

    server: str
    client: str
    rail: int


class Meeting(NamedTuple):
    """Two hosts and the tests they run with each other in one round, in this order."""

    server: str
    client: str
    tests: tuple[LinkTest, ...]


Round = list[Meeting]


def circle(hosts: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Every unordered pair exactly once, as ``(server, client)``, in as few rounds as there can be.

    ``n - 1`` rounds for even ``n``; for odd ``n`` a bye is added, so ``n`` rounds with one host idle in each. Each
    host is the server in half of its pairs: the earlier of two hosts where their places have an even sum, else the
    later. (Roles that change with the round, as 5.5 has them, would leave a host in one role at five and six hosts.)
    """
    if len(set(hosts)) != len(hosts):
        raise ValueError(f"host named twice: {', '.join(sorted({name for name in hosts if hosts.count(name) > 1}))}")
    seats: list[int | None] = list(range(len(hosts)))
    if len(seats) % 2:
        seats.append(None)
    rounds = []
    for _ in range(len(seats) - 1):
        pairs = []
        for left, right in zip(seats[: len(seats) // 2], reversed(seats), strict=False):
            if left is None or right is None:
                continue
            first, second = min(left, right), max(left, right)
            server, client = (first, second) if (first + second) % 2 == 0 else (second, first)
            pairs.append((hosts[server], hosts[client]))
        rounds.append(pairs)
        seats[1:] = [seats[-1], *seats[1:-1]]  # the first seat stays, the others move on by one
    return rounds


def pack(meetings: Iterable[Meeting]) -> list[Round]:
    """Puts each meeting into the first round in which both hosts are free.

    Fed in the order of :func:`circle` it never needs more rounds than the full timetable, and at most ``2d - 1`` when
    no host has more than ``d`` meetings.
    """
    busy: dict[str, int] = {}
    rounds: list[Round] = []
    for meeting in meetings:
        taken = busy.get(meeting.server, 0) | busy.get(meeting.client, 0)
        number = (~taken & (taken + 1)).bit_length() - 1
        for host in (meeting.server, meeting.client):
            busy[host] = busy.get(host, 0) | 1 << number
        while len(rounds) <= number:
            rounds.append([])
        rounds[number].append(meeting)
    return rounds


def timetable(
    rails: Mapping[str, Collection[int]],
    *,
    wanted_rails: Collection[int] | None = None,
    both_directions: bool = False,
    proven: Collection[LinkTest] = (),
) -> list[Round]:
    """The rounds that measure what is not yet proven.

    ``rails`` gives each host's rail indexes, in the order in which the hosts are to meet. A rail is measured between
    two hosts that both have it; ``wanted_rails=None`` means all. With ``both_directions`` each direction is a test of
    its own, otherwise a test proves its pair whichever end was the server. Hosts without a common wanted rail do not
    meet.
    """
    done = set(proven)
    if not both_directions:
        done |= {LinkTest(test.client, test.server, test.rail) for test in proven}
    meetings = []
    for number in circle(list(rails)):
        for server, client in number:
            common = sorted(set(rails[server]) & set(rails[client]))
            tests = [
                test
                for rail in common
                if wanted_rails is None or rail in wanted_rails
                for test in (LinkTest(server, client, rail), LinkTest(client, server, rail))[
                    : 2 if both_directions else 1
                ]
                if test not in done
            ]
            if tests:
                meetings.append(Meeting(server, client, tuple(tests)))
    return pack(meetings)
