"""The time limit of a new cluster: set at once, on every member, and never silently left out (contract 5.2 step 9)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.errors import OrderUnsettled
from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.settle import settle
from tests.support.world import START, World

RENT = "POST /executors/cluster/rent"


def test_the_limit_is_set_before_the_first_look_at_the_listing(world: World) -> None:
    """Until a pod has its removal time, nothing but this process bounds what it costs."""
    inputs = world.check(ttl="2h")
    before = len(world.requests())
    created = order(world.ctx, inputs)
    calls = [call.rpartition("/")[2] for call in world.requests()[before:]]
    assert calls[calls.index("rent") :] == ["rent", "schedule-removal", "schedule-removal", "pods"]
    assert created.state["expires_at"] is not None


def test_a_limit_that_failed_at_first_is_set_once_the_members_are_listed(world: World) -> None:
    inputs = world.check(ttl="2h")
    world.fault("POST /pods/*/schedule-removal", "status", code=503, times=6)
    created = order(world.ctx, inputs)
    assert created.state["unscheduled"] == []
    assert created.state["expires_at"] is not None


def test_an_order_that_is_placed_only_after_its_limit_is_not_removed_at_once(world: World) -> None:
    inputs = world.check(ttl="2h")
    intent = _intent_of(world, inputs)
    world.pass_time(3 * 3600)
    settle(world.ctx, intent, LiumError("lost", outcome_unknown=True))
    assert [pod["removal_scheduled_at"] for pod in world.listed()] == [None, None]


def _intent_of(world: World, inputs: dict[str, Any]) -> Intent:
    """The intent of an order that never reached the service, while no listing could be read."""
    world.fault(RENT, "drop_before_commit", times=0)
    world.fault("GET /pods", "status", code=503, times=0, after=1)
    with pytest.raises(OrderUnsettled):
        order(world.ctx, inputs)
    world.service.faults.clear()
    (intent,) = world.intents.open_ones.values()
    return intent


def test_a_limit_that_one_member_did_not_get_is_not_hidden(world: World) -> None:
    inputs = world.check(ttl="2h")
    world.fault("POST /pods/*/schedule-removal", "status", code=500, times=9)
    created = order(world.ctx, inputs)
    state = created.state
    assert state["expires_at"] is None
    assert len(state["unscheduled"]) == 1
    assert world.said("no removal time could be set for rank 0")
    assert world.said("$32.00 an hour until it is removed")
    times = [pod["removal_scheduled_at"] for pod in sorted(world.listed(), key=lambda p: p["cluster_node_index"])]
    assert times[0] is None
    assert times[1] is not None


def test_the_limit_goes_to_every_member_before_anything_is_waited_for(world: World) -> None:
    world.order(nodes=4, ttl="90m")
    assert {pod["removal_scheduled_at"][:16] for pod in world.listed()} == {
        (world.ctx.clock.now() + timedelta(minutes=90)).isoformat()[:16]
    }
    assert world.clock.at == START
