"""The key of another account or workspace: its empty listing says nothing about the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.errors import OperationFailed, OrderUnsettled
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.lifecycle.update import update
from tests.support.dying import RENT, Process, at
from tests.support.world import World, over_the_wire

SAME_USER = [("sk_bob", "sk_lab"), ("sk_lab", "sk_bob")]
"""One user's key outside workspaces and within one: each lists its own pods (contract 1.2)."""


def ordered_with(world: World, key: str, **inputs: Any) -> Created:
    created = order(world.context(key), world.check(**inputs))
    world.pass_time(300)
    return replace(created, state=over_the_wire(created.state))


def look(verb: str, ctx: Context, created: Created) -> Any:
    news = created.state["requested"]
    calls = {
        "read": lambda: read(ctx, created.cluster_id, created.state),
        "diff": lambda: diff(ctx, created.cluster_id, created.state, news),
        "update": lambda: update(ctx, created.cluster_id, created.state, news),
        "remove": lambda: remove(ctx, created.cluster_id, created.state),
    }
    return calls[verb]()


@pytest.mark.parametrize("verb", ["read", "diff", "update", "remove"])
@pytest.mark.parametrize(
    ("ordered_by", "now"), [("sk_lab", "sk_shop"), ("sk_lab", "sk_ana"), ("sk_ana", "sk_lab"), *SAME_USER]
)
def test_with_another_key_it_is_not_gone(world: World, verb: str, ordered_by: str, now: str) -> None:
    created = ordered_with(world, ordered_by)
    with pytest.raises(OperationFailed) as error:
        look(verb, world.context(now), created)
    assert created.cluster_id in str(error.value)
    assert "$32.00 an hour" in str(error.value)
    assert "key" in str(error.value)
    assert len(world.listed()) == 2


def answering(world: World, ctx: Context, **changes: Any) -> None:
    """Lets `/users/me` answer the key's own user with these fields changed; None takes one out."""
    me = {"id": ctx.api.users.me().id, **changes}
    body = {name: value for name, value in me.items() if value is not None}
    world.fault("GET /users/me", "status", code=200, body=body, times=0)


@pytest.mark.parametrize(
    ("told", "is_same"),
    [
        ({"workspace": {"id": "w-1", "is_personal": True}}, True),
        ({"workspace": {"id": "w-1", "is_personal": False}}, False),
        ({"workspace": {"id": "w-1"}}, False),
        ({"workspace": {"name": "Research"}}, False),
        ({"workspace": {"id": "w-1", "is_personal": True}, "id": "somebody else"}, False),
        ({"id": None}, False),
    ],
)
def test_an_order_without_a_workspace_is_seen_in_the_personal_one_of_its_user_alone(
    world: World, told: dict[str, Any], is_same: bool
) -> None:
    created = ordered_with(world, "sk_ana")
    remove(world.ctx, created.cluster_id, created.state)
    answering(world, world.ctx, **told)
    if is_same:
        assert read(world.ctx, created.cluster_id, created.state) is None
        return
    with pytest.raises(OperationFailed, match=r"still runs is not known.*\$32\.00 an hour"):
        read(world.ctx, created.cluster_id, created.state)


@pytest.mark.parametrize("verb", ["read", "remove"])
def test_with_its_own_key_what_is_gone_is_gone(world: World, verb: str) -> None:
    created = ordered_with(world, "sk_lab")
    remove(world.context("sk_lab"), created.cluster_id, created.state)
    assert look(verb, world.context("sk_lab"), created) is None


def test_whose_the_key_is_has_to_be_readable_before_it_is_gone(world: World) -> None:
    created = ordered_with(world, "sk_ana")
    remove(world.ctx, created.cluster_id, created.state)
    world.fault("GET /users/me", "status", code=503, times=0)
    with pytest.raises(LiumError, match="503"):
        look("read", world.ctx, created)


def test_an_order_does_not_fail_because_the_account_cannot_be_read(world: World) -> None:
    world.fault("GET /users/me", "status", code=403, times=0)
    created = world.running()
    assert "holder" not in created.state
    assert read(world.ctx, created.cluster_id, created.state) is not None


def test_an_account_that_could_not_be_read_is_asked_again_and_then_no_more(world: World) -> None:
    world.fault("GET /users/me", "status", code=403)
    inputs = world.check()
    assert "holder" not in inputs
    assert order(world.ctx, inputs).state["holder"]["user"]
    assert world.check(owner="acme/web/dev/other")["holder"]
    assert world.calls("GET", "/users/me") == 2


def test_an_adopted_cluster_has_its_holder_too(world: World) -> None:
    running = ordered_with(world, "sk_lab")
    adopted = order(world.context("sk_lab"), world.check(adopt=running.cluster_id))
    assert adopted.state["holder"] == running.state["holder"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_order_is_not_settled_with_another_key(world: World, tmp_path: Path, when: str) -> None:
    Process(world, tmp_path, key="sk_lab", dies_at=at("POST", RENT, when, 1)).order_and_die()
    other = Process(world, tmp_path, key="sk_shop", seed=6)
    with pytest.raises(OrderUnsettled, match=r"\$32\.00 an hour"):
        other.order()
    assert len(world.listed()) == (2 if when == "after" else 0)
    other.die()
    assert Process(world, tmp_path, key="sk_lab", seed=7).order().state["holder"]["workspace"]
    assert len(world.listed()) == 2
