"""Readiness: waits, tells, gives up by the policy."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.lifecycle.errors import InvalidInputs, OperationFailed, OperationTimeout
from pulumi_lium.lifecycle.inputs import READY_INTERNAL, READY_OPTIONS
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.lifecycle.ready import (
    READY_EFFECTS,
    check_ready,
    diff_ready,
    read_ready,
    ready_args,
    update_ready,
    wait_ready,
)
from pulumi_lium.lifecycle.values import UNKNOWN
from tests.support.world import START, World, scenario


def inputs(created: Created, **options: Any) -> dict[str, Any]:
    state = created.state
    return {
        "cluster_id": created.cluster_id,
        "name": state["name"],
        "nodes": 2.0,
        "members": state["members"],
        "unscheduled": state["unscheduled"],
        "price_per_hour": state["price_per_hour"],
        "ordered_at": state["ordered_at"],
        **options,
    }


def wait(world: World, created: Created, **options: Any) -> dict[str, Any]:
    return wait_ready(world.ctx, ready_args(inputs(created, **options)))


def pods(created: Created) -> list[str]:
    return [row["pod_id"] for row in created.state["members"]]


def test_it_returns_when_every_node_runs_with_all_that_is_needed_to_enter_them(world: World) -> None:
    created = world.order()
    outputs = wait(world, created)
    assert outputs["status"] == "running"
    first, second = outputs["nodes_info"]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first == {
        "rank": 0,
        "pod_id": pods(created)[0],
        "machine_id": "a1",
        "overlay_ip": "10.42.0.1",
        "status": "RUNNING",
        "public_host": first["public_host"],
        "ssh_port": first["ssh_port"],
        "ssh_command": f"ssh root@{first['public_host']} -p {first['ssh_port']}",
        "gpu_type": "H100",
        "gpus": 8,
        "price_per_hour": 16.0,
    }
    assert world.clock.at - START == 30.0


def test_six_requests_a_minute_for_the_whole_cluster() -> None:
    world = World(scenario(boot={"seconds": [590, 590]}))
    created = world.order(nodes=4)
    before = len(world.journal)
    wait_ready(world.ctx, ready_args({**inputs(created), "nodes": 4}))
    assert len(world.journal) - before <= 590 / 60 * 6 + 1


def test_the_first_look_is_younger_than_the_order_and_later_ones_are_shared(world: World) -> None:
    ctx = world.ctx
    assert ctx.looks.pods(ctx.api, ctx.clock, 5.0) == []
    created = world.order()
    before = len(world.journal)
    assert wait(world, created)["status"] == "running"
    assert world.requests()[before:] == ["GET /pods"] * 4
    assert len(ctx.looks.pods(ctx.api, ctx.clock, 5.0)) == 2
    assert world.requests()[before:] == ["GET /pods"] * 4


def test_progress_is_told_with_phase_and_time_left(world: World) -> None:
    created = world.order()
    world.told.clear()
    wait(world, created)
    name = created.state["name"]
    assert world.told[0].startswith(f"{name}: 0 of 2 nodes up; rank 0")
    assert "s left" in world.told[0]
    assert world.told[-1] == f"{name}: all 2 nodes are up."


def test_a_node_that_fails_ends_the_cluster_and_is_named_with_its_reason(world: World) -> None:
    created = world.order()
    world.event("pod_fails", cluster=created.cluster_id, rank=1, reason="no active RDMA port")
    with pytest.raises(OperationFailed) as error:
        wait(world, created)
    text = str(error.value)
    assert f"rank 1 (pod {pods(created)[1]}) is CREATION_FAILED: no active RDMA port" in text
    assert "The cluster was deleted and nothing of it bills" in text
    assert world.listed() == []


def test_keep_leaves_it_for_a_look_and_says_what_it_costs(world: World) -> None:
    created = world.order()
    world.event("pod_fails", cluster=created.cluster_id, rank=1)
    with pytest.raises(OperationFailed, match=r"kept for a look.*May still bill \$16\.00 an hour"):
        wait(world, created, on_start_failure="keep")
    assert len(world.listed()) == 2


def test_a_removal_that_fails_too_names_cluster_member_and_price(world: World) -> None:
    created = world.order()
    world.event("pod_fails", cluster=created.cluster_id, rank=1)
    world.event("refuse_delete", cluster=created.cluster_id, rank=0, times=0)
    with pytest.raises(OperationFailed) as error:
        wait(world, created, delete_timeout=60)
    text = str(error.value)
    assert "Its removal failed too" in text
    assert created.cluster_id in text
    assert f"rank 0 (pod {pods(created)[0]})" in text
    assert "May still bill $16.00 an hour" in text


def test_a_node_that_vanishes_is_a_failure_but_one_short_listing_is_none(world: World) -> None:
    created = world.order()
    world.fault("GET /pods", "hide_member", rank=1)
    assert wait(world, created)["status"] == "running"
    other = world.order(owner="acme/web/dev/other", resource="other")
    world.event("pod_lost", cluster=other.cluster_id, rank=0)
    with pytest.raises(OperationFailed, match=f"rank 0 \\(pod {pods(other)[0]}\\) has vanished"):
        wait(world, other)


@pytest.mark.parametrize(("limit", "ready"), [(900, False), (2400, True)])
def test_a_slow_start_is_a_matter_of_the_limit(limit: int, ready: bool) -> None:
    world = World(scenario(boot={"seconds": [1500, 1500]}))
    created = world.order()
    if ready:
        assert wait(world, created, ready_timeout=limit)["status"] == "running"
        return
    with pytest.raises(OperationTimeout) as error:
        wait(world, created, ready_timeout=limit)
    for pod in pods(created):
        assert f"(pod {pod}) PENDING" in str(error.value)
    assert world.listed() == []
    assert world.clock.at - START < limit + 20


def test_an_outage_of_the_listing_is_outlived(world: World) -> None:
    created = world.order()
    world.fault("GET /pods", "status", code=503, times=9)
    assert wait(world, created)["status"] == "running"
    assert world.said("the listing fails")


def test_a_cluster_whose_state_cannot_be_read_is_never_deleted(world: World) -> None:
    created = world.order()
    world.fault("GET /pods", "status", code=503, times=0)
    with pytest.raises(OperationTimeout, match=r"not known.*\$32\.00 an hour"):
        wait(world, created, ready_timeout=60)
    assert len(world.listed()) == 2
    assert not any(row["method"] == "DELETE" for row in world.journal)


def test_a_key_that_is_refused_ends_the_wait_and_not_the_cluster(world: World) -> None:
    created = world.order()
    args = ready_args(inputs(created))
    with pytest.raises(OperationFailed, match="kept"):
        wait_ready(world.context("sk_wrong"), args)
    assert len(world.listed()) == 2


def test_an_incomplete_limit_fails_the_update_and_keeps_the_cluster(world: World) -> None:
    world.fault("POST /pods/*/schedule-removal", "status", code=500, times=9)
    created = world.order(ttl="8h")
    with pytest.raises(OperationFailed, match=r"no removal time for rank 0.*\$32\.00 an hour"):
        wait(world, created)
    assert len(world.listed()) == 2


def test_without_waiting_the_nodes_are_as_they_are(world: World) -> None:
    created = world.order()
    outputs = wait(world, created, wait_for_ready=False)
    assert outputs["status"] == "starting"
    assert [node["ssh_command"] for node in outputs["nodes_info"]] == [None, None]
    assert world.clock.at == START


def test_refresh_shows_the_nodes_and_their_loss(world: World) -> None:
    created = world.order()
    state = wait(world, created)
    assert read_ready(world.ctx, created.cluster_id, state) == state
    world.event("pod_lost", cluster=created.cluster_id, rank=1)
    world.pass_time(3)
    lost = read_ready(world.ctx, created.cluster_id, state)
    assert lost is not None
    assert lost["status"] == "degraded"
    assert [node["rank"] for node in lost["nodes_info"]] == [0]
    world.ctx.api.clusters.delete(created.cluster_id)
    world.pass_time(600)
    assert read_ready(world.ctx, created.cluster_id, state) is None


def test_every_input_has_an_effect() -> None:
    assert set(READY_EFFECTS) == {*READY_OPTIONS, *READY_INTERNAL}


def test_another_cluster_replaces_and_an_unknown_one_too(world: World) -> None:
    created = world.order()
    state = wait(world, created)
    same = inputs(created)
    assert not diff_ready(created.cluster_id, state, same).changes
    assert list(diff_ready(created.cluster_id, state, {**same, "cluster_id": UNKNOWN}).replaces) == ["cluster_id"]
    assert list(diff_ready(created.cluster_id, state, {**same, "cluster_id": "c-2"}).replaces) == ["cluster_id"]
    moved = {**same, "members": UNKNOWN, "name": UNKNOWN, "price_per_hour": 1.0, "unscheduled": UNKNOWN}
    assert not diff_ready(created.cluster_id, state, moved).changes
    assert list(diff_ready(created.cluster_id, state, {**same, "ready_timeout": 60.0}).updates) == ["ready_timeout"]


def test_waiting_that_is_switched_on_later_waits(world: World) -> None:
    created = world.order()
    state = wait(world, created, wait_for_ready=False)
    args = ready_args(inputs(created, ready_timeout=500))
    assert update_ready(world.ctx, args, state)["status"] == "running"
    kept = update_ready(world.ctx, args, wait(world, created))
    assert kept["status"] == "running"
    assert kept["requested"]["ready_timeout"] == 500


@pytest.mark.parametrize(
    ("name", "value"),
    [("ready_timeout", 0), ("ready_timeout", "1h"), ("on_start_failure", "ignore"), ("wait_for_ready", 1)],
)
def test_a_bad_option_is_named(name: str, value: Any) -> None:
    _, failures = check_ready({"cluster_id": UNKNOWN, "nodes": UNKNOWN, name: value})
    assert [failed for failed, _ in failures] == [name]


def test_without_a_cluster_there_is_nothing_to_wait_for() -> None:
    with pytest.raises(InvalidInputs, match="cluster_id"):
        ready_args({"nodes": 2})


@pytest.mark.parametrize("event", ["machine_lost", "never up"])
def test_an_adopted_cluster_is_never_deleted_by_the_wait(world: World, event: str) -> None:
    theirs = world.order()
    if event == "machine_lost":
        world.pass_time(60)
        world.event("machine_lost", host="a2")
    taken = order(world.ctx, world.check(adopt=theirs.cluster_id))
    with pytest.raises(OperationFailed, match="adopted") as error:
        wait(world, taken, adopted=taken.state["adopted"], ready_timeout=5, on_start_failure="delete")
    assert "$" in str(error.value)
    assert world.calls("DELETE", theirs.cluster_id) == 0
    assert len(world.listed()) == 2
