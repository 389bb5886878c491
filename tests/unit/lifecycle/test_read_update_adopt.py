"""Read, update and adopt."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from pulumi_lium.api import ServerError, TransportError, UndecodableAnswer
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.errors import InvalidInputs, OperationFailed
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.update import update
from tests.support.world import World, over_the_wire, public_key, wanted


def changed(world: World, created: Created, **inputs: Any) -> dict[str, Any]:
    checked, failures = check(world.ctx, created.state["requested"], wanted(**inputs))
    assert failures == []
    return update(world.ctx, created.cluster_id, created.state, checked)


def removal_times(world: World) -> set[str | None]:
    return {pod["removal_scheduled_at"] for pod in world.listed()}


# Read.


def test_a_running_cluster_reads_as_it_was_ordered(world: World) -> None:
    created = world.running(ttl="8h")
    reading = read(world.ctx, created.cluster_id, created.state)
    assert reading is not None
    assert reading.state == created.state
    assert reading.inputs == created.state["requested"]
    assert world.intents.open_ones == {}


def test_gone_is_what_no_listing_shows(world: World) -> None:
    created = world.running()
    world.ctx.api.clusters.delete(created.cluster_id)
    world.pass_time(600)
    assert read(world.ctx, created.cluster_id, created.state) is None


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        ("status", {"code": 503}, ServerError),
        ("refused", {}, TransportError),
        ("drop_before_commit", {}, TransportError),
        ("not_json", {}, UndecodableAnswer),
        ("status", {"code": 200, "body": {"pods": []}, "commit": False}, UndecodableAnswer),
    ],
)
def test_a_listing_that_fails_is_never_gone(
    world: World, kind: str, fields: dict[str, Any], error: type[LiumError]
) -> None:
    created = world.running()
    world.fault("GET /pods", kind, times=0, **fields)
    with pytest.raises(error):
        read(world.ctx, created.cluster_id, created.state)


def test_shortly_after_the_order_an_empty_listing_is_looked_at_again(world: World) -> None:
    created = world.order()
    world.fault("GET /pods", "status", code=200, body=[], commit=False, times=2)
    reading = read(world.ctx, created.cluster_id, created.state)
    assert reading is not None


def test_a_lost_member_is_shown_and_the_others_keep_their_ranks(world: World) -> None:
    created = world.running(nodes=3)
    world.event("pod_lost", cluster=created.cluster_id, rank=1)
    reading = read(world.ctx, created.cluster_id, created.state)
    assert reading is not None
    state = reading.state
    assert state["status"] == "degraded"
    assert state["lost"] == [f"rank 1 (pod {created.state['members'][1]['pod_id']}) is not listed any more"]
    assert [row["rank"] for row in state["members"]] == [0, 1, 2]
    assert state["price_per_hour"] == 32.0
    same = ("node_addrs", "hostfile", "torchrun_args", "master_addr")
    assert {name: state[name] for name in same} == {name: created.state[name] for name in same}
    assert reading.inputs is not None
    assert reading.inputs["nodes"] == 2
    assert world.said("warning: " + state["name"])


def test_the_price_is_that_of_what_bills(world: World) -> None:
    created = world.order()
    world.event("pod_fails", cluster=created.cluster_id, rank=1)
    world.pass_time(60)
    reading = read(world.ctx, created.cluster_id, created.state)
    assert reading is not None
    assert reading.state["price_per_hour"] == 16.0
    assert "CREATION_FAILED" in reading.state["lost"][0]


def test_a_limit_that_was_taken_back_is_missing_from_the_refreshed_inputs(world: World) -> None:
    created = world.running(ttl="8h")
    for row in created.state["members"]:
        world.ctx.api.pods.cancel_removal(row["pod_id"])
    reading = read(world.ctx, created.cluster_id, created.state)
    assert reading is not None
    assert reading.state["expires_at"] is None
    assert reading.inputs is not None
    assert "ttl" not in reading.inputs


def test_the_id_alone_gives_the_whole_state(world: World) -> None:
    created = world.running()
    reading = read(world.ctx, created.cluster_id, {})
    assert reading is not None
    same = ("cluster_id", "name", "members", "hostfile", "torchrun_args", "price_per_hour", "gpu_type", "ordered_at")
    assert {name: reading.state[name] for name in same if name != "ordered_at"} == {
        name: created.state[name] for name in same if name != "ordered_at"
    }
    ordered = datetime.fromisoformat(reading.state["ordered_at"])
    assert abs(ordered - datetime.fromisoformat(created.state["ordered_at"])) < timedelta(seconds=1)


# Update.


def test_a_limit_goes_to_every_member_and_counts_from_the_order(world: World) -> None:
    created = world.running()
    world.pass_time(3600)
    state = changed(world, created, ttl="8h")
    at = datetime.fromisoformat(created.state["ordered_at"]) + timedelta(hours=8)
    assert state["expires_at"] == at.isoformat()
    assert len(removal_times(world)) == 1
    assert None not in removal_times(world)


def test_update_answers_the_whole_state(world: World) -> None:
    created = world.running(ttl="8h")
    state = changed(world, created, ttl="8h", delete_timeout=60)
    assert {**state, "requested": 0} == {**created.state, "requested": 0}
    assert state["requested"] == {**created.state["requested"], "delete_timeout": 60}


def test_a_limit_that_was_taken_out_is_taken_back_everywhere(world: World) -> None:
    created = world.running(ttl="8h")
    state = changed(world, created)
    assert state["expires_at"] is None
    assert removal_times(world) == {None}


def test_a_limit_that_is_over_is_refused_and_nothing_is_changed(world: World) -> None:
    created = world.running(ttl="8h")
    before = removal_times(world)
    world.pass_time(7200)
    with pytest.raises(OperationFailed, match="over already"):
        changed(world, created, ttl="1h")
    assert removal_times(world) == before


def test_a_member_that_cannot_be_changed_is_named_with_its_price(world: World) -> None:
    created = world.running()
    world.fault("POST /pods/*/schedule-removal", "status", code=500, times=3)
    with pytest.raises(OperationFailed) as error:
        changed(world, created, ttl="8h")
    assert "rank 0" in str(error.value)
    assert "$32.00 an hour" in str(error.value)
    assert None in removal_times(world)
    assert len(removal_times(world)) == 2
    assert changed(world, created, ttl="8h")["expires_at"]


def test_a_limit_that_one_member_lacked_is_completed(world: World) -> None:
    world.fault("POST /pods/*/schedule-removal", "status", code=500, times=9)
    created = world.running(ttl="8h")
    assert created.state["unscheduled"]
    state = changed(world, created, ttl="8h")
    assert state["unscheduled"] == []
    assert state["expires_at"]


def test_an_update_of_what_is_gone_says_what_to_do(world: World) -> None:
    created = world.running()
    world.ctx.api.clusters.delete(created.cluster_id)
    world.pass_time(600)
    with pytest.raises(OperationFailed, match="is gone"):
        changed(world, created, ttl="8h")


def test_a_program_of_which_only_the_provider_changed_loses_no_output(world: World) -> None:
    created = world.running()
    again = update(world.ctx, created.cluster_id, created.state, {**created.state["requested"], "__provider": "new"})
    assert over_the_wire(again) == created.state


# Adopt.


def test_adopt_takes_over_and_changes_nothing(world: World) -> None:
    running = world.running(nodes=3, ttl="8h")
    before = len(world.journal)
    created = order(
        world.ctx, world.check(adopt=running.cluster_id, nodes=3, name="x", ssh_public_keys=[public_key(9)], ttl="2h")
    )
    assert created.cluster_id == running.cluster_id
    assert world.requests()[before:] == ["GET /pods"]
    same = ("name", "members", "hostfile", "price_per_hour", "expires_at", "gpu_type", "gpus_per_node", "template_id")
    assert {name: created.state[name] for name in same} == {name: running.state[name] for name in same}
    assert (created.state["fabric_id"], created.state["fabric_type"]) == (None, None)
    assert world.said("adopted cluster")


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"nodes": 3}, "2 nodes, 3 wanted"),
        ({"gpu_type": "H200"}, "H200 wanted"),
        ({"gpus_per_node": 4}, "8 GPUs per node, 4 wanted"),
        ({"country": "NO"}, "in United States, NO wanted"),
        ({"max_price_per_hour": 10.0}, "at most $10.00"),
        ({"machines": ["a1", "a9"]}, "a9"),
    ],
)
def test_a_difference_between_program_and_cluster_is_named(world: World, inputs: dict[str, Any], reason: str) -> None:
    running = world.running()
    with pytest.raises(InvalidInputs) as error:
        order(world.ctx, world.check(adopt=running.cluster_id, **inputs))
    assert [name for name, _ in error.value.failures] == list(inputs)
    assert reason in str(error.value)


def test_a_cluster_that_is_not_listed_cannot_be_adopted(world: World) -> None:
    with pytest.raises(OperationFailed, match="No cluster c-1 is listed"):
        order(world.ctx, world.check(adopt="c-1"))


def test_a_fabric_is_not_compared_since_a_running_cluster_does_not_tell_it(world: World) -> None:
    running = world.running()
    created = order(world.ctx, world.check(adopt=running.cluster_id, fabric_type="roce"))
    assert created.state["fabric_type"] is None
    assert world.said("warning: fabric_type cannot be read")
