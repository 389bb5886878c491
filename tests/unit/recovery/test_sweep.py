"""Clean against the in-process market: what is removed, and what is seen to be gone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.api import ClusterOrder, NoApiKey
from pulumi_lium.commands.sweep import sweep
from pulumi_lium.lifecycle.accounts import settings_for
from pulumi_lium.lifecycle.order import order
from pulumi_lium.recovery.findings import Survey
from pulumi_lium.recovery.survey import survey
from pulumi_lium.recovery.sweep import clean, still_open
from tests.support.dying import RENT, Killed, Process, at
from tests.support.sweeper import LOST, UNSENT, Sweeper, clusters, exported
from tests.support.world import KEY, World


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


def test_without_patience_it_stays_open_and_is_named(world: World, folder: Path, sweeper: Sweeper) -> None:
    Process(world, folder, dies_at=at(*UNSENT)).order_and_die()
    found, removals = sweeper.sweep(patience=0)
    (removal,) = removals
    assert removal.error is not None
    assert "may arrive until" in removal.error
    assert "$32.00 an hour" in removal.error
    assert len(still_open(found, removals)) == 1
    assert [entry.held for entry in sweeper.journal.look()] == [False]


def test_the_wait_of_the_command_line_suffices_where_an_answer_was_lost_just_now(
    world: World, folder: Path, sweeper: Sweeper
) -> None:
    (waits,) = (option.default for option in sweep.params if option.name == "wait")
    Process(world, folder, dies_at=at(*UNSENT)).order_and_die()
    sleep = sweeper.process.ctx.clock.sleep
    # Every look takes its time, and no sleep ends on the dot.
    sweeper.process.ctx.clock.sleep = lambda seconds: sleep(seconds + 0.02)  # type: ignore[method-assign]
    found, removals = sweeper.sweep(patience=waits)
    assert still_open(found, removals) == []
    assert sweeper.journal.look() == []


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


def test_a_prefix_counts_only_when_it_is_passed(world: World, folder: Path, sweeper: Sweeper) -> None:
    created = Process(world, folder.parent / "lost").order(name="ci-417-train")
    kept = Process(world, folder.parent / "other", seed=8).order(name="ci-41-train")
    assert sweeper.look().findings == ()
    _, (removal,) = sweeper.sweep(name_prefix="ci-417-")
    assert removal.cluster_id == created.cluster_id
    assert clusters(world) == {kept.cluster_id}


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
