# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Incasts: all other hosts of a segment send to one port, and counters are read before and after (host-contract 4.6).

A round of the plan is one incast, so the receiver keeps all its appointments of a round together: it waits for the
senders, has everybody read the counters, lets all go at once, and has the counters read again once the last has ended.
Whoever does not come, or gets lost on the way, is left out and named.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ansible_collections.lium.cluster.plugins.module_utils._roce.agent import Agent, Gone
from ansible_collections.lium.cluster.plugins.module_utils._roce.child import Child
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt
from ansible_collections.lium.cluster.plugins.module_utils._roce.exchange import Link, LinkClosed
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End, classify
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Appointment
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import SERVER_END_S, end_of, plain
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import Reading, read
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import SCHEMA, failure_fields

_Answer = TypeVar("_Answer")


class IncastAgent(Agent):
    """The agent of a host in a run of incasts: the receiver of one a rail, a sender of all others."""

    def _due(self, left: Sequence[Appointment]) -> Sequence[Appointment]:
        return [one for one in left if one.round == left[0].round]

    def _keep(self, appointments: Sequence[Appointment]) -> None:
        if appointments[0].server == self._plan.host:
            self._receive(appointments)
        else:
            (appointment,) = appointments
            self._send(appointment)

    # The sender's part.

    def _send(self, appointment: Appointment) -> None:
        receiver = appointment.server
        ((_, _, rail),) = appointment.tests
        ends = self._ends(receiver, self._plan.host, rail)
        link: Link | None = None
        try:
            link = self._meet(appointment, receiver)
            link.receive(self._deadline)  # until the last sender has come
            before = self._bench.snapshot(ends.client_rail)
            link.send({"read": True})
            word = link.receive(self._deadline)
            if "go" in word:
                started = self._loop.clock()
                end = self._runner.run_client(ends, int(word["go"]), self._plan.limits.test_s)
                link.send({"ended": plain(end), "seconds": self._loop.clock() - started})
                link.receive(self._deadline)  # until the last sender has ended
            link.send({"before": before, "after": self._bench.snapshot(ends.client_rail)})
        except LinkClosed as exc:
            self._lost(receiver)
            self._miss(appointment, Gone("peer_lost", receiver, str(exc)))
        except Gone as gone:
            self._miss(appointment, gone)
        finally:
            if link is not None:
                link.close()

    # The receiver's part.

    def _receive(self, appointments: Sequence[Appointment]) -> None:
        guests = self._gather(appointments)
        try:
            if guests:
                self._load(guests)
        finally:
            for appointment in appointments:
                late = self._exchange.waiting.pop(appointment.key, None)
                for link in (guests.pop(appointment, None), late):
                    if link is not None:
                        link.close()

    def _gather(self, appointments: Sequence[Appointment]) -> dict[Appointment, Link]:
        """The senders that have come."""
        guests = {}
        for appointment in appointments:
            try:
                guests[appointment] = self._await(appointment, appointment.client)
            except LinkClosed as exc:
                self._lost(appointment.client)
                self._miss(appointment, Gone("peer_lost", appointment.client, str(exc)))
            except Gone as gone:
                self._miss(appointment, gone)
        return guests

    def _load(self, guests: dict[Appointment, Link]) -> None:
        """One incast with the senders that have come; writes its record unless all of them get lost."""
        ((_, _, rail),) = next(iter(guests)).tests
        own = self._plan.hosts[self._plan.host][rail]
        limits, clock = self._plan.limits, self._loop.clock
        numbers = {appointment: number for number, appointment in enumerate(guests)}
        servers, left = self._serve(own, numbers)
        try:
            self._each(guests, lambda _, link: link.send({"read": True}))
            self._each(guests, lambda _, link: link.receive(clock() + limits.patience_s))
            before = self._bench.snapshot(own)
            measured_at, started = self._bench.now(), clock()
            self._each(guests, lambda one, link: link.send({"go": numbers[one]} if one in servers else {"stay": True}))
            running = {one: link for one, link in guests.items() if one in servers}
            ended = self._each(running, lambda _, link: link.receive(started + limits.test_s + limits.patience_s))
            seconds = clock() - started
            for one, child in servers.items():
                child.wait(clock() + (SERVER_END_S if one in ended else 0.0))
                left[one] = self._runner.finish(child)
            after = self._bench.snapshot(own)
            there = {one: link for one, link in guests.items() if one in ended or one not in servers}
            self._each(there, lambda one, link: link.send({"over": True}) if one in ended else None)
            counters = self._each(there, lambda _, link: link.receive(clock() + limits.patience_s))
        finally:
            for child in servers.values():
                self._runner.finish(child)
        if counters:
            self._write(
                {
                    "schema": SCHEMA,
                    "incast": self._plan.host,
                    "rail": rail,
                    "before": before,
                    "after": after,
                    "senders": {
                        one.client: {**self._outcome(one, rail, ended.get(one), left[one]), **seen}
                        for one, seen in counters.items()
                    },
                    "measured_at": measured_at,
                    "duration_ms": round(seconds * 1000),
                }
            )

    def _serve(
        self, own: RailAt, numbers: Mapping[Appointment, int]
    ) -> tuple[dict[Appointment, Child], dict[Appointment, End]]:
        """A server for each sender, all of them listening; and what is left of those that do not."""
        servers: dict[Appointment, Child] = {}
        left: dict[Appointment, End] = {}
        try:
            for appointment, number in numbers.items():
                child, end = self._runner.launch_server(own, number)
                if child is not None:
                    servers[appointment] = child
                elif end is not None:
                    left[appointment] = end
            up_by = self._loop.clock() + self._plan.limits.listen_s
            for appointment in list(servers):
                if not self._runner.came_up(servers[appointment], own, numbers[appointment], up_by):
                    left[appointment] = self._runner.finish(servers.pop(appointment))
        except BaseException:
            for child in servers.values():
                self._runner.finish(child)
            raise
        return servers, left

    def _outcome(self, one: Appointment, rail: int, ended: Mapping[str, Any] | None, server: End) -> dict[str, Any]:
        """The rate of one sender, or why there is none."""
        ends = self._ends(self._plan.host, one.client, rail)
        if ended is None:
            reading = Reading(None, classify(End(None), server))
        else:
            client = end_of(ended["ended"])
            reading = read(client, server, gid_index=ends.client_rail.gid_index, seconds=float(ended["seconds"]))
        return {"gigabits_per_second": reading.gigabits_per_second, **failure_fields(reading.failure, ends)}

    def _each(
        self, guests: dict[Appointment, Link], act: Callable[[Appointment, Link], _Answer]
    ) -> dict[Appointment, _Answer]:
        """Acts on each sender in turn, and answers what came of it; one whose link breaks is left out from there on."""
        answers = {}
        for appointment, link in list(guests.items()):
            try:
                answers[appointment] = act(appointment, link)
            except LinkClosed as exc:
                guests.pop(appointment)
                link.close()
                self._lost(appointment.client)
                self._miss(appointment, Gone("peer_lost", appointment.client, str(exc)))
        return answers
