"""Field cases of the provider's delete: B02, B03, B04, and the delete half of B23."""

from __future__ import annotations

import pytest

from pulumi_lium.lifecycle.errors import OperationTimeout
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.remove import remove
from tests.field.story import OFFERS, Story
from tests.field.telling import CLUSTER, POD, checked, deletes, orders, told


def test_b02_a_delete_that_fails_is_no_delete() -> None:
    story = Story("B02")
    world = told(story)
    with pytest.raises(OperationTimeout) as error:
        remove(world.ctx, CLUSTER, story.read("state.json"), timeout=0.3)
    assert deletes(world) == 2
    assert POD.format(1) in str(error.value)
    assert "May still bill $32.00 an hour" in str(error.value)
    remove(world.ctx, CLUSTER, story.read("state.json"))
    assert deletes(world) == 3


def test_b03_one_member_that_stays_is_named_and_goes_with_the_next_destroy() -> None:
    story = Story("B03")
    refused, stays, *rest = story.steps
    world = told(story, [refused, refused, stays, *rest])
    with pytest.raises(OperationTimeout) as error:
        remove(world.ctx, CLUSTER, {"nodes": 3.0}, timeout=0.3)
    assert f"rank 1 (pod {POD.format(2)})" in str(error.value)
    assert "executor did not answer" in str(error.value)
    assert "May still bill $16.00 an hour" in str(error.value)
    remove(world.ctx, CLUSTER, {"nodes": 3.0})
    assert deletes(world) == 3


def test_b03_with_time_left_one_destroy_is_enough() -> None:
    story = Story("B03")
    world = told(story)
    remove(world.ctx, CLUSTER, {"nodes": 3.0})
    assert deletes(world) == 2


def test_b04_what_is_gone_already_is_done() -> None:
    story = Story("B04")
    world = told(story)
    remove(world.ctx, CLUSTER, {"nodes": 2.0})
    assert deletes(world) == 1
    assert world.clock.at == told(story).clock.at
    assert read(world.ctx, CLUSTER, {"cluster_id": CLUSTER, "nodes": 2.0}) is None


def test_b23_the_order_leaves_only_after_the_last_member_is_gone() -> None:
    story = Story("B23")
    nodes = [{"price_per_gpu": 2.0, **machine} for machine in story.machines()]
    offer = {"fabric_id": "fab-roce-1", "fabric_type": "roce", "node_count": len(nodes), "nodes": nodes}
    world = told(story, [{"on": OFFERS, "answer": {"status": 200, "json": [offer]}}, *story.steps])
    remove(world.ctx, CLUSTER, {"nodes": 2.0})
    listings = sum(row["path"].endswith("/pods") for row in world.journal)
    assert listings == 3
    assert orders(world) == []
    created = order(world.ctx, checked(world, {"name": "train-a", "nodes": 2}))
    assert [row["pod_id"] for row in created.state["members"]] == [POD.format(3), POD.format(4)]
    assert len(orders(world)) == 1
