"""Field cases of the provider's create and wait: B01, B08, B10, B11, B12, B16, B35, B37."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulumi_lium.api import OrderRefused
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.errors import NothingMatches, OperationFailed, OperationTimeout
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.read import read
from tests.field.story import CASES, KEY, Story
from tests.field.telling import CLUSTER, POD, checked, create, deletes, orders, told, wait
from tests.support.world import World, public_key


def test_b01_members_that_the_listing_shows_late_are_waited_for() -> None:
    story = Story("B01")
    world = told(story)
    created = create(world, story)
    assert created.cluster_id == CLUSTER
    assert [row["rank"] for row in created.state["members"]] == [0, 1]
    assert [row["pod_id"] for row in created.state["members"]] == [POD.format(1), POD.format(2)]
    assert len(orders(world)) == 1


def test_b01_an_empty_listing_soon_after_the_order_is_never_gone() -> None:
    story = Story("B01")
    world = told(story)
    created = create(world, story)
    world.pass_time(1)
    again = told(story)
    again.clock.at = world.clock.at
    empty = {"on": "GET /pods", "answer": {"status": 200, "json": []}}
    both = next(step for step in reversed(story.steps) if step["on"] == "GET /pods")
    again.script([empty, empty, both])
    reading = read(again.ctx, CLUSTER, created.state)
    assert reading is not None
    assert reading.state["status"] == "rented"


def test_b08_a_gateway_timeout_behind_which_the_order_went_through() -> None:
    story = Story("B08")
    world = told(story)
    created = create(world, story)
    assert created.cluster_id == CLUSTER
    assert [row["pod_id"] for row in created.state["members"]] == [POD.format(1), POD.format(2)]
    assert len(world.state["clusters"]) == 1


def test_b10_every_resend_carries_the_key_of_the_first() -> None:
    story = Story("B10")
    world = told(story)
    created = create(world, story)
    assert created.cluster_id == CLUSTER
    assert len(world.state["clusters"]) == 1
    assert len(orders(world)) == 3
    assert len({row["idempotency_key"] for row in orders(world)}) == 1


def test_b11_one_node_that_never_starts_ends_the_cluster_by_its_id() -> None:
    story = Story("B11")
    world = told(story)
    created = create(world, story)
    with pytest.raises(OperationFailed) as error:
        wait(world, created)
    assert f"rank 1 (pod {POD.format(2)}) is CREATION_FAILED" in str(error.value)
    assert deletes(world) == 1
    assert "was deleted" in str(error.value)


def test_b12_a_roll_back_that_is_refused_while_creating_is_tried_again() -> None:
    story = Story("B12", "variant-409-then-ok.json")
    world = told(story, _with_order(story))
    created = order(world.ctx, checked(world, {"name": "train-a", "nodes": 2}))
    with pytest.raises(OperationFailed, match="was deleted"):
        wait(world, created)
    assert deletes(world) == 3


def test_b12_a_roll_back_that_is_refused_for_ever_ends_with_the_id_in_state_and_message() -> None:
    story = Story("B12", "variant-409-forever.json")
    world = told(story, _with_order(story))
    created = order(world.ctx, checked(world, {"name": "train-a", "nodes": 2}))
    assert created.cluster_id == CLUSTER
    began = world.clock.at
    with pytest.raises(OperationFailed) as error:
        wait(world, created, delete_timeout=60)
    assert CLUSTER in str(error.value)
    assert POD.format(2) in str(error.value)
    assert "May still bill $16.00 an hour" in str(error.value)
    assert world.clock.at - began <= 61


def _with_order(story: Story) -> list[dict[str, Any]]:
    """The case scripts no offer: one of its machines goes before its steps."""
    nodes = [{"price_per_gpu": 2.0, **machine} for machine in story.machines()]
    offer = {"fabric_id": "fab-roce-1", "fabric_type": "roce", "node_count": len(nodes), "nodes": nodes}
    return [{"on": "GET /executors/infiniband-clusters", "answer": {"status": 200, "json": [offer]}}, *story.steps]


def test_b16_whole_numbers_that_arrive_as_floats_leave_as_whole_numbers() -> None:
    props = json.loads((CASES / "B16" / "props-ok.json").read_text())
    props["ports_per_node"] = props.pop("ports")
    story = Story("B08")
    world = World(story.scenario(), key=KEY)
    world.script([step for step in story.steps if step["on"].startswith("GET /exec")])
    order(world.ctx, checked(world, props))
    (intent,) = world.intents.open_ones.values()
    assert (type(intent.nodes), intent.nodes) == (int, 2)
    assert (type(intent.body["initial_port_count"]), intent.body["initial_port_count"]) == (int, 5)
    assert intent.pod_name == "train-a"


@pytest.mark.parametrize(
    "props", [*json.loads((CASES / "B16" / "props-bad.json").read_text()), {"name": "a", "nodes": "2"}], ids=str
)
def test_b16_what_is_no_whole_number_is_refused_by_name(props: dict[str, Any]) -> None:
    """A text is refused too, also where it looks like a number: the docs say so."""
    world = World()
    _, failures = check(world.ctx, {}, {**props, "ssh_public_keys": [public_key()]})
    assert [name for name, _ in failures] == ["nodes"]


@pytest.mark.parametrize("limit", json.loads((CASES / "B35" / "limits.json").read_text()))
def test_b35_a_slow_start_is_a_matter_of_the_limit(limit: int) -> None:
    story = Story("B35")
    world = World(story.scenario(), key=KEY)
    created = order(world.ctx, checked(world, {"name": "train-a", "nodes": 2}))
    if limit > story.told["pending_seconds"]:
        assert wait(world, created, ready_timeout=limit)["status"] == "running"
        return
    with pytest.raises(OperationTimeout) as error:
        wait(world, created, ready_timeout=limit)
    for pod in world.state["pods"]:
        assert f"(pod {pod['id']}) PENDING" in str(error.value)
    assert world.listed() == []


def test_b37_more_nodes_than_are_free_fails_before_anything_is_sent() -> None:
    story = Story("B37", "variant-offer.json")
    world = told(story)
    with pytest.raises(NothingMatches, match="free 3 of 8, asked 4"):
        create(world, story)
    assert orders(world) == []


def test_b37_a_refusal_of_the_order_is_definite() -> None:
    story = Story("B37", "variant-refusal.json")
    world = told(story)
    with pytest.raises(OrderRefused, match="executor already rented"):
        create(world, story)
    assert len(orders(world)) == 1
    after = world.requests()[world.requests().index("POST /executors/cluster/rent") + 1 :]
    assert "GET /pods" not in after
