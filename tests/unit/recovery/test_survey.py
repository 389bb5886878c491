"""Survey against the in-process market: what is found, what is only named, what is left alone."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from pulumi_lium.api import ClusterOrder
from pulumi_lium.lifecycle.order import order
from pulumi_lium.recovery.export import parse_export
from pulumi_lium.recovery.survey import NothingKnown
from pulumi_lium.recovery.sweep import still_open
from tests.support.dying import BASE_URL, Killed, Process, at
from tests.support.sweeper import LOST, UNSENT, Sweeper, clusters, exported
from tests.support.world import World, wanted


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
