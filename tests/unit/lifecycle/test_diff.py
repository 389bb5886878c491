"""Diff: which change of the program or of the world means what for the running cluster."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.diff import EFFECTS, Change, diff
from pulumi_lium.lifecycle.errors import OperationFailed
from pulumi_lium.lifecycle.inputs import _INTERNAL, _OPTIONS
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.lifecycle.values import UNKNOWN
from tests.support.world import World, public_key, wanted


def change(world: World, created: Created, **inputs: Any) -> Change:
    checked, failures = check(world.ctx, created.state["requested"], wanted(**inputs))
    assert failures == []
    return diff(world.ctx, created.cluster_id, created.state, checked)


def test_every_input_has_an_effect() -> None:
    assert set(EFFECTS) == {*_OPTIONS, *_INTERNAL}


def test_the_same_program_changes_nothing(world: World) -> None:
    created = world.running(ttl="8h", country="US", max_price_per_hour=40.0, machines=["a1", "a2"])
    assert change(world, created, ttl="8h", country="US", max_price_per_hour=40.0, machines=["a1", "a2"]) == Change()
    assert world.intents.open_ones == {}


@pytest.mark.parametrize(
    "inputs",
    [
        {"gpu_type": None},
        {"gpu_type": "NVIDIA H100 80GB HBM3"},
        {"gpus_per_node": 8},
        {"fabric_type": "infiniband"},
        {"country": "United States"},
        {"max_price_per_hour": 32.0},
        {"max_price_per_hour": 500.0},
        {"machines": ["a2", "a1"]},
        {"ssh_public_keys": [public_key(comment="another comment")]},
        {"volume_encryption": True},
        {"backups": True},
        {"owner": "acme/web/prod/train"},
        {"delete_timeout": 900},
        {"wait_for_ready": False, "ready_timeout": 60, "on_start_failure": "keep"},
    ],
    ids=str,
)
def test_a_change_that_the_running_cluster_satisfies_is_none(world: World, inputs: dict[str, Any]) -> None:
    created = world.running()
    assert change(world, created, **inputs) == Change()


@pytest.mark.parametrize(
    "inputs",
    [
        {"nodes": 3},
        {"gpu_type": "H200"},
        {"gpus_per_node": 4},
        {"fabric_type": "roce"},
        {"fabric_id": "another"},
        {"country": "NO"},
        {"max_price_per_hour": 31.99},
        {"machines": ["a1", "a3"]},
        {"ssh_public_keys": [public_key(9)]},
        {"ssh_public_keys": [public_key(), public_key(9)]},
        {"volume_encryption": False},
        {"backups": False},
        {"ports_per_node": 5},
        {"template_id": "another"},
        {"name": "another"},
        {"account": "research"},
        {"adopt": "another"},
    ],
    ids=str,
)
def test_a_change_that_it_does_not_satisfy_replaces_it(world: World, inputs: dict[str, Any]) -> None:
    created = world.running()
    found = change(world, created, **inputs)
    assert list(found.replaces) == list(inputs)
    assert found.changes
    assert world.told[-1].startswith(f"train: cluster {created.cluster_id} ($32.00 an hour) will be replaced")


@pytest.mark.parametrize("inputs", [{"ttl": "2h"}, {"delete_timeout": 60}], ids=str)
def test_a_change_in_place(world: World, inputs: dict[str, Any]) -> None:
    created = world.running()
    found = change(world, created, **inputs)
    assert (list(found.updates), found.replaces) == (list(inputs), {})


def test_a_limit_in_other_words_is_the_same(world: World) -> None:
    created = world.running(ttl="2h")
    assert change(world, created, ttl="120m") == Change()


def test_a_limit_that_was_taken_out_is_an_update(world: World) -> None:
    created = world.running(ttl="2h")
    assert list(change(world, created).updates) == ["ttl"]


def test_a_member_without_the_limit_is_an_update(world: World) -> None:
    created = world.running(ttl="2h")
    world.ctx.api.pods.cancel_removal(created.state["members"][1]["pod_id"])
    assert "1 of 2 members" in change(world, created, ttl="2h").updates["ttl"]


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect == "replace"])
def test_an_unknown_value_that_could_replace_replaces(world: World, name: str) -> None:
    created = world.running()
    inputs = {**created.state["requested"], name: UNKNOWN}
    assert list(diff(world.ctx, created.cluster_id, created.state, inputs).replaces) == [name]


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if effect != "replace"])
def test_an_unknown_value_that_could_not_replace_does_not(world: World, name: str) -> None:
    created = world.running()
    inputs = {**created.state["requested"], name: UNKNOWN}
    found = diff(world.ctx, created.cluster_id, created.state, inputs)
    assert found.replaces == {}
    assert found.changes is (EFFECTS[name] == "update")


def test_an_unknown_entry_of_a_list_counts_as_unknown(world: World) -> None:
    created = world.running()
    inputs = {**created.state["requested"], "ssh_public_keys": [public_key(), UNKNOWN]}
    assert list(diff(world.ctx, created.cluster_id, created.state, inputs).replaces) == ["ssh_public_keys"]


def test_the_serialized_provider_is_never_compared(world: World) -> None:
    created = world.running()
    inputs = {**created.state["requested"], "__provider": "another"}
    assert diff(world.ctx, created.cluster_id, {**created.state, "__provider": "one"}, inputs) == Change()


def test_a_cluster_that_is_gone_is_replaced(world: World) -> None:
    created = world.running()
    world.ctx.api.clusters.delete(created.cluster_id)
    world.pass_time(600)
    assert "is gone" in change(world, created).replaces["cluster_id"]


def test_a_lost_member_is_named_by_rank(world: World) -> None:
    created = world.running()
    world.event("pod_lost", cluster=created.cluster_id, rank=1)
    world.pass_time(600)
    (reason,) = change(world, created).replaces.values()
    assert f"rank 1 (pod {created.state['members'][1]['pod_id']})" in reason
    assert "rank 0" not in reason


def test_a_member_that_will_not_run_again_is_lost_too(world: World) -> None:
    created = world.running()
    world.event("machine_lost", host="a1")
    (reason,) = change(world, created).replaces.values()
    assert "rank 0" in reason
    assert "BROKEN" in reason


def test_a_cluster_that_boots_has_not_drifted(world: World) -> None:
    created = world.order()
    assert change(world, created) == Change()


def test_shortly_after_the_order_one_empty_listing_proves_nothing(world: World) -> None:
    created = world.order()
    world.fault("GET /pods", "status", code=200, body=[], commit=False)
    assert change(world, created) == Change()


def test_an_order_that_left_members_without_the_limit_is_completed_even_if_a_person_did_it(world: World) -> None:
    world.fault("POST /pods/*/schedule-removal", "status", code=500, times=9)
    created = world.running(ttl="2h")
    assert created.state["unscheduled"]
    at = datetime.fromisoformat(created.state["ordered_at"]) + timedelta(hours=2)
    for row in created.state["members"]:
        world.ctx.api.pods.schedule_removal(row["pod_id"], at)
    assert list(change(world, created, ttl="2h").updates) == ["ttl"]


def test_resources_that_only_look_share_a_listing(world: World) -> None:
    first, second = world.running(), world.running(owner="acme/web/dev/other", resource="other")
    world.pass_time(600)
    before = len(world.journal)
    assert change(world, first) == Change()
    assert change(world, second, owner="acme/web/dev/other", resource="other") == Change()
    assert world.requests()[before:] == ["GET /pods"]
    world.pass_time(3)
    change(world, first)
    assert world.requests()[before:] == ["GET /pods"] * 2


def test_a_listing_that_fails_is_no_drift(world: World) -> None:
    created = world.running()
    world.fault("GET /pods", "status", code=503, times=0)
    assert change(world, created) == Change()
    assert world.told[-1].startswith("warning: train: the listing cannot be read")
    assert "$32.00 an hour" in world.told[-1]


def test_one_look_at_the_listing_and_nothing_else(world: World) -> None:
    created = world.running()
    world.pass_time(600)
    before = len(world.journal)
    change(world, created)
    assert world.requests()[before:] == ["GET /pods"]


def test_a_state_of_an_older_shape_is_understood(world: World) -> None:
    created = world.running()
    old = {
        "cluster_id": created.cluster_id,
        "nodes": 2.0,
        "name": created.state["name"],
        "pod_ids": [row["pod_id"] for row in created.state["members"]],
    }
    assert diff(world.ctx, created.cluster_id, old, created.state["requested"]) == Change()
    world.event("pod_lost", cluster=created.cluster_id, rank=1)
    world.pass_time(3)
    assert "rank 1" in diff(world.ctx, created.cluster_id, old, created.state["requested"]).replaces["members"]


# Adopted clusters.


def adopted(world: World) -> Created:
    running = world.running()
    return order(world.ctx, world.check(adopt=running.cluster_id, name="other", ssh_public_keys=[public_key(9)]))


def test_an_adopted_cluster_is_as_it_is(world: World) -> None:
    created = adopted(world)
    inputs = {"adopt": created.cluster_id, "ssh_public_keys": [public_key(3)], "name": "third", "backups": False}
    assert change(world, created, **inputs) == Change()


def test_removing_adopt_changes_nothing(world: World) -> None:
    created = adopted(world)
    assert change(world, created) == Change()


def test_an_adopted_cluster_is_not_replaced_behind_the_person_s_back(world: World) -> None:
    created = adopted(world)
    with pytest.raises(OperationFailed, match="remove `adopt`"):
        change(world, created, adopt=created.cluster_id, nodes=4)
    assert list(change(world, created, nodes=4).replaces) == ["nodes"]
