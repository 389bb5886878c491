"""An interrupted order is settled before the next one: taken over, or removed; never a second cluster beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.api.errors import LiumError
from pulumi_lium.engine_watch import EngineGone
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.errors import OperationFailed
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.recovery.intents import FileIntents, IntentLogError
from tests.support.dying import RENT, Killed, Process, at
from tests.support.world import START, World, public_key, scenario

POSTS = "POST /executors/cluster/rent"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "intents"


def clusters(world: World) -> list[str]:
    return sorted({pod["cluster_id"] for pod in world.listed()})


def orders(world: World) -> int:
    return sum(f"{row['method']} {row['path']}" == POSTS and bool(row["committed"]) for row in world.journal)


POINTS = {
    "before it was sent": ("POST", RENT, "before", 1),
    "sent, the answer not read": ("POST", RENT, "after", 1),
    "before the members were looked for": ("GET", "/pods", "before", 2),
    "listing not read": ("GET", "/pods", "after", 2),
}


@pytest.mark.parametrize("keys", [True, False], ids=["keys honoured", "no keys"])
@pytest.mark.parametrize("point", POINTS)
def test_whenever_an_order_dies_the_next_one_ends_with_one_cluster(folder: Path, point: str, keys: bool) -> None:
    world = World(scenario(settings={"rate_limit": False, "idempotency": keys}))
    Process(world, folder, dies_at=at(*POINTS[point])).order_and_die()
    begun = world.clock.at
    second = Process(world, folder, seed=6)
    created = second.order()
    assert clusters(world) == [created.cluster_id]
    assert orders(world) == 1
    if keys or point != "before it was sent":
        assert world.clock.at - begun < 60
    assert [entry.intent.cluster_id for entry in second.intents.look()] == [created.cluster_id]
    second.ctx.note_in_state(created.cluster_id, created.state)
    assert second.intents.look() == []


def test_what_was_taken_over_stands_in_the_state_as_if_it_had_been_ordered(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("GET", "/pods", "before", nth=2)).order_and_die(ttl="8h")
    world.pass_time(40)
    second = Process(world, folder, seed=6)
    created = second.order(ttl="8h")
    state = created.state
    assert second.said("took over cluster")
    assert second.said("$32.00 an hour")
    assert (state["fabric_type"], state["gpu_type"]) == ("infiniband", "H100")
    assert (state["nodes"], state["status"]) == (2, "rented")
    assert state["fabric_id"]
    assert state["price_per_hour"] == 32.0
    assert len({pod["removal_scheduled_at"] for pod in world.listed()}) == 1
    # Measured from the first order, not from the taking over.
    ends = datetime.fromisoformat(state["expires_at"]) - datetime.fromisoformat(state["ordered_at"])
    assert ends == timedelta(hours=8)
    assert not diff(second.ctx, created.cluster_id, state, dict(state["requested"])).changes


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes": 3},
        {"gpu_type": None, "country": "NO"},
        {"max_price_per_hour": 31.0},
        {"ssh_public_keys": [public_key(9)]},
        {"machines": ["a3", "a4"]},
        {"backups": False},
        {"name": "mine"},
    ],
    ids=lambda changed: next(iter(changed)) if len(changed) == 1 else "country",
)
def test_what_does_not_fit_any_more_is_removed_and_ordered_anew(
    world: World, folder: Path, changed: dict[str, Any]
) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    (old,) = clusters(world)
    second = Process(world, folder, seed=6)
    if changed.get("max_price_per_hour"):
        with pytest.raises(LiumError, match="above max_price_per_hour"):
            second.order(**changed)
        assert clusters(world) == []
        return
    created = second.order(**changed)
    assert created.cluster_id != old
    assert clusters(world) == [created.cluster_id]
    assert second.said(f"cluster {old} of that order is removed")
    # The new order left only after the old cluster was gone.
    requests = world.requests()
    assert requests.index(f"DELETE /clusters/{old}") < len(requests) - 1 - requests[::-1].index(POSTS)


def test_an_order_that_never_arrived_is_not_placed_for_somebody_who_wants_another(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "before")).order_and_die()
    created = Process(world, folder, seed=6).order(nodes=3)
    assert orders(world) == 1
    assert len(created.state["members"]) == 3


def test_without_keys_a_lost_order_is_waited_for_until_it_cannot_arrive_any_more(folder: Path) -> None:
    world = World(scenario(settings={"rate_limit": False, "idempotency": False}))
    Process(world, folder, dies_at=at("POST", RENT, "before")).order_and_die()
    created = Process(world, folder, seed=6).order()
    assert clusters(world) == [created.cluster_id]
    assert 325 < datetime.fromisoformat(created.state["ordered_at"]).timestamp() - START < 345


def test_of_several_interrupted_orders_one_is_taken_over_and_the_others_are_removed(world: World, folder: Path) -> None:
    # They can only come of journals that were brought together; still one cluster is left.
    other = folder.parent / "other"
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    Process(world, other, seed=7, dies_at=at("POST", RENT, "after")).order_and_die()
    for path in other.glob("*.json"):
        path.rename(folder / path.name)
    assert len(clusters(world)) == 2
    created = Process(world, folder, seed=6).order()
    assert clusters(world) == [created.cluster_id]


def test_an_interrupted_order_of_a_resource_that_left_the_program_is_named(world: World, folder: Path) -> None:
    """Once, with its price and the command that settles it; neither a living process's nor another stack's is."""
    unsent = at("POST", RENT, "before")
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die(owner="acme/web/dev/eval")
    Process(world, folder, seed=6, dies_at=unsent).order_and_die(owner="acme/web/prod/eval")
    alive = Process(world, folder, seed=7, dies_at=at("POST", RENT, "before"))
    with pytest.raises(Killed):
        alive.order(owner="acme/web/dev/serve")
    lost = clusters(world)
    process = Process(world, folder, seed=8)
    created = process.order()
    assert diff(process.ctx, created.cluster_id, created.state, created.state["requested"]).replaces == {}
    remove(process.ctx, created.cluster_id, created.state)
    (line,) = [line for line in process.told if "was interrupted" in line]
    assert "(resource acme/web/dev/eval)" in line
    assert "$32.00 an hour" in line
    assert "pulumi-lium sweep --stack-export stack.json --yes" in line
    assert clusters(world) == lost
    alive.die()


@pytest.mark.parametrize("verb", ["diff", "remove"])
def test_an_interrupted_order_is_named_where_nothing_is_ordered(world: World, folder: Path, verb: str) -> None:
    created = Process(world, folder.parent / "other").order()
    Process(world, folder, seed=6, dies_at=at("POST", RENT, "after")).order_and_die(owner="acme/web/dev/eval")
    process = Process(world, folder, seed=7)
    if verb == "diff":
        diff(process.ctx, created.cluster_id, created.state, created.state["requested"])
    else:
        remove(process.ctx, created.cluster_id, created.state)
    assert process.said("(resource acme/web/dev/eval) was interrupted")


def test_the_interrupted_orders_of_one_program_are_settled_and_not_named(world: World, folder: Path) -> None:
    owners = ("acme/web/dev/train", "acme/web/dev/eval")
    for seed, owner in enumerate(owners):
        Process(world, folder, seed=seed, dies_at=at("POST", RENT, "before")).order_and_die(owner=owner)
    process = Process(world, folder, seed=7)
    checked = [process.check(owner=owner) for owner in owners]
    for inputs in checked:
        order(process.ctx, inputs)
    assert not process.said("was interrupted: it may be billing")
    assert len(clusters(world)) == 2


def test_a_failed_node_is_not_taken_over(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    (old,) = clusters(world)
    world.event("pod_fails", pod=world.listed()[0]["id"], reason="no RDMA port")
    created = Process(world, folder, seed=6).order()
    assert created.cluster_id != old
    assert old not in clusters(world)


def test_an_order_waits_for_the_provider_of_a_killed_engine(world: World, folder: Path) -> None:
    first = Process(world, folder, dies_at=at("GET", "/pods", "before", nth=2))
    with pytest.raises(Killed):
        first.order()  # its process is still there, and so are its locks
    second = Process(world, folder, seed=6)
    sleep, end = second.ctx.clock.sleep, world.clock.at + 20

    def wait(seconds: float) -> None:
        sleep(seconds)
        if world.clock.at > end:
            first.die()

    second.ctx.clock.sleep = wait  # type: ignore[method-assign]
    created = second.order()
    assert second.said("waiting for it")
    assert clusters(world) == [created.cluster_id]
    assert orders(world) == 1


def test_a_provider_that_never_ends_keeps_the_order_back(world: World, folder: Path) -> None:
    first = Process(world, folder, dies_at=at("GET", "/pods", "before", nth=2))
    with pytest.raises(Killed):
        first.order()
    with pytest.raises(OperationFailed, match=r"\$32\.00 an hour"):
        Process(world, folder, seed=6).order()
    assert orders(world) == 1
    first.die()


def test_a_listing_that_fails_keeps_the_order_back_and_the_intent_open(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    world.fault("GET /pods", "status", code=503, times=0)
    with pytest.raises(LiumError):
        Process(world, folder, seed=6).order()
    assert orders(world) == 1
    assert [entry.held for entry in FileIntents(folder).look()] == [False]


def test_a_removal_that_fails_keeps_the_intent_open(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    (old,) = clusters(world)
    world.event("refuse_delete", cluster=old, rank=1, times=0)
    with pytest.raises(OperationFailed, match=r"intent journal.*sweep --yes"):
        Process(world, folder, seed=6).order(nodes=3)
    (entry,) = FileIntents(folder).look()
    assert entry.intent.cluster_id == old
    assert not entry.held


def test_an_unreadable_intent_keeps_every_order_back(world: World, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "0b5a2f0e-6f0f.json").write_text("{")
    with pytest.raises(IntentLogError, match="cannot be read"):
        Process(world, folder).order()
    assert orders(world) == 0


def test_the_intent_of_another_service_is_named_and_left_open(world: World, folder: Path) -> None:
    first = Process(world, folder, account="work", dies_at=at("POST", RENT, "after"))
    first.order_and_die(account="work")
    second = Process(world, folder, seed=6)
    created = second.order()
    assert second.said("account work")
    assert len(clusters(world)) == 2
    assert {entry.intent.account for entry in second.intents.look()} == {"work", None}
    assert created.cluster_id


def test_a_cluster_with_our_mark_that_nothing_accounts_for_is_named_and_left_alone(world: World, folder: Path) -> None:
    Process(world, folder, dies_at=at("POST", RENT, "after")).order_and_die()
    (lost,) = clusters(world)
    bare = Process(world, folder.parent / "bare", seed=6)
    created = bare.order()
    assert set(clusters(world)) == {lost, created.cluster_id}
    assert bare.said(lost)
    assert bare.said("sweep --name-prefix train-")
    assert bare.said("$32.00 an hour")


def test_clusters_of_others_are_never_named(world: World, folder: Path) -> None:
    Process(world, folder).order(owner="acme/web/prod/train")
    second = Process(world, folder, seed=6)
    second.order()
    assert not second.said("bears the mark")


def test_no_order_leaves_once_the_engine_is_gone(world: World, folder: Path) -> None:
    process = Process(world, folder)

    def gone() -> None:
        raise EngineGone

    with pytest.raises(EngineGone):
        order(replace(process.ctx, require_caller=gone), world.check())
    assert orders(world) == 0
    assert process.intents.look() == []
