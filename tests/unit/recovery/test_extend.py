"""The two stages of a lifetime on the emulator's clock: `ttl` is the hard cap, `extend` moves it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.errors import InvalidInputs, OperationFailed
from pulumi_lium.recovery.extend import extend
from tests.support.world import World

HOUR = 3600.0


def billing(world: World) -> int:
    return len(world.state["billing"]["pods"])


def test_the_time_limit_ends_a_cluster_however_busy_it_is(world: World) -> None:
    world.running(ttl="2h")
    world.pass_time(2 * HOUR - 60 - 1)
    assert billing(world) == 2
    world.pass_time(60)
    assert billing(world) == 0
    world.pass_time(HOUR)
    assert world.listed() == []


def test_extend_moves_it_for_every_member_and_it_ends_then(world: World) -> None:
    created = world.running(ttl="2h")
    moved = extend(world.ctx, created.cluster_id, total=timedelta(hours=3))
    assert (moved.input, moved.price_per_hour) == ("3h", 32.0)
    world.pass_time(2 * HOUR)
    assert billing(world) == 2
    world.pass_time(HOUR)
    assert billing(world) == 0


def test_by_adds_to_the_present_end_and_tells_what_the_program_has_to_say(world: World) -> None:
    created = world.running(ttl="2h")
    moved = extend(world.ctx, created.cluster_id, by=timedelta(minutes=90))
    assert moved.input == "210m"
    inputs = {**created.state["requested"], "ttl": moved.input}
    assert "ttl" in diff(world.ctx, created.cluster_id, created.state, created.state["requested"]).updates
    state = {**created.state, "requested": inputs}
    assert not diff(world.ctx, created.cluster_id, state, inputs).changes


def test_a_cluster_without_a_limit_gets_one_by_ttl_alone(world: World) -> None:
    created = world.running()
    with pytest.raises(InvalidInputs, match="give --ttl"):
        extend(world.ctx, created.cluster_id, by=timedelta(hours=1))
    extend(world.ctx, created.cluster_id, total=timedelta(hours=1))
    world.pass_time(HOUR)
    assert billing(world) == 0


def test_an_end_that_is_over_is_refused_and_nothing_changed(world: World) -> None:
    created = world.running(ttl="8h")
    world.pass_time(2 * HOUR)
    before = [pod["removal_scheduled_at"] for pod in world.listed()]
    with pytest.raises(OperationFailed, match="Nothing was changed"):
        extend(world.ctx, created.cluster_id, total=timedelta(hours=1))
    assert [pod["removal_scheduled_at"] for pod in world.listed()] == before


def test_a_member_that_keeps_its_old_end_is_named_with_what_bills(world: World) -> None:
    created = world.running(ttl="2h")
    world.fault("POST /pods/*/schedule-removal", "status", code=402, times=1)
    with pytest.raises(OperationFailed, match=r"rank 0.*\$32\.00 an hour.*members end at"):
        extend(world.ctx, created.cluster_id, total=timedelta(hours=3))
    extend(world.ctx, created.cluster_id, total=timedelta(hours=3))
    assert len({pod["removal_scheduled_at"] for pod in world.listed()}) == 1


def test_a_cluster_that_is_gone_cannot_be_extended(world: World) -> None:
    with pytest.raises(OperationFailed, match="nothing to extend"):
        extend(world.ctx, "c-none", total=timedelta(hours=3))
