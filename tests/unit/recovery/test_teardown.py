"""Teardown against the in-process market: what is not proved to be gone is named, and the stack stays."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.recovery.export import CLUSTER_TYPE, parse_export
from pulumi_lium.recovery.findings import short_span
from pulumi_lium.recovery.stack import PulumiFailed
from pulumi_lium.recovery.teardown import Outcome, Teardown
from tests.support.dying import BASE_URL, RENT, Killed, Process, at
from tests.support.world import KEY, World

LOST = ("POST", RENT, "after")
UNSENT = ("POST", RENT, "before")


class Stack:
    """What teardown asks of the Pulumi CLI. Its destroy empties the state, as the engine's does, unless it `fails`."""

    name = "acme/web/dev"
    full_names = frozenset({"acme/web/dev"})

    def __init__(self, world: World, *states: dict[str, Any], pending: tuple[dict[str, Any], ...] = ()) -> None:
        self._world, self.states, self.pending = world, list(states), list(pending)
        self.fails = self.is_missing = False
        self.calls: list[str] = []

    def owns(self, owner: str) -> bool:
        return owner.startswith(f"{self.name}/")

    def export(self) -> str:
        urn = f"urn:pulumi:dev::web::{CLUSTER_TYPE}::train"
        return json.dumps(
            {
                "resources": [
                    {"urn": urn, "type": CLUSTER_TYPE, "id": state["cluster_id"], "outputs": state}
                    for state in self.states
                ],
                "pending_operations": [
                    {"type": "creating", "resource": {"urn": urn, "type": CLUSTER_TYPE, "inputs": inputs}}
                    for inputs in self.pending
                ],
            }
        )

    def destroy(self, *, delete_timeout: float | None = None) -> None:
        self.calls.append("destroy")
        if self.fails:
            raise PulumiFailed("error: delete failed")
        self.states, self.pending = [], []

    def import_(self, document: Any) -> None:
        self.calls.append("import")
        self.pending = []

    def remove(self) -> None:
        self.calls.append("remove")

    def torn_down(
        self, journal: Path, *, key: str = KEY, same_key: bool = False, patience: float = math.inf
    ) -> Outcome:
        """`pulumi-lium teardown --remove-stack`, in a process of its own."""
        process = Process(self._world, journal, seed=99, key=key)
        now = process.ctx.clock.now
        stack: Any = self
        export = parse_export(self.export(), "the export", base_url=BASE_URL, now=now(), same_key=same_key)
        try:
            return Teardown(
                stack=stack,
                contexts=lambda account: replace(process.ctx),
                journal=process.intents,
                export=None if self.is_missing else export,
                lock_age=timedelta(0),
                report=process.told.append,
                clock=process.ctx.clock,
                patience=patience,
                timeout=60,
            ).run(remove_stack=True)
        finally:
            process.die()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "intents"


def named(outcome: Outcome) -> list[tuple[str | None, float | None]]:
    return [(left.cluster_id, left.price_per_hour) for left in outcome.leftovers]


def cluster(world: World) -> str:
    (found,) = {pod["cluster_id"] for pod in world.listed()}
    return str(found)


def cut_off(world: World, folder: Path, where: tuple[str, str, str] = LOST) -> dict[str, Any]:
    """The inputs of a create that died with its disk."""
    inputs = world.check()
    with pytest.raises(Killed):
        order(Process(world, folder, dies_at=at(*where)).ctx, inputs)
    return inputs


@pytest.mark.parametrize("where", [LOST, UNSENT], ids=["placed", "lost on the way"])
def test_an_open_intent_is_not_closed_with_the_key_of_another_account(
    world: World, journal: Path, where: tuple[str, str, str]
) -> None:
    Process(world, journal, dies_at=at(*where)).order_and_die()
    world.pass_time(600)
    stack = Stack(world)
    assert named(stack.torn_down(journal, key="sk_bob")) == [(None, 32.0)]
    assert "remove" not in stack.calls
    outcome = stack.torn_down(journal)
    assert (outcome.leftovers, outcome.failures, outcome.known) == ([], [], True)
    assert stack.calls[-1] == "remove"
    assert world.listed() == []


@pytest.mark.parametrize("is_told", [True, False], ids=["the export tells the holder", "an older version's does not"])
def test_a_create_that_was_cut_off_is_not_forgotten_with_the_key_of_another_account(
    world: World, tmp_path: Path, journal: Path, is_told: bool
) -> None:
    inputs = cut_off(world, tmp_path / "lost")
    if not is_told:
        del inputs["holder"]
    world.pass_time(600)
    stack = Stack(world, pending=(inputs,))
    assert named(stack.torn_down(journal, key="sk_bob")) == [(None, 32.0)]
    assert stack.calls == []
    assert named(stack.torn_down(journal)) == []
    assert stack.calls[-1] == "remove"
    assert world.listed() == []


def test_without_its_holder_a_create_that_is_not_listed_keeps_the_stack_until_a_person_says_so(
    world: World, tmp_path: Path, journal: Path
) -> None:
    inputs = cut_off(world, tmp_path / "lost", UNSENT)
    del inputs["holder"]
    stack = Stack(world, pending=(inputs,))
    outcome = stack.torn_down(journal)
    assert named(outcome) == [(None, 32.0)]
    assert stack.calls == []
    assert named(stack.torn_down(journal, same_key=True)) == []
    assert stack.calls[-1] == "remove"


def test_a_cluster_that_another_account_s_key_may_not_delete_is_named(world: World, journal: Path) -> None:
    """The listing of that key is right and empty; the deletion was refused."""
    stack = Stack(world, world.running().state)
    stack.fails = True
    for key in ("sk_bob", "sk_lab"):
        outcome = stack.torn_down(journal, key=key)
        assert named(outcome) == [(cluster(world), 32.0)]
        (left,) = outcome.leftovers
        assert left.age_seconds is not None
        assert 60 <= left.age_seconds < 600
        assert left.title.endswith(f"$32.00 an hour, {short_span(timedelta(seconds=left.age_seconds))} old)")
    assert "remove" not in stack.calls
    stack.fails = False
    assert named(stack.torn_down(journal)) == []
    assert stack.calls[-1] == "remove"


def test_where_the_journal_cannot_be_read_every_create_that_was_cut_off_is_named(
    world: World, tmp_path: Path, journal: Path
) -> None:
    inputs = cut_off(world, tmp_path / "lost")
    world.pass_time(600)
    journal.write_text("a file where the folder should be")
    stack = Stack(world, pending=(inputs,))
    outcome = stack.torn_down(journal)
    assert [(left.name, left.price_per_hour) for left in outcome.leftovers] == [(inputs["name"], 32.0)]
    assert not outcome.known
    assert stack.calls == []
    assert len(world.listed()) == 2


def test_a_record_that_cannot_be_read_is_named_and_the_rest_is_torn_down(
    world: World, tmp_path: Path, journal: Path
) -> None:
    inputs = cut_off(world, tmp_path / "lost")
    world.pass_time(600)
    journal.mkdir()
    lost = journal / "zzzzzzzzzz.json"
    lost.write_bytes(b"")
    stack = Stack(world, pending=(inputs,))
    outcome = stack.torn_down(journal)
    assert world.listed() == []
    assert [(left.name, left.price_per_hour) for left in outcome.leftovers] == [(str(lost), None)]
    assert outcome.known
    assert "remove" not in stack.calls


def test_a_cluster_with_the_mark_of_the_stack_is_named_by_every_teardown(
    world: World, tmp_path: Path, journal: Path
) -> None:
    """The engine's destroy empties the state, which then tells of no resource any more."""
    lost = Process(world, tmp_path / "lost").order()
    stack = Stack(world, Process(world, tmp_path / "other", seed=8).order().state)
    for disk in (journal, journal, tmp_path / "bare"):
        assert named(stack.torn_down(disk)) == [(lost.cluster_id, 32.0)]
        assert stack.states == []
    assert "remove" not in stack.calls
    assert cluster(world) == lost.cluster_id
    remove(world.ctx, lost.cluster_id, lost.state)
    assert named(stack.torn_down(journal)) == []
    assert stack.calls[-1] == "remove"


def test_it_is_named_where_the_stack_is_missing(world: World, tmp_path: Path, journal: Path) -> None:
    lost = Process(world, tmp_path / "lost").order()
    stack = Stack(world)
    stack.is_missing = True
    assert named(stack.torn_down(journal)) == [(lost.cluster_id, 32.0)]


def test_a_cluster_of_a_stack_of_another_name_is_no_stranger(world: World, tmp_path: Path, journal: Path) -> None:
    for place, owner in enumerate(("acme/web/dev2/train", "organization/web/dev/train")):
        Process(world, tmp_path / "other", seed=10 + place).order(owner=owner)
    stack = Stack(world)
    assert named(stack.torn_down(journal)) == []
    assert stack.calls[-1] == "remove"


def test_the_order_of_a_living_process_is_named_once(world: World, journal: Path) -> None:
    alive = Process(world, journal, dies_at=at(*LOST))
    with pytest.raises(Killed):
        alive.order()
    stack = Stack(world)
    outcome = stack.torn_down(journal, patience=3)
    assert [(left.price_per_hour, left.why) for left in outcome.leftovers] == [
        (32.0, "a living process is at work on its order")
    ]
    assert "remove" not in stack.calls
    alive.die()
    assert named(stack.torn_down(journal)) == []
    assert world.listed() == []
