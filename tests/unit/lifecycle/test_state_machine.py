"""The verbs in any order, with faults and drift in between: what bills is always in some state or in an open intent."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.lifecycle.update import update
from tests.simulation.disk import Disk
from tests.simulation.points import Points
from tests.support.world import KEY, World, over_the_wire, wanted

BILLS = ("PENDING", "RUNNING", "REBOOT_PENDING", "REBOOT_FAILED")
"""Statuses that bill, or will by themselves (contract 3.3)."""
NAMES = st.sampled_from(("train", "eval"))
ROUTES = st.sampled_from(
    ("POST /executors/cluster/rent", "GET /pods", "DELETE /clusters/*", "POST /pods/*/schedule-removal", "GET /version")
)
FAULTS = st.sampled_from(
    (
        {"kind": "drop_after_commit"},
        {"kind": "drop_before_commit"},
        {"kind": "refused"},
        {"kind": "not_json"},
        {"kind": "status", "code": 503},
        {"kind": "status", "code": 504, "commit": True},
        {"kind": "status", "code": 500, "commit": True},
        {"kind": "status", "code": 429},
        {"kind": "status", "code": 404},
    )
)
EVENTS = st.sampled_from(("pod_fails", "pod_stuck", "pod_lost", "refuse_delete"))


@dataclass(frozen=True)
class Held:
    """A cluster in the engine's state."""

    cluster_id: str
    inputs: dict[str, Any]
    state: dict[str, Any]


class Lifecycle(RuleBasedStateMachine):
    """An engine that calls the verbs. A call that fails leaves the state as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.disk = Disk()
        self.process = 0
        self.held: dict[str, Held] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        """The next command: a new process of the provider."""
        self.disk.end(self.process)
        self.process += 1
        self.ctx: Context = self.world.context(KEY, self.disk.journal(self.process, Points(), lambda label: None))

    @rule(name=NAMES, nodes=st.integers(2, 3), ttl=st.sampled_from((None, "8h")))
    def create(self, name: str, nodes: int, ttl: str | None) -> None:
        if name not in self.held:
            with suppress(LiumError):
                self._order(name, self._check({}, name, nodes, ttl))

    @precondition(lambda self: self.held)
    @rule(name=NAMES, nodes=st.integers(2, 3), ttl=st.sampled_from((None, "8h", "20h")))
    def change(self, name: str, nodes: int, ttl: str | None) -> None:
        """`pulumi up` of a changed program: updates in place, or deletes and creates."""
        there = self.held.get(name)
        if there is None:
            return
        with suppress(LiumError):
            inputs = self._check(there.inputs, name, nodes, ttl)
            found = diff(self.ctx, there.cluster_id, there.state, inputs)
            if found.replaces:
                self._remove(name)
                self._order(name, self._check({}, name, nodes, ttl))
            elif found.updates:
                state = update(self.ctx, there.cluster_id, there.state, inputs)
                self.held[name] = Held(there.cluster_id, inputs, over_the_wire(state))

    @precondition(lambda self: self.held)
    @rule(name=NAMES)
    def refresh(self, name: str) -> None:
        if there := self.held.get(name):
            with suppress(LiumError):
                reading = read(self.ctx, there.cluster_id, there.state)
                if reading is None:
                    del self.held[name]
                else:
                    inputs = there.inputs if reading.inputs is None else over_the_wire(reading.inputs)
                    self.held[name] = Held(there.cluster_id, inputs, over_the_wire(reading.state))

    @precondition(lambda self: self.held)
    @rule(name=NAMES)
    def destroy(self, name: str) -> None:
        if name in self.held:
            with suppress(LiumError):
                self._remove(name)

    @rule(on=ROUTES, fault=FAULTS, times=st.integers(1, 4), after=st.integers(0, 1))
    def fault(self, on: str, fault: dict[str, Any], times: int, after: int) -> None:
        if on == "GET /pods" and fault.get("code") == 404:
            return  # a listing has no 404
        self.world.fault(on, times=times, after=after, **fault)

    @rule()
    def mend(self) -> None:
        self.world.service.faults.clear()

    @precondition(lambda self: self.held)
    @rule(name=NAMES, event=EVENTS, rank=st.integers(0, 2))
    def drift(self, name: str, event: str, rank: int) -> None:
        if there := self.held.get(name):
            with suppress(ValueError):  # it means nothing to such a pod
                self.world.event(event, cluster=there.cluster_id, rank=rank)

    @rule(seconds=st.sampled_from((1, 40, 400, 9 * 3600)))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def what_bills_is_owned(self) -> None:
        clusters = {held.cluster_id for held in self.held.values()}
        intents = self.disk.records.values()
        clusters |= {intent.cluster_id for intent in intents if intent.cluster_id}
        names = {intent.pod_name for intent in intents}
        for pod in self.world.listed():
            if pod["status"] in BILLS:
                assert pod["cluster_id"] in clusters or pod["pod_name"] in names, pod

    @invariant()
    def no_resource_bills_twice(self) -> None:
        for name in ("train", "eval"):
            billing = {
                pod["cluster_id"]
                for pod in self.world.listed()
                if pod["status"] in BILLS and pod["pod_name"].startswith(f"{name}-")
            }
            assert len(billing) <= 1, billing

    # What the engine does in a step.

    def _check(self, olds: dict[str, Any], name: str, nodes: int, ttl: str | None) -> dict[str, Any]:
        news = wanted(resource=name, owner=f"acme/web/dev/{name}", nodes=nodes, ttl=ttl)
        inputs, failures = check(self.ctx, olds, news)
        assert failures == []
        return dict(over_the_wire(inputs))

    def _order(self, name: str, inputs: dict[str, Any]) -> None:
        created = order(self.ctx, inputs)
        self.held[name] = Held(created.cluster_id, inputs, over_the_wire(created.state))

    def _remove(self, name: str) -> None:
        there = self.held[name]
        remove(self.ctx, there.cluster_id, there.state)
        del self.held[name]


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(
    max_examples=100, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
