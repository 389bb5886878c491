"""Check: what it adds, keeps and says."""

from __future__ import annotations

import pytest

from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.values import UNKNOWN
from tests.support.world import World, wanted


def test_the_preview_shows_machines_and_price_in_one_line(world: World) -> None:
    inputs = world.check()
    assert world.told == [
        "train: a new cluster would be 2 × 8 H100 on fabric "
        f"{inputs['planned']['fabric_id']!r} (infiniband, 400 Gb/sec), $32.00 an hour."
    ]
    assert inputs["planned"] == {
        "fabric_id": inputs["planned"]["fabric_id"],
        "fabric_type": "infiniband",
        "gpu_type": "H100",
        "gpus_per_node": 8,
        "machines": ["a1", "a2"],
        "price_per_hour": 32.0,
    }
    assert inputs["name"].startswith("train-")
    assert inputs["idempotency_key"]


def test_whose_key_it_is_goes_into_the_inputs_and_stays_while_the_cluster_does(world: World) -> None:
    first = world.check()
    assert first["holder"] == {"user": world.ctx.api.users.me().id}
    looks = len(world.journal)
    other, failures = check(world.context("sk_lab"), first, wanted())
    assert (other["holder"], failures) == (first["holder"], [])
    assert len(world.journal) == looks


def test_an_older_state_gets_no_holder_and_nothing_changes_by_it(world: World) -> None:
    created = world.running()
    older = {name: value for name, value in created.state["requested"].items() if name != "holder"}
    state = {**created.state, "requested": older}
    assert "holder" in created.state["requested"]
    assert "holder" not in world.check(older)
    assert not diff(world.ctx, created.cluster_id, state, world.check(older)).changes
    assert not diff(world.ctx, created.cluster_id, state, world.check(created.state["requested"])).changes


def test_an_account_that_cannot_be_read_keeps_nothing_from_being_checked(world: World) -> None:
    world.fault("GET /users/me", "status", code=403, times=0)
    assert "holder" not in world.check()


def test_name_key_and_plan_stay_while_the_cluster_does(world: World) -> None:
    first = world.check()
    looks = len(world.journal)
    again = world.check(first, ttl="2h")
    assert {name: again[name] for name in ("name", "idempotency_key", "planned")} == {
        name: first[name] for name in ("name", "idempotency_key", "planned")
    }
    assert len(world.journal) == looks


def test_a_replacement_gets_its_own_name_and_key(world: World) -> None:
    first, second = world.check(), world.check({})
    assert first["name"] != second["name"]
    assert first["idempotency_key"] != second["idempotency_key"]


def test_a_name_of_the_person_is_kept_as_it_is_also_after_it_was_taken_out(world: World) -> None:
    first = world.check(name="mine")
    assert first["name"] == "mine"
    assert world.check(first)["name"] == "mine"


def test_nothing_that_matches_is_a_warning(world: World) -> None:
    inputs = world.check(nodes=4, country="NO")
    assert "planned" not in inputs
    assert len(world.told) == 1
    assert world.told[0].startswith("warning: train: No fabric on sale fits")


@pytest.mark.parametrize(("code", "will_fail"), [(503, False), (401, True), (403, True)])
def test_offers_that_cannot_be_read_are_a_warning(world: World, code: int, will_fail: bool) -> None:
    world.fault("GET /executors/infiniband-clusters", "status", code=code, times=0)
    inputs = world.check()
    assert "planned" not in inputs
    assert "cannot be read" in world.told[0]
    assert ("The order will fail" in world.told[0]) is will_fail


def test_unknown_selectors_are_resolved_during_the_update(world: World) -> None:
    inputs, failures = check(world.ctx, {}, wanted(max_price_per_hour=UNKNOWN, machines=[UNKNOWN, "a1"]))
    assert failures == []
    assert inputs["max_price_per_hour"] is UNKNOWN
    assert inputs["machines"] == [UNKNOWN, "a1"]
    assert "planned" not in inputs
    assert [row["path"] for row in world.journal] == ["/users/me"]
    assert world.said("chosen during the update")


def test_an_unknown_owner_leaves_the_name_unknown(world: World) -> None:
    inputs, failures = check(world.ctx, {}, wanted(owner=UNKNOWN))
    assert failures == []
    assert inputs["name"] is UNKNOWN


def test_failures_come_with_the_inputs_as_they_were(world: World) -> None:
    inputs, failures = check(world.ctx, {}, wanted(nodes=1))
    assert [name for name, _ in failures] == ["nodes"]
    assert inputs["nodes"] == 1
    assert world.journal == []


def test_to_adopt_nothing_is_planned(world: World) -> None:
    inputs = world.check(adopt="c-1")
    assert {"name", "planned", "idempotency_key"}.isdisjoint(inputs)
    assert world.journal == []


def test_an_adoption_outlives_its_input_until_a_replacement(world: World) -> None:
    adopted = world.check(adopt="c-1")
    later = world.check(adopted)
    assert later["adopted"] == "c-1"
    assert {"name", "idempotency_key"}.isdisjoint(later)
    assert world.check(later)["adopted"] == "c-1"
    replacement = world.check({})
    assert "adopted" not in replacement
    assert replacement["name"]
