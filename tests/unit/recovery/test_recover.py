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
from tests.support.dying import BASE_URL, RENT, Killed, Process, at
from tests.support.world import World

URN = f"urn:pulumi:dev::web::{CLUSTER_TYPE}::train"


def cut_off(world: World, folder: Path, **inputs: Any) -> dict[str, Any]:
    """The inputs of a create whose order was placed, and whose disk is lost."""
    checked = world.check(**inputs)
    with pytest.raises(Killed):
        order(Process(world, folder, dies_at=at("POST", RENT, "after")).ctx, checked)
    return checked


def exported(world: World, *pending: dict[str, Any]) -> StackExport:
    operations = [
        {"type": "creating", "resource": {"urn": URN, "type": CLUSTER_TYPE, "inputs": one}} for one in pending
    ]
    document = {"version": 3, "deployment": {"pending_operations": operations}}
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
