"""Field cases of the provider's refresh, diff, check and import: B06, B17, B20, B30, B33."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from pulumi_lium.api import ServerError, TransportError, UndecodableAnswer
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.update import update
from tests.field.story import CASES, Story
from tests.field.telling import CLUSTER, POD, told
from tests.support.world import World, over_the_wire, public_key


@pytest.mark.parametrize(
    ("variant", "error"),
    [
        ("variant-refused.json", TransportError),
        ("variant-503.json", ServerError),
        ("variant-empty-body.json", UndecodableAnswer),
    ],
)
def test_b06_a_network_blip_is_an_error_and_never_gone(variant: str, error: type[LiumError]) -> None:
    world = told(Story("B06", variant))
    state = {"cluster_id": CLUSTER, "nodes": 2.0}
    before = copy.deepcopy(state)
    with pytest.raises(error):
        read(world.ctx, CLUSTER, state)
    assert state == before


def test_b17_another_serialized_provider_is_no_change_and_loses_nothing() -> None:
    olds = json.loads((CASES / "B17" / "olds.json").read_text())
    news = json.loads((CASES / "B17" / "news.json").read_text())
    world = told(Story("B20"))  # its two members are those of the state
    assert not diff(world.ctx, CLUSTER, olds, news).changes
    updated = update(world.ctx, CLUSTER, olds, {**news, "ssh_public_keys": [public_key()]})
    lost = {name for name in olds if name not in updated}
    assert lost == set()
    assert (updated["cluster_id"], updated["master_addr"]) == (CLUSTER, "10.42.0.1")
    assert [row["pod_id"] for row in updated["members"]] == olds["pod_ids"]
    assert updated["node_addrs"] == ["10.42.0.1", "10.42.0.2"]


def test_b20_the_id_alone_gives_the_outputs() -> None:
    story = Story("B20")
    reading = read(told(story).ctx, story.text("id.txt").strip(), {})
    assert reading is not None
    assert [row["pod_id"] for row in reading.state["members"]] == [POD.format(1), POD.format(2)]
    assert reading.state["hostfile"] == "10.42.0.1 slots=8\n10.42.0.2 slots=8\n"
    assert reading.state["price_per_hour"] == 32.0


def test_b20_the_documented_import_takes_it_over_and_the_next_up_changes_nothing() -> None:
    story = Story("B20")
    world = told(story)
    props = {"nodes": 2, "adopt": story.text("id.txt").strip(), "owner": "acme/web/dev/case"}
    inputs, failures = check(world.ctx, {}, props)
    assert failures == []
    created = order(world.ctx, inputs)
    assert created.cluster_id == CLUSTER
    assert created.state["master_addr"] == "10.42.0.1"
    again, failures = check(world.ctx, inputs, props)
    assert failures == []
    assert not diff(world.ctx, CLUSTER, over_the_wire(created.state), again).changes
    assert {row["method"] for row in world.journal} == {"GET"}


def test_b30_one_member_that_was_removed_by_hand_is_shown_and_replaced() -> None:
    story = Story("B30")
    world = told(story)
    state = story.read("state.json")
    reading = read(world.ctx, CLUSTER, state)
    assert reading is not None
    assert reading.state["status"] == "degraded"
    assert reading.state["lost"] == [f"rank 1 (pod {POD.format(2)}) is not listed any more"]
    change = diff(world.ctx, CLUSTER, over_the_wire(reading.state), {"nodes": 3, "ssh_public_keys": [public_key()]})
    assert list(change.replaces) == ["members"]
    assert f"rank 1 (pod {POD.format(2)})" in change.replaces["members"]
    assert "rank 1" in world.told[-1]


@pytest.mark.parametrize("number", range(3))
def test_b33_each_missing_or_unknown_property_is_named(number: int) -> None:
    """An unknown property fails. `fabric_id` and `name` need not be given here; the SSH keys have to be."""
    props: dict[str, Any] = json.loads((CASES / "B33" / "props.json").read_text())[number]
    failures = dict(check(World().ctx, {}, props)[1])
    assert "ssh_public_keys" in failures
    assert ("nodez" in failures) is ("nodez" in props)
    if "nodez" in props:
        assert "did you mean nodes?" in failures["nodez"]
    without = {name: value for name, value in props.items() if name != "nodes"}
    assert {"nodes", "ssh_public_keys"} <= set(dict(check(World().ctx, {}, without)[1]))
