"""Delete: ends when no member is listed, or says what stays."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.errors import OperationFailed, OperationTimeout
from pulumi_lium.lifecycle.order import Created
from pulumi_lium.lifecycle.remove import remove
from tests.support.world import World, scenario

DELETE = "DELETE /clusters/*"


def clear(world: World, created: Created, **inputs: Any) -> None:
    remove(world.ctx, created.cluster_id, created.state, **inputs)


def test_it_returns_only_when_no_member_is_listed(world: World) -> None:
    created = world.running()
    began = world.clock.at
    clear(world, created)
    assert world.listed() == []
    assert 5 <= world.clock.at - began < 10
    assert sum(row["method"] == "DELETE" for row in world.journal) == 1
    assert world.intents.open_ones == {}


def test_an_instant_removal_costs_two_requests() -> None:
    told = scenario()
    told["settings"]["delete_seconds"] = 0
    world = World(told)
    created = world.running()
    world.pass_time(600)
    before = len(world.journal)
    clear(world, created)
    assert world.requests()[before:] == [f"DELETE /clusters/{created.cluster_id}", "GET /pods"]


def test_what_was_removed_by_hand_is_done(world: World) -> None:
    created = world.running()
    world.ctx.api.clusters.delete(created.cluster_id)
    world.pass_time(600)
    clear(world, created)


def test_404_is_not_gone_while_members_are_listed(world: World) -> None:
    created = world.running()
    world.fault(DELETE, "status", code=404, times=0)
    with pytest.raises(OperationTimeout) as error:
        clear(world, created, timeout=30)
    assert "404 while members are listed" in str(error.value)
    assert len(world.listed()) == 2


def test_a_refused_member_is_asked_again(world: World) -> None:
    created = world.running(nodes=3)
    world.event("refuse_delete", cluster=created.cluster_id, rank=1, times=2)
    clear(world, created)
    assert world.listed() == []
    assert world.said(created.state["members"][1]["pod_id"])


def test_an_accepted_removal_that_does_not_begin_is_asked_for_again(world: World) -> None:
    created = world.running()
    rows = [{"pod_id": row["pod_id"], "success": True} for row in created.state["members"]]
    world.fault(DELETE, "status", code=200, body={"success": True, "pods": rows}, commit=False)
    clear(world, created)
    assert world.listed() == []
    assert sum(row["method"] == "DELETE" for row in world.journal) == 2


def test_a_member_that_refuses_for_ever_is_named_with_its_price(world: World) -> None:
    created = world.running(nodes=3)
    world.event("refuse_delete", cluster=created.cluster_id, rank=1, times=0)
    began = world.clock.at
    with pytest.raises(OperationTimeout) as error:
        clear(world, created, timeout=60)
    text = str(error.value)
    assert created.cluster_id in text
    assert f"rank 1 (pod {created.state['members'][1]['pod_id']}) RUNNING at $16.00 an hour" in text
    assert "May still bill $16.00 an hour" in text
    assert "rank 0" not in text
    assert world.clock.at - began <= 61


def test_the_limit_is_that_of_the_program(world: World) -> None:
    created = world.running(delete_timeout=20)
    world.event("refuse_delete", cluster=created.cluster_id, rank=0, times=0)
    began = world.clock.at
    with pytest.raises(OperationTimeout, match="within 20 s"):
        clear(world, created)
    assert world.clock.at - began <= 21


def test_409_is_waited_out_and_names_who_is_still_being_created() -> None:
    told = scenario()
    told["settings"]["cancel_in_flight_creates"] = False
    world = World(told)
    created = world.order()
    clear(world, created)
    assert world.listed() == []
    assert sum(row["method"] == "DELETE" for row in world.journal) > 1


def test_409_for_ever_ends_at_the_limit_with_id_and_price(world: World) -> None:
    created = world.running()
    world.fault(DELETE, "status", code=409, times=0)
    with pytest.raises(OperationTimeout) as error:
        clear(world, created, timeout=45)
    assert created.cluster_id in str(error.value)
    assert "May still bill $32.00 an hour" in str(error.value)


@pytest.mark.parametrize("kind", ["status", "drop_after_commit", "not_json", "drop_before_commit"])
def test_a_lost_answer_is_checked_by_the_listing(world: World, kind: str) -> None:
    created = world.running()
    world.fault(DELETE, kind, **({"code": 502, "commit": True} if kind == "status" else {}))
    clear(world, created)
    assert world.listed() == []


def test_500_while_members_run_is_no_success(world: World) -> None:
    created = world.running()
    world.fault(DELETE, "status", code=500, times=0)
    with pytest.raises(OperationTimeout, match="May still bill"):
        clear(world, created, timeout=10)
    assert len(world.listed()) == 2


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_that_waiting_does_not_change_is_raised_at_once(world: World, code: int) -> None:
    created = world.running()
    began = world.clock.at
    world.fault(DELETE, "status", code=code, times=0)
    with pytest.raises(OperationFailed) as error:
        clear(world, created)
    assert world.clock.at == began
    assert created.cluster_id in str(error.value)
    assert "$32.00 an hour" in str(error.value)


def test_a_listing_that_fails_proves_nothing(world: World) -> None:
    created = world.running()
    world.fault("GET /pods", "status", code=503, times=0)
    with pytest.raises(OperationTimeout) as error:
        clear(world, created, timeout=30)
    assert "not known" in str(error.value)
    assert "$32.00 an hour" in str(error.value)


def test_an_outage_of_the_listing_is_outlived(world: World) -> None:
    created = world.running()
    world.fault("GET /pods", "status", code=503, times=4)
    clear(world, created)
    assert world.listed() == []


def test_shortly_after_the_order_404_and_one_empty_listing_prove_nothing(world: World) -> None:
    created = world.order()
    world.fault(DELETE, "status", code=404)
    world.fault("GET /pods", "status", code=200, body=[], commit=False)
    clear(world, created)
    assert world.listed() == []


def test_a_state_of_an_older_shape_can_be_deleted(world: World) -> None:
    created = world.running()
    remove(world.ctx, created.cluster_id, {"id": created.cluster_id, "nodes": 2.0, "delete_timeout": 30.0})
    assert world.listed() == []


def test_with_no_state_at_all_the_price_is_that_of_the_listing(world: World) -> None:
    created = world.running()
    world.fault(DELETE, "status", code=500, times=0)
    with pytest.raises(LiumError, match=r"\$32\.00 an hour"):
        remove(world.ctx, created.cluster_id, {}, timeout=5)
