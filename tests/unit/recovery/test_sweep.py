"""Survey and clean against the in-process market: what is found, what is removed, what is never touched."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.api import ClusterOrder, NoApiKey
from pulumi_lium.lifecycle.accounts import settings_for
from pulumi_lium.lifecycle.order import order
from pulumi_lium.recovery.export import StackExport, parse_export
from pulumi_lium.recovery.findings import Survey
from pulumi_lium.recovery.survey import Contexts, NothingKnown, survey
from pulumi_lium.recovery.sweep import Removal, clean, still_open
from tests.support.dying import BASE_URL, RENT, Killed, Process, at
from tests.support.world import KEY, World, wanted

LOST = ("POST", RENT, "after")
UNSENT = ("POST", RENT, "before")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "intents"


class Sweeper:
    """`pulumi-lium sweep` in a process of its own."""

    def __init__(self, world: World, folder: Path, *, key: str = KEY) -> None:
        self.process = Process(world, folder, seed=99, key=key)
        self.contexts: Contexts = lambda account: replace(self.process.ctx)
        self.journal = self.process.intents

    def look(self, **options: Any) -> Survey:
        return survey(self.contexts, self.journal, **options)

    def sweep(self, **options: Any) -> tuple[Survey, list[Removal]]:
        patience = {"patience": options.pop("patience")} if "patience" in options else {}
        found = self.look(**options)
        return found, clean(self.contexts, self.journal, found, **patience)


@pytest.fixture
def sweeper(world: World, folder: Path) -> Sweeper:
    return Sweeper(world, folder)


def clusters(world: World) -> set[str]:
    return {pod["cluster_id"] for pod in world.listed()}


def exported(world: World, *states: dict[str, Any], pending: tuple[dict[str, Any], ...] = ()) -> StackExport:
    """A stack whose state holds clusters with these outputs, and whose creates with these inputs were cut off."""
    urn = "urn:pulumi:dev::web::pulumi-python:dynamic/lium:Cluster::train"
    kind = "pulumi-python:dynamic/lium:Cluster"
    document = {
        "resources": [{"urn": urn, "type": kind, "id": state["cluster_id"], "outputs": state} for state in states],
        "pending_operations": [
            {"type": "creating", "resource": {"urn": urn, "type": kind, "inputs": dict(inputs)}} for inputs in pending
        ],
    }
    return parse_export(json.dumps(document), "stack.json", base_url=BASE_URL, now=world.ctx.clock.now())


def test_an_order_that_was_lost_is_found_with_price_and_age_and_removed(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die()
    world.pass_time(600)
    (cluster,) = clusters(world)
    (finding,) = sweeper.look().findings
    assert (finding.kind, finding.cluster_id, finding.price_per_hour) == ("intent", cluster, 32.0)
    assert finding.age(world.ctx.clock.now()) == timedelta(seconds=600)
    assert clusters(world) == {cluster}
    found, removals = sweeper.sweep()
    assert [(removal.cluster_id, removal.error) for removal in removals] == [(cluster, None)]
    assert still_open(found, removals) == []
    assert clusters(world) == set()
    assert sweeper.look() == Survey((), (), ())


def test_an_order_that_never_left_is_closed_at_once(world: World, folder: Path, sweeper: Sweeper) -> None:
    process = Process(world, folder)

    def dies(intent: Any) -> None:
        raise Killed

    process.intents.note = dies  # type: ignore[method-assign]
    process.order_and_die()
    before = world.clock.at
    found, removals = sweeper.sweep()
    assert (found.findings, removals) == ((), [])
    assert [intent.stage for intent in found.settled] == ["opened"]
    assert world.clock.at == before
    assert sweeper.journal.look() == []


def test_an_order_that_is_nowhere_is_waited_for_and_closed(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder, dies_at=at(*UNSENT)).order_and_die()
    before = world.clock.at
    (finding,) = sweeper.look().findings
    assert finding.cluster_id is None
    assert "may still arrive" in finding.why
    found, removals = sweeper.sweep()
    assert [removal.error for removal in removals] == [None]
    assert still_open(found, removals) == []
    assert 325 < world.clock.at - before < 345
    assert world.calls("POST", RENT) == 0
    assert sweeper.journal.look() == []


@pytest.mark.parametrize("where", [LOST, UNSENT], ids=["placed", "lost on the way"])
@pytest.mark.parametrize("key", ["sk_bob", "sk_lab"])
def test_with_the_key_of_another_account_an_order_is_not_settled(
    world: World, folder: Path, where: tuple[str, str, str], key: str
) -> None:
    """Its listing is right and empty: it shows the pods of somebody else."""
    Process(world, folder, dies_at=at(*where)).order_and_die()
    world.pass_time(600)
    found, removals = Sweeper(world, folder, key=key).sweep()
    (left,) = still_open(found, removals)
    assert (left.kind, left.price_per_hour, removals) == ("intent", 32.0, [])
    assert left.problem is not None
    assert "$32.00 an hour" in left.problem
    assert "may still arrive" not in left.why
    right = Sweeper(world, folder)
    assert len(right.journal.look()) == 1
    found, removals = right.sweep()
    assert still_open(found, removals) == []
    assert clusters(world) == set()
    assert right.journal.look() == []


def test_an_order_is_not_settled_while_nobody_says_whose_the_key_is(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    Process(world, folder, dies_at=at(*UNSENT)).order_and_die()
    world.pass_time(600)
    world.fault("GET /users/me", "status", code=503, times=0)
    (left,) = sweeper.look().findings
    assert left.problem is not None
    assert "$32.00 an hour" in left.problem
    assert len(sweeper.journal.look()) == 1


def test_without_patience_it_stays_open_and_is_named(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder, dies_at=at(*UNSENT)).order_and_die()
    found, removals = sweeper.sweep(patience=0)
    (removal,) = removals
    assert removal.error is not None
    assert "may arrive until" in removal.error
    assert "$32.00 an hour" in removal.error
    assert len(still_open(found, removals)) == 1
    assert [entry.held for entry in sweeper.journal.look()] == [False]


def test_an_order_that_arrives_while_it_is_waited_for_is_removed(world: World, folder: Path, sweeper: Sweeper) -> None:
    process = Process(world, folder, dies_at=at(*UNSENT))
    process.order_and_die()
    (entry,) = sweeper.journal.look()
    sleep = sweeper.process.ctx.clock.sleep
    arrived = []

    def wait(seconds: float) -> None:
        sleep(seconds)
        if not arrived and world.clock.at > _sent(entry) + 200:
            arrived.append(True)
            world.ctx.api.clusters.order(
                ClusterOrder(**entry.intent.body), idempotency_key=entry.intent.idempotency_key
            )

    sweeper.process.ctx.clock.sleep = wait  # type: ignore[method-assign]
    _, (removal,) = sweeper.sweep()
    assert arrived
    assert removal.error is None
    assert removal.cluster_id is not None
    assert clusters(world) == set()


def _sent(entry: Any) -> float:
    return float(entry.intent.sent_at.timestamp())


def test_what_a_living_process_orders_is_left_alone(world: World, folder: Path, sweeper: Sweeper) -> None:
    alive = Process(world, folder, dies_at=at(*LOST))
    with pytest.raises(Killed):
        alive.order()
    found, removals = sweeper.sweep(name_prefix="train")
    (left,) = still_open(found, removals)
    assert (left.kind, left.price_per_hour, removals) == ("held", 32.0, [])
    assert left.problem == "a living process is at work on its order"
    assert len(clusters(world)) == 1
    found, _ = sweeper.sweep(older_than=timedelta(minutes=5))
    assert [(finding.kind, finding.problem) for finding in found.findings] == [("held", left.problem)]
    alive.die()


@pytest.mark.parametrize("kind", ["intent", "pending create", "unreadable"])
def test_an_order_that_was_cut_off_and_is_young_is_left_alone_and_may_bill(
    world: World, folder: Path, sweeper: Sweeper, kind: str
) -> None:
    """Its age protects it from the removal; that nothing may bill is not said of it (exit code 4)."""
    inputs, options = world.check(), {"older_than": timedelta(minutes=20)}
    process = Process(world, folder if kind == "intent" else folder.parent / "lost", dies_at=at(*LOST))
    with pytest.raises(Killed):
        order(process.ctx, inputs)
    process.die()
    if kind == "pending create":
        options["export"] = exported(world, pending=(inputs,))
    if kind == "unreadable":
        folder.mkdir()
        (folder / f"{inputs['idempotency_key']}.json").write_text("{")
        os.utime(folder / f"{inputs['idempotency_key']}.json", (world.clock.at,) * 2)
    found, removals = sweeper.sweep(**options)
    (left,) = still_open(found, removals)
    assert (left.kind, left.removable, removals, found.left_alone) == (kind, False, [], ())
    assert len(clusters(world)) == 1
    if kind == "intent":
        assert left.problem == "it is only 0 s old"
        world.pass_time(1300)
        found, removals = sweeper.sweep(**options)
        assert still_open(found, removals) == []
        assert clusters(world) == set()


def test_of_two_sweeps_at_once_the_second_does_not_say_that_nothing_is_left(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die()
    (cluster,) = clusters(world)
    second, seen = Sweeper(world, folder), []

    def while_it_deletes(method: str, path: str, when: str) -> bool:
        if (method, path, when) == ("DELETE", f"/clusters/{cluster}", "before"):
            found, removals = second.sweep()
            seen.extend(still_open(found, removals))
        return False

    first = Process(world, folder, seed=97, dies_at=while_it_deletes)
    found = survey(lambda account: first.ctx, first.intents)
    assert still_open(found, clean(lambda account: first.ctx, first.intents, found)) == []
    assert [(finding.kind, finding.price_per_hour) for finding in seen] == [("held", 32.0)]
    assert sweeper.look() == Survey((), (), ())
    assert clusters(world) == set()


def test_what_the_state_holds_is_left_alone_and_its_intent_closed(world: World, folder: Path, sweeper: Sweeper) -> None:
    process = Process(world, folder)
    created = process.order()
    process.die()
    export = exported(world, created.state)
    found, removals = sweeper.sweep(export=export, name_prefix="train")
    assert (found.findings, removals) == ((), [])
    assert clusters(world) == {created.cluster_id}
    assert sweeper.journal.look() == []


def test_a_complete_order_is_not_removed_while_a_state_may_hold_it(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    """Its intent stays open where the process dies after the engine's save, or where the journal could not be written.
    Only the export of its own stack, or a person's prefix, says that no state holds it."""
    process = Process(world, folder)
    created = process.order()
    process.die()
    elsewhere = {**created.state, "cluster_id": "other", "idempotency_key": "another-key"}
    for known in ({}, {"export": parse_export('{"resources": []}', "s", base_url=BASE_URL, now=world.ctx.clock.now())}):
        found, removals = sweeper.sweep(**known)
        (left,) = still_open(found, removals)
        assert left.problem is not None
        assert "the state of its stack (acme/web/dev) may hold it" in left.problem
        assert f"--name-prefix {created.state['name']}" in left.problem
    assert clusters(world) == {created.cluster_id}
    found, removals = sweeper.sweep(export=exported(world, elsewhere))
    assert still_open(found, removals) == []
    assert clusters(world) == set()


def test_a_complete_order_is_removed_by_the_prefix_of_a_person(world: World, folder: Path, sweeper: Sweeper) -> None:
    process = Process(world, folder)
    created = process.order()
    process.die()
    found, removals = sweeper.sweep(name_prefix=created.state["name"])
    assert still_open(found, removals) == []
    assert clusters(world) == set()
    assert sweeper.journal.look() == []


def test_a_create_that_was_cut_off_on_another_disk_is_found_by_its_exact_name(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    elsewhere = folder.parent / "lost"
    inputs = world.check()
    with pytest.raises(Killed):
        order(Process(world, elsewhere, dies_at=at(*LOST)).ctx, inputs)
    namesake = Process(world, elsewhere, seed=8).order(owner="acme/web/prod/train", name=f"{inputs['name']}2")
    found, (removal,) = sweeper.sweep(export=exported(world, pending=(inputs,)))
    assert [finding.kind for finding in found.findings] == ["pending create"]
    assert removal.error is None
    assert clusters(world) == {namesake.cluster_id}


@pytest.mark.parametrize("is_told", [True, False], ids=["the export tells the holder", "an older version's does not"])
def test_a_create_that_was_cut_off_is_not_given_up_with_the_key_of_another_account(
    world: World, folder: Path, sweeper: Sweeper, is_told: bool
) -> None:
    inputs = world.check()
    with pytest.raises(Killed):
        order(Process(world, folder.parent / "lost", dies_at=at(*LOST)).ctx, inputs)
    if not is_told:
        del inputs["holder"]
    export = exported(world, pending=(inputs,))
    world.pass_time(3 * 3600)
    found, removals = Sweeper(world, folder, key="sk_bob").sweep(export=export)
    (left,) = still_open(found, removals)
    assert (left.kind, left.price_per_hour, removals) == ("pending create", 32.0, [])
    assert left.problem is not None
    assert "$32.00 an hour" in left.problem
    assert "Set the API key" in left.problem
    assert len(clusters(world)) == 1
    found, removals = sweeper.sweep(export=export)
    assert still_open(found, removals) == []
    assert clusters(world) == set()


def test_without_its_holder_a_create_that_is_not_listed_stays_until_a_person_says_so(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    inputs = world.check()
    del inputs["holder"]
    export = exported(world, pending=(inputs,))
    world.pass_time(3 * 3600)
    (left,) = sweeper.look(export=export).findings
    assert "--same-key" in str(left.problem)
    vouched = parse_export(
        json.dumps(export.document), "s", base_url=BASE_URL, now=world.ctx.clock.now(), same_key=True
    )
    found, removals = sweeper.sweep(export=vouched)
    assert still_open(found, removals) == []


def test_the_journal_and_the_export_tell_of_one_order_once(world: World, folder: Path, sweeper: Sweeper) -> None:
    inputs = world.check()
    process = Process(world, folder, dies_at=at(*LOST))
    with pytest.raises(Killed):
        order(process.ctx, inputs)
    process.die()
    found = sweeper.look(export=exported(world, pending=(inputs,)))
    assert [finding.kind for finding in found.findings] == ["intent"]


def test_a_prefix_counts_only_when_it_is_passed(world: World, folder: Path, sweeper: Sweeper) -> None:
    created = Process(world, folder.parent / "lost").order(name="ci-417-train")
    kept = Process(world, folder.parent / "other", seed=8).order(name="ci-41-train")
    assert sweeper.look().findings == ()
    _, (removal,) = sweeper.sweep(name_prefix="ci-417-")
    assert removal.cluster_id == created.cluster_id
    assert clusters(world) == {kept.cluster_id}


def test_what_is_younger_is_left_alone_and_noted(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder.parent / "lost").order(name="ci-1")
    world.pass_time(1800)
    young = Process(world, folder.parent / "other", seed=8).order(name="ci-2")
    world.pass_time(60)
    found, removals = sweeper.sweep(name_prefix="ci-", older_than=timedelta(minutes=20))
    assert len(removals) == 1
    assert any("ci-2" in note and "left alone" in note for note in found.notes)
    assert [finding.cluster_id for finding in found.left_alone] == [young.cluster_id]
    assert found.unattributed == ()
    assert clusters(world) == {young.cluster_id}


def test_what_nothing_tells_of_is_not_attributed(world: World, folder: Path, sweeper: Sweeper) -> None:
    """Neither what the export owns, nor what a finding is about."""
    owned = Process(world, folder.parent / "owned").order(name="ci-1")
    other = Process(world, folder.parent / "other", seed=8).order(name="somebody-1")
    assert {finding.cluster_id for finding in sweeper.look().unattributed} == {owned.cluster_id, other.cluster_id}
    state = {"cluster_id": owned.cluster_id, "name": "ci-1", "price_per_hour": 32.0}
    (left,) = sweeper.look(export=exported(world, state)).unattributed
    assert (left.cluster_id, left.price_per_hour, left.removable) == (other.cluster_id, 32.0, False)
    found = sweeper.look(export=exported(world, state), name_prefix="somebody-")
    assert ([finding.kind for finding in found.findings], found.unattributed) == (["prefix"], ())


def test_two_clusters_of_one_name_are_both_found_by_a_prefix(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die(name="ci-1")
    (entry,) = sweeper.journal.look()
    body = {**entry.intent.body, "executor_uuids": ["a3", "a4"]}
    world.ctx.api.clusters.order(ClusterOrder(**body), idempotency_key="another-key-of-a-rival")
    both, sweeper = clusters(world), Sweeper(world, folder.parent / "bare")
    assert len(both) == 2
    found, removals = sweeper.sweep(name_prefix="ci-")
    assert {removal.cluster_id for removal in removals} == both
    assert still_open(found, removals) == []
    assert clusters(world) == set()


def test_a_cluster_with_the_mark_of_the_stack_is_named_and_not_touched(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    lost = Process(world, folder.parent / "lost").order()
    now = Process(world, folder.parent / "other", seed=8).order()
    found, removals = sweeper.sweep(export=exported(world, now.state))
    (finding,) = found.findings
    assert (finding.kind, finding.cluster_id, finding.price_per_hour) == ("stranger", lost.cluster_id, 32.0)
    assert finding.problem is not None
    assert f"--name-prefix {finding.name}" in finding.problem
    assert removals == []
    assert still_open(found, removals) == [finding]
    assert clusters(world) == {lost.cluster_id, now.cluster_id}


def test_the_mark_is_known_by_the_names_of_the_state_s_other_resources(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    lost = Process(world, folder.parent / "lost").order(owner="organization/web/dev/train")
    Process(world, folder.parent / "other", seed=8).order(owner="organization/web/prod/train")
    rows = [{"urn": "urn:pulumi:dev::web::pulumi:pulumi:Stack::web-dev", "type": "pulumi:pulumi:Stack"}]
    empty, others = (
        parse_export(json.dumps({"resources": some}), "s", base_url=BASE_URL, now=world.ctx.clock.now())
        for some in ([], rows)
    )
    assert [(finding.kind, finding.cluster_id) for finding in sweeper.look(export=others).findings] == [
        ("stranger", lost.cluster_id)
    ]
    found = sweeper.look(export=empty)
    assert found.findings == ()
    assert any("--name-prefix" in note for note in found.notes)


def test_a_listing_that_fails_says_that_nothing_is_known_and_what_may_bill(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die()
    world.fault("GET /pods", "status", code=503, times=0)
    with pytest.raises(NothingKnown, match=r"Nothing is known.*train-.*\$32\.00 an hour"):
        sweeper.look()
    assert len(clusters(world)) == 1


def test_one_that_refuses_keeps_no_other_from_being_removed(world: World, folder: Path, sweeper: Sweeper) -> None:
    stays = Process(world, folder.parent / "lost").order(name="ci-1").cluster_id
    Process(world, folder.parent / "other", seed=8).order(name="ci-2")
    world.event("refuse_delete", cluster=stays, rank=1, times=0)
    found = sweeper.look(name_prefix="ci-")
    removals = clean(sweeper.contexts, sweeper.journal, found, timeout=60)
    assert {removal.finding.name: removal.error is None for removal in removals} == {"ci-1": False, "ci-2": True}
    (left,) = still_open(found, removals)
    assert left.cluster_id == stays
    (error,) = [removal.error for removal in removals if removal.error]
    assert "rank 1" in error
    assert "$16.00 an hour" in error


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_sweep_that_dies_while_it_deletes_is_finished_by_the_next(world: World, folder: Path, where: str) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die()
    (cluster,) = clusters(world)
    dying = Sweeper(world, folder)
    dying.process = Process(world, folder, seed=98, dies_at=at("DELETE", f"/clusters/{cluster}", where))
    dying.journal = dying.process.intents
    with pytest.raises(Killed):
        dying.sweep()
    dying.process.die()
    second = Sweeper(world, folder)
    second.sweep()
    assert clusters(world) == set()
    assert second.journal.look() == []


def test_without_a_key_of_the_default_account_the_named_ones_are_asked(world: World, folder: Path) -> None:
    Process(world, folder, account="lab", dies_at=at(*LOST)).order_and_die(account="lab")
    lab = Process(world, folder, seed=9, account="lab")

    def contexts(account: str | None) -> Any:
        settings_for({}.get, {"LIUM_API_KEY_LAB": KEY}, account)
        return lab.ctx

    found = survey(contexts, lab.intents)
    assert [removal.error for removal in clean(contexts, lab.intents, found)] == [None]
    assert clusters(world) == set()
    with pytest.raises(NoApiKey):
        survey(contexts, lab.intents)
    lost = Process(world, folder.parent / "lost", seed=8).order(name="ci-1").cluster_id
    (finding,) = survey(contexts, lab.intents, name_prefix="ci-", account="lab").findings
    assert (finding.cluster_id, finding.account) == (lost, "lab")


def test_names_of_other_tenants_are_never_seen(world: World, folder: Path, sweeper: Sweeper) -> None:
    bob = world.context("sk_bob")
    order(bob, {**wanted(), "name": "ci-1", "idempotency_key": "0b5a2f0e-6f0f-4d3c-9b57-7c8f6f3f0c11"})
    found, removals = sweeper.sweep(name_prefix="ci")
    assert (found.findings, removals) == ((), [])
    assert len(clusters(world)) == 1


def test_an_intent_of_another_service_is_named_and_stays_open(world: World, folder: Path, sweeper: Sweeper) -> None:
    process = Process(world, folder, dies_at=at(*LOST))
    process.order_and_die()
    (path,) = folder.glob("*.json")
    path.write_text(path.read_text().replace(BASE_URL, "http://elsewhere.test/api"))
    found, removals = sweeper.sweep()
    (finding,) = found.findings
    assert finding.problem is not None
    assert "http://elsewhere.test/api" in finding.problem
    assert "$32.00 an hour" in finding.problem
    assert removals == []
    assert len(sweeper.journal.look()) == 1


def test_two_clusters_of_one_name_are_never_guessed_between(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder, dies_at=at(*LOST)).order_and_die(name="mine")
    (entry,) = sweeper.journal.look()
    body = {**entry.intent.body, "executor_uuids": ["a3", "a4"]}
    world.ctx.api.clusters.order(ClusterOrder(**body), idempotency_key="another-key-of-a-rival")
    found, removals = sweeper.sweep()
    (finding,) = found.findings
    assert finding.problem is not None
    assert "several clusters bear its name" in finding.problem
    assert removals == []
    assert len(clusters(world)) == 2
