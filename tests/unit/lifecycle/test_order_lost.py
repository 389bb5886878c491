"""An order whose answer is lost is followed to its end (contract 5.3, 5.4)."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.lifecycle.errors import OperationFailed, OrderUnsettled
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.settle import IN_FLIGHT_SECONDS
from tests.support.world import HOURLY, KEY, World, scenario

RENT = "POST /executors/cluster/rent"


def orders(world: World) -> list[dict[str, Any]]:
    return [row for row in world.journal if f"{row['method']} {row['path']}" == RENT]


def open_intents(world: World) -> list[str]:
    return [intent.pod_name for intent in world.intents.open_ones.values()]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("status", {"code": 504, "commit": True}),
        ("drop_after_commit", {}),
        ("not_json", {}),
        ("status", {"code": 504, "commit": False}),
        ("drop_before_commit", {}),
    ],
)
@pytest.mark.parametrize("idempotency", [True, False], ids=["idempotency", "no-idempotency"])
def test_a_lost_answer_is_followed_to_its_end(kind: str, fields: dict[str, Any], idempotency: bool) -> None:
    told = scenario()
    told["settings"]["idempotency"] = idempotency
    world = World(told)
    inputs = world.check()
    world.fault(RENT, kind, **fields)
    committed = fields.get("commit", kind in ("drop_after_commit", "not_json"))
    if not committed and not idempotency:
        # It may arrive for as long as the service could be at work on it: only then is it certain that it never will.
        before = world.clock.at
        with pytest.raises(OperationFailed, match=r"came to nothing.*Nothing is rented"):
            order(world.ctx, inputs)
        assert world.clock.at - before > IN_FLIGHT_SECONDS
        assert open_intents(world) == []
        assert world.listed() == []
        assert len(orders(world)) == 1
        return
    created = order(world.ctx, inputs)
    assert [row["id"] for row in world.state["clusters"]] == [created.cluster_id]
    assert {row["idempotency_key"] for row in orders(world)} == {inputs["idempotency_key"]}
    assert len(orders(world)) == (2 if idempotency else 1)
    assert created.state["price_per_hour"] == 2 * HOURLY


def test_an_order_that_arrives_late_is_waited_for() -> None:
    """Were it given up, the engine would forget it, and a machine that is lost then its intent."""
    told = scenario()
    told["settings"]["idempotency"] = False
    world = World(told)
    inputs = world.check()
    world.fault(RENT, "drop_before_commit")
    arrives, sleep = world.clock.at + 280, world.clock.sleep

    def sleep_and_arrive(seconds: float) -> None:
        sleep(seconds)
        if world.clock.at >= arrives and not world.state["clusters"]:
            (intent,) = world.intents.open_ones.values()
            world.service.change(lambda market: market.order_cluster(KEY, dict(intent.body), None))

    world.clock.sleep = sleep_and_arrive  # type: ignore[method-assign]
    created = order(world.ctx, inputs)
    assert [row["id"] for row in world.state["clusters"]] == [created.cluster_id]
    assert world.intents.stages[inputs["idempotency_key"]][-1] == "listed"


def test_what_came_of_an_order_stays_unknown_while_no_listing_can_be_read() -> None:
    told = scenario()
    told["settings"]["idempotency"] = False
    world = World(told)
    inputs = world.check()
    world.fault(RENT, "drop_after_commit")
    world.fault("GET /pods", "status", code=503, times=0, after=1)
    with pytest.raises(OrderUnsettled) as error:
        order(world.ctx, inputs)
    text = str(error.value)
    assert inputs["name"] in text
    assert "may be billing $32.00 an hour" in text
    assert f"pulumi-lium sweep --name-prefix {inputs['name']}" in text
    assert open_intents(world) == [inputs["name"]]
