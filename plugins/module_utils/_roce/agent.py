# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The agent: runs its host's part of the timetable alone, from the first meeting to the last record.

Each meeting waits for its peer as long as the peer's agent is there; who is gone costs little time, and less once
others have told so. A host whose every test fails leaves its other tests out (quarantine.py).

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ansible_collections.lium.cluster.plugins.module_utils._roce.exchange import Exchange, Link, LinkClosed, Refused
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Appointment, Plan
from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import Loop
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import Bench, Runner
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import FAIL
from ansible_collections.lium.cluster.plugins.module_utils._roce.quarantine import CLIENT, SERVER, Quarantine
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import Ends, not_measured

#: A refused call, or a question that was answered with "not yet", is repeated after the first of these, later the
#: second.
_RETRY_S, _SLOWEST_RETRY_S = 0.2, 1.0
#: A server that waits for its client asks this often whether it is still to come.
_ASK_S = 2.0
#: The host's rental state is looked at again this often, between tests.
_GUARD_S = 10.0
_PAST_ALL = 1 << 30
#: With this many good tests their time sets the limit of the next ones, so that a dead pair costs seconds.
_ENOUGH_GOOD = 3
_SHORTEST_TEST_S = 8.0


def _pauses() -> Iterator[float]:
    pause = _RETRY_S
    while True:
        yield pause
        pause = min(pause * 1.3, _SLOWEST_RETRY_S)


class Gone(Exception):
    """A meeting does not take place; ``name`` is its class in the records, ``host`` whom it failed for."""

    def __init__(self, name: str, host: str, why: str) -> None:
        super().__init__(why)
        self.name = name
        self.host = host


class Guard(Protocol):
    """Looks whether the host may be used for tests."""

    def rented(self) -> str:
        """Why the host may not be used: a rental, or that none could be ruled out. Empty when it may."""

    def probing(self) -> bool:
        """Whether the platform measures right now; asked after :meth:`rented`, of the same look."""


class Agent:
    """One run of one host. ``write`` takes each record as soon as it is there."""

    def __init__(
        self, plan: Plan, loop: Loop, bench: Bench, guard: Guard, write: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Opens the agent's own port on the fabric. Raises ``OSError`` when it cannot."""
        self._plan = plan
        self._loop = loop
        self._bench = bench
        self._guard = guard
        self._write = write
        self._call_s = plan.limits.patience_s / 5
        self._runner = Runner(loop, bench, plan.settings)
        self._started = loop.clock()
        self._deadline = self._started + plan.budget_s
        self._guarded = self._started
        self._at = -1
        self._state = "running"
        #: Why the run ended early, where that needs more than a word.
        self.why = ""
        self._numbers = {host: number for number, host in enumerate(sorted(plan.hosts))}
        self._up = 1 << self._numbers[plan.host]
        self._accused: dict[str, set[str]] = {}
        self._told: set[str] = set()
        self._quarantine = Quarantine(plan.host, plan.hosts, plan.quarantine_after)
        self._appointments = {one.key: one for one in plan.appointments}
        self._left_out: list[Appointment] = []
        self._good_s: list[float] = []
        own = plan.hosts[plan.host]
        self._exchange = Exchange(loop, plan.run, own[0].address, plan.control_port, self, plan.limits.patience_s)

    # What other agents are answered (exchange.Desk).

    def status(self) -> dict[str, Any]:
        return {"at": self._at, "state": self._state, **self._news()}

    def declines(self, meeting: str) -> str | None:
        if self._state == "quarantined":
            return "quarantined"
        known = self._appointments.get(meeting)
        if known and self._quarantine.whose(known.tests):
            return "quarantined"
        return "past" if int(meeting.split("/", 1)[0]) < self._at or self._state == "done" else None

    def heard(self, message: Mapping[str, Any]) -> None:
        self._told.add(str(message.get("from")))
        self._learn(message)

    def _news(self) -> dict[str, Any]:
        """What agents tell each other on the side.

        Whose agents are known to have started, who could not be reached, and whose tests fail.
        """
        lost = {host: sorted(by) for host, by in self._accused.items()}
        return {"up": f"{self._up:x}", "lost": lost, **self._quarantine.news()}

    def _learn(self, news: Mapping[str, Any]) -> None:
        self._up |= int(news.get("up", "0"), 16)
        for host, accusers in news.get("lost", {}).items():
            self._accused.setdefault(host, set()).update(accusers)
        self._quarantine.learn(news)

    # The run.

    def run(self) -> str:
        """Keeps all appointments; answers how it ended: ``done``, ``budget``, ``rented`` or ``quarantined``.

        Every test has its record then. Raises ``Stopped`` (loop.py) after it has written the records of a stopped run.
        """
        left = list(self._plan.appointments)
        ended = "stopped"
        try:
            while left:
                self._at = left[0].round
                ended = self._obstacle()
                if ended != "done":
                    break
                ended = "stopped"
                due = self._due(left)
                self._keep(due)
                del left[: len(due)]
            else:
                ended = "done"
            missed, left = left, []
            self._leave_out(missed, ended)
            left_out = [*self._left_out, *missed]
            self._linger([(one.peer(self._plan.host), one.round) for one in left_out])
        finally:
            self._leave_out(left, "stopped")
            self._exchange.close()
        return ended

    def _leave_out(self, missed: Iterable[Appointment], how: str) -> None:
        """Writes the records of what will not take place, and turns away those who wait for it."""
        self._at = _PAST_ALL
        self._state = "quarantined" if how == "quarantined" else "done"
        for appointment in missed:
            self._miss(appointment, Gone(how, self._plan.host, self.why))
        for key in list(self._exchange.waiting):
            link = self._exchange.waiting.pop(key)
            with contextlib.suppress(LinkClosed):
                link.send({"skip": self._state})
            link.close()

    def _obstacle(self) -> str:
        """What ends the run before the next meeting, ``done`` when nothing does. Waits while the platform measures."""
        if self._loop.clock() >= self._deadline:
            return "budget"
        self._quarantine.judge()
        if self._quarantine.over():
            return "quarantined"
        if self._loop.clock() - self._guarded >= _GUARD_S:
            while True:
                self._guarded = self._loop.clock()
                self.why = self._guard.rented()
                if self.why:
                    return "rented"
                if not self._guard.probing():
                    break
                if not self._pause(_ASK_S):
                    return "budget"
        return "done"

    def _due(self, left: Sequence[Appointment]) -> Sequence[Appointment]:
        """The appointments that are kept together, the first of those that are left."""
        return left[:1]

    def _keep(self, appointments: Sequence[Appointment]) -> None:
        (appointment,) = appointments
        peer = appointment.peer(self._plan.host)
        link: Link | None = None
        done = 0
        try:
            self._wait_for_round(appointment.round)
            self._check_quarantine(appointment)
            link = self._meet(appointment, peer)
            for server, client, rail in appointment.tests:
                self._test(link, self._ends(server, client, rail), rail, peer, alone=appointment.alone)
                done += 1
        except LinkClosed as exc:
            self._lost(peer)
            self._miss(appointment, Gone("peer_lost", peer, str(exc)), done)
        except Gone as gone:
            self._miss(appointment, gone, done)
        finally:
            late = self._exchange.waiting.pop(appointment.key, None)
            if late is not None:
                with contextlib.suppress(LinkClosed):
                    late.send({"skip": "quarantined" if self._quarantine.whose(appointment.tests) else "past"})
            for one in (link, late):
                if one is not None:
                    one.close()

    def _check_quarantine(self, appointment: Appointment) -> None:
        """Raises :class:`Gone` where one of the two hosts leaves these tests out."""
        host = self._quarantine.whose(appointment.tests)
        if host is not None:
            self._left_out.append(appointment)
            raise self._skipped("quarantined", host)

    def _test(self, link: Link, ends: Ends, rail: int, peer: str, *, alone: bool) -> None:
        limits = self._plan.limits
        if self._plan.shorten and len(self._good_s) >= _ENOUGH_GOOD:
            recent = sorted(self._good_s[-20:])
            usual = 5 * recent[len(recent) // 2]
            limits = limits._replace(test_s=min(limits.test_s, max(_SHORTEST_TEST_S, usual)))
        if ends.client == self._plan.host:
            record = self._runner.drive(link, ends, rail, limits, alone=alone)
        else:
            # The peer's limit counts for its own client; it may be as long as the plan's.
            record = self._runner.serve(link, ends, rail, self._plan.limits)
        self._write(record)
        good = record["status"] != FAIL
        self._quarantine.count(CLIENT if ends.client == self._plan.host else SERVER, peer, good)
        if good:
            self._good_s.append(record["duration_ms"] / 1000)

    def _meet(self, appointment: Appointment, peer: str) -> Link:
        """A connection on which both ends have come. Raises :class:`Gone` or :class:`LinkClosed`."""
        if appointment.client == self._plan.host:
            return self._go_to(appointment, peer)
        return self._await(appointment, peer)

    def _go_to(self, appointment: Appointment, peer: str) -> Link:
        link = self._reach(peer, {"meet": appointment.key})
        try:
            word = link.receive(self._deadline)
            self._learn(word)
            if "ready" not in word:
                raise self._skipped(str(word.get("skip")), peer)
        except BaseException:
            link.close()
            raise
        return link

    def _await(self, appointment: Appointment, peer: str) -> Link:
        waiting = self._exchange.waiting
        while not self._loop.wait(lambda: appointment.key in waiting, min(self._loop.clock() + _ASK_S, self._deadline)):
            if self._loop.clock() >= self._deadline:
                raise Gone("budget", self._plan.host, "the time was used up while waiting for the peer")
            told = self._ask(peer)
            self._check_quarantine(appointment)
            if told is None:
                self._lost(peer)
                raise Gone("peer_lost", peer, "the peer's agent has gone")
            if appointment.key in waiting:
                break
            if told["state"] != "running" or told["at"] > appointment.round:
                raise self._skipped(str(told["state"]), peer)
        link = waiting.pop(appointment.key)
        link.send({"ready": True, **self._news()})
        return link

    def _reach(self, peer: str, message: Mapping[str, Any]) -> Link:
        """Calls a peer until it answers. One that has not started yet is waited for, one that is gone is not."""
        address = self._plan.hosts[peer][0].address
        since = self._loop.clock()
        pauses = _pauses()
        while True:
            try:
                link = self._exchange.call(address, {**message, "from": self._plan.host, **self._news()}, self._call_s)
                self._up |= 1 << self._numbers[peer]
                return link
            except Refused as exc:
                if self._up >> self._numbers[peer] & 1 or self._loop.clock() > self._started + self._plan.start_wait_s:
                    raise LinkClosed(str(exc)) from exc
            except LinkClosed:
                # Once another host has found the peer gone, that need not be found out at the same length again.
                patience = self._plan.limits.patience_s / (4 if self._accused.get(peer) else 1)
                if self._loop.clock() - since >= patience:
                    raise
            if not self._pause(next(pauses)):
                raise Gone("budget", self._plan.host, "the time was used up while calling the peer")

    def _ask(self, peer: str) -> dict[str, Any] | None:
        """How far a peer is, ``None`` when it is gone. One that is merely slow to answer is asked again."""
        since = self._loop.clock()
        while True:
            try:
                link = self._reach(peer, {"ask": "at"})
            except LinkClosed:
                return None
            try:
                told = link.receive(self._loop.clock() + self._call_s)
                self._learn(told)
                return told if "at" in told else None
            except LinkClosed:
                if self._loop.clock() - since >= self._plan.limits.patience_s or not self._pause(_RETRY_S):
                    return None
            finally:
                link.close()

    def _wait_for_round(self, number: int) -> None:
        """Until all who run before this round are through with it, or gone."""
        for host in self._plan.rounds[number - 1] if number and self._plan.rounds else ():
            pauses = _pauses()
            while self._busy(host, number):
                if not self._pause(next(pauses)):
                    raise Gone("budget", self._plan.host, "the time was used up while waiting for an earlier round")

    def _linger(self, expected: list[tuple[str, int]]) -> None:
        """Stays to answer those who will still call or ask, so that they need not find out for themselves."""
        own_last = max((one.round for one in self._plan.appointments), default=0)
        expected += [(host, own_last + 1) for hosts in self._plan.rounds[own_last + 1 :][:1] for host in hosts]
        self._told.clear()
        for peer, number in expected:
            pauses = _pauses()
            while peer not in self._told and self._busy(peer, number + 1) and self._pause(next(pauses)):
                pass

    def _busy(self, host: str, number: int) -> bool:
        """Whether another host is still to come to a round."""
        if host == self._plan.host:
            return False
        told = self._ask(host)
        return told is not None and told["state"] == "running" and int(told["at"]) < number

    def _pause(self, seconds: float) -> bool:
        """Serves others for a while; whether there is still time."""
        self._loop.wait(lambda: False, min(self._loop.clock() + seconds, self._deadline))
        return self._loop.clock() < self._deadline

    def _skipped(self, reason: str, peer: str) -> Gone:
        if reason == "quarantined":
            return Gone("quarantined", peer, f"every test of {peer} had failed")
        return Gone("peer_lost", peer, "the peer went on without this meeting")

    def _lost(self, host: str) -> None:
        self._accused.setdefault(host, set()).add(self._plan.host)

    def _miss(self, appointment: Appointment, gone: Gone, done: int = 0) -> None:
        for server, client, rail in appointment.tests[done:]:
            ends = self._ends(server, client, rail)
            now = self._bench.now()
            self._write(
                not_measured(ends, rail, self._plan.settings, gone.name, measured_at=now, lost=gone.host, why=str(gone))
            )

    def _ends(self, server: str, client: str, rail: int) -> Ends:
        return Ends(server, client, self._plan.hosts[server][rail], self._plan.hosts[client][rail])
