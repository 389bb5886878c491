"""A field case told to the verbs in this process: its machines in the market, its story on the wire, its own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.lifecycle.ready import ready_args, wait_ready
from tests.field.story import KEY, Story
from tests.support.world import World, over_the_wire, public_key

CLUSTER = "c1a50000-0000-4000-8000-0000000000a1"
POD = "9a000000-0000-4000-8000-00000000000{}"


def told(story: Story, steps: Sequence[Mapping[str, Any]] | None = None) -> World:
    """The case's market and story; `steps` in place of the case's own."""
    world = World(story.scenario(), key=KEY)
    world.script(story.steps if steps is None else steps)
    return world


def checked(world: World, props: Mapping[str, Any]) -> dict[str, Any]:
    """The case's properties as checked inputs, with a key that the cases leave out."""
    inputs, failures = check(world.ctx, {}, {"owner": "acme/web/dev/case", "ssh_public_keys": [public_key()], **props})
    assert failures == []
    return inputs


def create(world: World, story: Story) -> Created:
    """The case's order, its state as the engine gives it back."""
    created = order(world.ctx, checked(world, story.order))
    return Created(created.cluster_id, over_the_wire(created.state))


def wait(world: World, created: Created, **options: Any) -> dict[str, Any]:
    """The readiness resource of a cluster."""
    state = created.state
    told_of = {name: state[name] for name in ("name", "nodes", "members", "price_per_hour")}
    return wait_ready(world.ctx, ready_args({"cluster_id": created.cluster_id, **told_of, **options}))


def orders(world: World) -> list[dict[str, Any]]:
    return [row for row in world.journal if row["method"] == "POST" and row["path"].endswith("/cluster/rent")]


def deletes(world: World) -> int:
    return sum(row["method"] == "DELETE" for row in world.journal)
