"""Recover: creates that were cut off, settled into an export (design 3.7)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.errors import OperationFailed, OrderUnsettled
from pulumi_lium.lifecycle.order import order
from pulumi_lium.recovery.export import CLUSTER_TYPE, StackExport, parse_export
from pulumi_lium.recovery.recover import Step, plan, recover
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


class Stack:
    """The stack's state: an export, and what was imported last. `fails` stands for an import that is refused."""

    def __init__(self, export: StackExport, fails: LiumError | None = None) -> None:
        self.document, self.fails = dict(export.document), fails

    def export(self) -> str:
        return json.dumps(self.document)

    def import_(self, document: dict[str, Any]) -> None:
        if self.fails is not None:
            raise self.fails
        # As the engine does it: every pending operation is dropped (`pulumi stack import`).
        self.document = json.loads(json.dumps(document))
        self.document["deployment"].pop("pending_operations", None)


def settle(
    process: Process, export: StackExport, fails: LiumError | None = None, *, stack: Any = None
) -> tuple[list[Step], dict[str, Any]]:
    stack = stack or Stack(export, fails)
    steps = recover(
        stack,
        lambda account: replace(process.ctx),
        process.intents,
        export,
        now=process.ctx.clock.now(),
        lock_age=timedelta(0),
        report=process.told.append,
    )
    return steps, stack.document


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
    steps, document = settle(process, export)
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
    assert planned.action == "leave"
    assert another.cluster_id in str(planned)
    assert "sweep --name-prefix train" in str(planned)
    assert {pod["cluster_id"] for pod in world.listed()} == {another.cluster_id}

    found = survey(contexts, process.intents, export=export)
    (finding,) = still_open(found, clean(contexts, process.intents, found))
    assert "--name-prefix train" in (finding.problem or "")
    assert {pod["cluster_id"] for pod in world.listed()} == {another.cluster_id}

    found = survey(contexts, process.intents, export=export, name_prefix="train")
    assert still_open(found, clean(contexts, process.intents, found)) == []
    assert world.listed() == []


def test_a_create_of_a_chosen_name_stays_in_the_state_until_a_person_has_settled_it(
    world: World, tmp_path: Path
) -> None:
    """The engine forgets every pending operation when it imports, and nothing else tells of the cluster."""
    chosen, made = cut_off(world, tmp_path / "first", name="train"), cut_off(world, tmp_path / "second")
    clusters = {pod["cluster_id"] for pod in world.listed()}
    assert len(clusters) == 2
    process, export = Process(world, tmp_path / "new", seed=9), exported(world, chosen, made)
    stack: Any = Stack(export)
    for _ in range(2):
        with pytest.raises(
            OperationFailed, match=r"leave alone train \(cluster .*\$32\.00 an hour.*--name-prefix train"
        ):
            settle(process, export, stack=stack)
    assert stack.document == export.document
    assert {pod["cluster_id"] for pod in world.listed()} == clusters

    found = survey(lambda account: replace(process.ctx), process.intents, export=export, name_prefix="train")
    mine = replace(found, findings=tuple(finding for finding in found.findings if finding.name == "train"))
    clean(lambda account: replace(process.ctx), process.intents, mine)
    steps, document = settle(process, export)
    assert {step.intent.pod_name: step.action for step in steps} == {"train": "drop", made["name"]: "adopt"}
    (resource,) = document["deployment"]["resources"]
    assert {pod["cluster_id"] for pod in world.listed()} == {resource["id"]}


def test_a_create_whose_cluster_the_state_holds_is_dropped_at_once(world: World, tmp_path: Path) -> None:
    """An `up` on the same disk took it over; the engine keeps the pending operation all the same."""
    inputs = world.check()
    created = order(Process(world, tmp_path / "same").ctx, inputs)
    process = Process(world, tmp_path / "new", seed=9)
    export = exported(world, inputs, resources=(created.state,))
    before = world.clock.at
    (step,), document = settle(process, export)
    assert (step.action, step.why) == ("drop", "the state holds its cluster already")
    assert world.clock.at == before
    assert [row["id"] for row in document["deployment"]["resources"]] == [created.cluster_id]


@pytest.mark.parametrize("is_told", [True, False], ids=["the export tells the holder", "an older version's does not"])
def test_with_the_key_of_another_account_no_create_is_dropped(world: World, tmp_path: Path, is_told: bool) -> None:
    inputs = cut_off(world, tmp_path / "first")
    if not is_told:
        del inputs["holder"]
    export = exported(world, inputs)
    world.pass_time(3 * 3600)
    other = Process(world, tmp_path / "new", key="sk_bob", seed=9)
    with pytest.raises(OrderUnsettled, match=r"\$32\.00 an hour"):
        plan(lambda account: replace(other.ctx), other.intents, export)
    with pytest.raises(OrderUnsettled, match=r"\$32\.00 an hour"):
        settle(other, export)
    assert len(world.listed()) == 2
    (step,), _ = settle(Process(world, tmp_path / "new", seed=10), export)
    assert step.action == "adopt"


def test_nothing_is_removed_before_the_state_was_imported(world: World, tmp_path: Path) -> None:
    """A create may only look cut off: while its run is alive the engine refuses the import."""
    inputs = cut_off(world, tmp_path / "first")
    world.event("pod_fails", pod=world.listed()[0]["id"], reason="no RDMA port")
    process = Process(world, tmp_path / "new", seed=9)
    with pytest.raises(LiumError, match=r"locked.*may bill: train-.*cluster .* an hour"):
        settle(process, exported(world, inputs), LiumError("the stack is locked"))
    assert world.calls("DELETE", world.listed()[0]["cluster_id"]) == 0
    assert process.intents.look() == []
    (step,), _ = settle(process, exported(world, inputs))
    assert step.action == "remove"
    assert world.listed() == []
    assert process.intents.look() == []


def test_what_is_to_be_removed_is_in_the_journal_once_the_state_forgets_it(world: World, tmp_path: Path) -> None:
    inputs = cut_off(world, tmp_path / "first")
    world.event("pod_fails", pod=world.listed()[0]["id"], reason="no RDMA port")
    (cluster,) = {pod["cluster_id"] for pod in world.listed()}
    export = exported(world, inputs)
    dying = Process(world, tmp_path / "new", seed=9, dies_at=at("DELETE", f"/clusters/{cluster}", "before"))
    with pytest.raises(Killed):
        settle(dying, export)
    dying.die()
    process = Process(world, tmp_path / "new", seed=10)
    found = survey(lambda account: replace(process.ctx), process.intents)
    clean(lambda account: replace(process.ctx), process.intents, found)
    assert world.listed() == []
    assert process.intents.look() == []
