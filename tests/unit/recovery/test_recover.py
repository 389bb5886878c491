"""Recover: creates that were cut off, settled into an export (design 3.7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.lifecycle.order import order
from pulumi_lium.recovery.export import CLUSTER_TYPE, StackExport, parse_export
from pulumi_lium.recovery.recover import plan, settle_all
from pulumi_lium.recovery.survey import survey
from pulumi_lium.recovery.sweep import clean, still_open
from tests.support.dying import BASE_URL, RENT, Killed, Process, at
from tests.support.world import World

URN = f"urn:pulumi:dev::web::{CLUSTER_TYPE}::train"


def cut_off(world: World, folder: Path, **inputs: Any) -> dict[str, Any]:
    """The inputs of a create whose order was placed, and whose disk is lost."""
    checked = world.check(**inputs)
    with pytest.raises(Killed):
        order(Process(world, folder, dies_at=at("POST", RENT, "after")).ctx, checked)
    return checked


def exported(world: World, *pending: dict[str, Any], resources: tuple[dict[str, Any], ...] = ()) -> StackExport:
    operations = [
        {"type": "creating", "resource": {"urn": URN, "type": CLUSTER_TYPE, "inputs": one}} for one in pending
    ]
    rows = [{"urn": URN, "type": CLUSTER_TYPE, "id": state["cluster_id"], "outputs": state} for state in resources]
    document = {"version": 3, "deployment": {"resources": rows, "pending_operations": operations}}
    return parse_export(json.dumps(document), "stack.json", base_url=BASE_URL, now=world.ctx.clock.now())


def test_of_two_creates_of_one_resource_the_last_is_adopted_and_the_other_removed(world: World, tmp_path: Path) -> None:
    """Killed twice, each time on a disk of its own: a state with two clusters under one URN could not be imported."""
    first = cut_off(world, tmp_path / "first")
    second = cut_off(world, tmp_path / "second")
    process = Process(world, tmp_path / "third", seed=9)
    export = exported(world, first, second)

    def contexts(account: str | None) -> Any:
        return replace(process.ctx)

    assert {step.intent.pod_name: step.action for step in plan(contexts, process.intents, export)} == {
        first["name"]: "remove",
        second["name"]: "adopt",
    }
    steps, document = settle_all(contexts, process.intents, export)
    assert {step.intent.pod_name: step.action for step in steps} == {first["name"]: "remove", second["name"]: "adopt"}
    (resource,) = document["deployment"]["resources"]
    assert resource["outputs"]["name"] == second["name"]
    assert "pending_operations" not in document["deployment"]
    assert {pod["cluster_id"] for pod in world.listed()} == {resource["id"]}


def test_a_chosen_name_does_not_tell_whose_a_cluster_is(world: World, tmp_path: Path) -> None:
    """The create may have died before it saw that the name is taken; without its journal nothing tells."""
    another = world.order(name="train", owner="acme/web/prod/train")
    inputs = world.check(name="train")
    process = Process(world, tmp_path / "new", seed=9)
    export = exported(world, inputs)

    def contexts(account: str | None) -> Any:
        return replace(process.ctx)

    (planned,) = plan(contexts, process.intents, export)
    (step,), document = settle_all(contexts, process.intents, export)
    assert planned.action == step.action == "leave"
    assert another.cluster_id in str(step)
    assert "sweep --name-prefix train" in str(step)
    assert len(document["deployment"]["pending_operations"]) == 1
    assert {pod["cluster_id"] for pod in world.listed()} == {another.cluster_id}

    found = survey(contexts, process.intents, export=export)
    (finding,) = still_open(found, clean(contexts, process.intents, found))
    assert "--name-prefix train" in (finding.problem or "")
    assert {pod["cluster_id"] for pod in world.listed()} == {another.cluster_id}

    found = survey(contexts, process.intents, export=export, name_prefix="train")
    assert still_open(found, clean(contexts, process.intents, found)) == []
    assert world.listed() == []


def test_a_create_whose_cluster_the_state_holds_is_dropped_at_once(world: World, tmp_path: Path) -> None:
    """An `up` on the same disk took it over; the engine keeps the pending operation all the same."""
    inputs = world.check()
    created = order(Process(world, tmp_path / "same").ctx, inputs)
    process = Process(world, tmp_path / "new", seed=9)
    export = exported(world, inputs, resources=(created.state,))
    before = world.clock.at
    (step,), document = settle_all(lambda account: replace(process.ctx), process.intents, export)
    assert (step.action, step.why) == ("drop", "the state holds its cluster already")
    assert world.clock.at == before
    assert [row["id"] for row in document["deployment"]["resources"]] == [created.cluster_id]
