"""Create: one order, whose outcome is known (contract 5.2 to 5.4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulumi_lium.api import InsufficientBalance, ServerError, TransportError, Unauthorized
from pulumi_lium.api.errors import Conflict, LiumError
from pulumi_lium.lifecycle.errors import InvalidInputs, NothingMatches, OperationFailed, OrderUnsettled
from pulumi_lium.lifecycle.order import order
from tests.support.world import HOURLY, START, World, public_key, scenario

RENT = "POST /executors/cluster/rent"


def orders(world: World) -> list[dict[str, Any]]:
    return [row for row in world.journal if f"{row['method']} {row['path']}" == RENT]


def open_intents(world: World) -> list[str]:
    return [intent.pod_name for intent in world.intents.open_ones.values()]


def test_the_state_is_whole_as_soon_as_the_members_are_listed(world: World) -> None:
    created = world.order(ttl="8h", ports_per_node=5)
    state = created.state
    assert created.cluster_id == state["cluster_id"] == world.state["clusters"][0]["id"]
    assert {pod["status"] for pod in world.listed()} == {"PENDING"}
    assert world.clock.at == START
    assert (state["status"], state["lost"], state["unscheduled"]) == ("rented", [], [])
    assert (state["fabric_type"], state["gpu_type"], state["gpus_per_node"], state["nodes"]) == (
        "infiniband",
        "H100",
        8,
        2,
    )
    assert state["price_per_hour"] == 2 * HOURLY
    assert state["master_addr"] == "10.42.0.1"
    assert state["node_addrs"] == ["10.42.0.1", "10.42.0.2"]
    assert state["hostfile"] == "10.42.0.1 slots=8\n10.42.0.2 slots=8\n"
    assert state["torchrun_args"] == [
        f"--nnodes 2 --nproc_per_node 8 --node_rank {rank} --master_addr 10.42.0.1" for rank in (0, 1)
    ]
    assert [row["machine_id"] for row in state["members"]] == ["a1", "a2"]
    assert state["expires_at"] == (world.ctx.clock.now() + timedelta(hours=8)).isoformat()
    assert world.said(f"cluster {created.cluster_id}")
    assert world.said("$32.00 an hour")


def test_from_the_check_on_the_requests_are_those_of_the_official_client_whose_key_is_registered(world: World) -> None:
    inputs = world.check(ports_per_node=5, backups=False)
    before = len(world.journal)
    order(world.ctx, inputs)
    assert world.requests()[before:] == [
        "GET /templates",
        "GET /pods",
        RENT,
        "GET /pods",
    ]
    (intent,) = world.intents.open_ones.values()
    (newest,) = [found for found in world.ctx.api.templates.list() if found.docker_image_tag == "0.0.10"]
    assert dict(intent.body) == {
        "pod_name": inputs["name"],
        "template_id": newest.id,
        "executor_uuids": ["a1", "a2"],
        "user_public_key": [public_key()],
        "initial_port_count": 5,
        "enable_volume_encryption": True,
        "enable_backups": False,
    }
    assert orders(world)[0]["idempotency_key"] == inputs["idempotency_key"]


def test_offers_that_a_check_saw_serve_one_order_and_a_moment_only(world: World) -> None:
    def asked() -> int:
        return world.calls("GET", "/executors/infiniband-clusters")

    one, two = (world.check(owner=f"acme/web/dev/{name}", resource=name) for name in ("one", "two"))
    order(world.ctx, one)
    assert asked() == 2
    order(world.ctx, two)
    assert asked() == 3, "an order has left since"
    late = world.check(fabric_type="roce")
    world.pass_time(3.5)
    order(world.ctx, late)
    assert asked() == 5


def test_a_machine_that_is_taken_after_the_check_is_replaced(world: World) -> None:
    inputs = world.check()
    world.event("machine_taken", host="a1")
    assert [row["machine_id"] for row in order(world.ctx, inputs).state["members"]] == ["a2", "a3"]


def test_a_machine_that_comes_free_after_the_check_is_seen(world: World) -> None:
    world.event("machine_taken", host="a1")
    inputs = world.check(nodes=4)
    assert "planned" not in inputs
    world.event("machine_freed", host="a1")
    assert order(world.ctx, inputs).state["members"][0]["machine_id"] == "a1"


def test_the_intent_is_kept_before_the_order_and_stays_open_until_the_engine_asks(world: World) -> None:
    created = world.order()
    (intent,) = world.intents.open_ones.values()
    assert world.intents.stages[intent.idempotency_key] == ["opened", "sent", "answered", "listed"]
    assert (intent.cluster_id, intent.nodes, intent.price_per_hour) == (created.cluster_id, 2, 2 * HOURLY)
    assert intent.owner == "acme/web/dev/train"
    assert set(intent.pod_ids) == {pod["id"] for pod in world.listed()}


def test_no_order_without_a_listing_before_it(world: World) -> None:
    inputs = world.check()
    world.fault("GET /pods", "status", code=503, times=0)
    with pytest.raises(ServerError, match="Nothing was ordered"):
        order(world.ctx, inputs)
    assert orders(world) == []
    assert open_intents(world) == []


def test_no_order_under_a_name_that_is_in_use(world: World) -> None:
    first = world.order(name="mine")
    with pytest.raises(InvalidInputs, match=first.cluster_id):
        order(world.ctx, world.check(name="mine", owner="acme/web/dev/other"))
    assert len(orders(world)) == 1


def test_nothing_matches_is_an_error_with_every_reason(world: World) -> None:
    inputs = world.check(nodes=3, country="Norway")
    assert "planned" not in inputs
    assert world.said("warning: train: No fabric on sale fits")
    with pytest.raises(NothingMatches) as error:
        order(world.ctx, inputs)
    assert "free 2 of 2, asked 3" in str(error.value)
    assert "in United States, Norway wanted" in str(error.value)
    assert orders(world) == []


def test_an_order_that_never_left_is_no_unknown(world: World) -> None:
    inputs = world.check()
    world.fault(RENT, "refused")
    with pytest.raises(TransportError):
        order(world.ctx, inputs)
    assert open_intents(world) == []
    assert len(orders(world)) == 1


def test_an_order_in_progress_is_waited_for_with_the_same_key(world: World) -> None:
    inputs = world.check()
    busy = {"success": False, "error": {"code": "idempotency_in_progress", "message": "running"}, "message": "running"}
    world.fault(RENT, "drop_after_commit")
    world.fault(RENT, "status", code=409, body=busy, times=3)
    created = order(world.ctx, inputs)
    assert [row["id"] for row in world.state["clusters"]] == [created.cluster_id]
    assert {row["idempotency_key"] for row in orders(world)} == {inputs["idempotency_key"]}
    assert len(orders(world)) == 5


@pytest.mark.parametrize("code", [401, 403, 402])
def test_a_refusal_of_the_resend_alone_says_nothing_about_the_first(world: World, code: int) -> None:
    inputs = world.check()
    world.fault(RENT, "drop_after_commit")
    world.fault(RENT, "status", code=code)
    created = order(world.ctx, inputs)
    assert [row["id"] for row in world.state["clusters"]] == [created.cluster_id]


def test_a_refused_resend_is_believed_only_if_no_cluster_is_listed(world: World) -> None:
    inputs = world.check()
    world.fault(RENT, "drop_after_commit")
    world.fault(RENT, "status", code=422)
    assert order(world.ctx, inputs).cluster_id == world.state["clusters"][0]["id"]


def test_a_refused_resend_of_an_order_that_was_not_done_is_definite(world: World) -> None:
    inputs = world.check()
    world.fault(RENT, "drop_before_commit")
    world.fault(RENT, "status", code=422)
    with pytest.raises(LiumError) as error:
        order(world.ctx, inputs)
    assert error.value.status == 422
    assert open_intents(world) == []


@pytest.mark.parametrize(
    ("key", "kind"), [("sk_wrong", Unauthorized), ("sk_reader", LiumError), ("sk_poor", InsufficientBalance)]
)
def test_a_refusal_of_the_account_rents_nothing(key: str, kind: type[LiumError]) -> None:
    told = scenario()
    told["accounts"].append({"id": "eve", "balance": 5.0, "keys": [{"key": "sk_reader", "scopes": ["read"]}]})
    told["accounts"].append({"id": "max", "balance": 5.0, "keys": [{"key": "sk_poor"}]})
    world = World(told)
    inputs = world.check()
    with pytest.raises(kind) as error:
        order(world.context(key), inputs)
    assert key not in str(error.value)
    assert world.listed() == []
    assert open_intents(world) == []


def test_a_machine_that_was_taken_is_replaced_under_a_new_key(world: World) -> None:
    inputs = world.check()
    taken = {"success": False, "message": "Node a1 is already rented"}
    world.fault(RENT, "status", code=200, body=taken, commit=False)
    created = order(world.ctx, inputs)
    assert [row["machine_id"] for row in created.state["members"]] == ["a2", "a3"]
    keys = [row["idempotency_key"] for row in orders(world)]
    assert keys[0] == inputs["idempotency_key"]
    assert len(set(keys)) == 2
    assert created.state["idempotency_key"] == keys[1]
    assert len(world.intents.open_ones) == 1


def test_at_most_two_new_picks(world: World) -> None:
    inputs = world.check(fabric_type="infiniband")
    for name in ("a1", "a2", "a3", "a4"):
        world.event("refuse_order", host=name, times=0, reason=f"{name} is already rented")
    with pytest.raises(LiumError, match="Nothing was rented"):
        order(world.ctx, inputs)
    assert len(orders(world)) == 3
    assert len({row["idempotency_key"] for row in orders(world)}) == 3
    assert world.listed() == []
    assert open_intents(world) == []


def test_pinned_machines_are_never_exchanged(world: World) -> None:
    inputs = world.check(machines=["a1", "a3"])
    world.event("refuse_order", host="a3", times=1, reason="a3 is already rented")
    with pytest.raises(Conflict, match="a3"):  # the service's own words, not that nothing matches
        order(world.ctx, inputs)
    assert len(orders(world)) == 1


def test_pinned_machines_are_ordered_in_rank_order(world: World) -> None:
    created = world.order(machines=["a4", "a2"])
    assert [row["machine_id"] for row in created.state["members"]] == ["a4", "a2"]


def test_members_that_are_listed_late_are_waited_for(world: World) -> None:
    inputs = world.check()
    world.fault("GET /pods", "stale_list", n=2, after=1)
    created = order(world.ctx, inputs)
    assert len(created.state["members"]) == 2
    assert world.clock.at - START == pytest.approx(6.0)


def test_a_member_that_stays_hidden_does_not_lose_the_cluster(world: World) -> None:
    inputs = world.check()
    world.fault("GET /pods", "hide_member", rank=1, times=0)
    created = order(world.ctx, inputs)
    assert created.cluster_id == world.state["clusters"][0]["id"]
    assert created.state["status"] == "degraded"
    assert world.said("only 1 of 2 nodes are listed")


def test_an_accepted_order_that_no_listing_shows_names_its_pods_and_price(world: World) -> None:
    inputs = world.check()
    world.fault("GET /pods", "status", code=500, times=0, after=1)
    world.fault("GET /pods/*", "status", code=500, times=0)
    with pytest.raises(OrderUnsettled) as error:
        order(world.ctx, inputs)
    for pod in world.listed():
        assert pod["id"] in str(error.value)
    assert "$32.00 an hour" in str(error.value)
    assert open_intents(world) == [inputs["name"]]


def test_the_pods_themselves_tell_the_cluster_when_the_listing_fails(world: World) -> None:
    inputs = world.check()
    world.fault("GET /pods", "status", code=500, times=0, after=1)
    assert order(world.ctx, inputs).cluster_id == world.state["clusters"][0]["id"]


def test_two_clusters_of_one_name_are_never_guessed_between(world: World) -> None:
    told = scenario()
    told["settings"]["idempotency"] = False
    world = World(told)
    inputs = world.check(name="twin")
    world.fault(RENT, "drop_after_commit")
    other = replace(world.ctx, intents=world.intents)
    body = {"pod_name": "twin", "user_public_key": [public_key()], "initial_port_count": None}
    body |= {"template_id": world.ctx.api.templates.list()[0].id, "executor_uuids": ["r1", "r2"]}
    seen, ordered = world.ctx.api.pods.list, list[bool]()

    def someone_else_orders() -> Any:
        if len(orders(world)) == 1 and not ordered:
            ordered.append(True)
            world.service.change(lambda market: market.order_cluster("sk_ana", body, None))
        return seen()

    object.__setattr__(other.api.pods, "list", someone_else_orders)
    with pytest.raises(OrderUnsettled, match="several clusters bear its name"):
        order(other, inputs)
    assert len(world.state["clusters"]) == 2


def test_an_older_cluster_of_the_same_name_is_never_taken_for_the_order() -> None:
    told = scenario()
    told["settings"].update(idempotency=False, delete_seconds=3600)
    world = World(told)
    older = world.running(name="mine")
    world.ctx.api.clusters.delete(older.cluster_id)
    assert {pod["status"] for pod in world.listed()} == {"DELETING"}
    inputs = world.check(name="mine")
    world.fault(RENT, "drop_before_commit")
    with pytest.raises(OperationFailed, match="Nothing is rented"):
        order(world.ctx, inputs)
    world.fault(RENT, "drop_after_commit")
    assert order(world.ctx, inputs | {"idempotency_key": "another-key"}).cluster_id != older.cluster_id


def test_a_failed_order_gives_its_machines_back_to_the_program(world: World) -> None:
    inputs = world.check(owner="acme/web/dev/one", fabric_type="infiniband", nodes=4)
    world.fault(RENT, "status", code=402)
    with pytest.raises(LiumError):
        order(world.ctx, inputs)
    assert world.check(owner="acme/web/dev/two", fabric_type="infiniband")["planned"]["machines"] == ["a1", "a2"]


def test_clusters_of_one_program_leave_each_other_their_machines(world: World) -> None:
    first = world.check(owner="acme/web/dev/one", resource="one")
    second = world.check(owner="acme/web/dev/two", resource="two")
    assert first["planned"]["machines"] == ["a1", "a2"]
    assert second["planned"]["machines"] == ["a3", "a4"]
    third = world.check(owner="acme/web/dev/three", resource="three", fabric_type="infiniband")
    assert "planned" not in third
    assert world.said("meant for other clusters of this program")
    # Whoever is ordered first leaves the others theirs, though both could be had.
    assert order(world.ctx, second).state["requested"]["planned"] == second["planned"]
    assert [row["machine_id"] for row in order(world.ctx, first).state["members"]] == ["a1", "a2"]


def test_a_claim_is_a_hint_and_no_reason_to_fail(world: World) -> None:
    world.check(owner="acme/web/dev/one", fabric_type="infiniband", nodes=4)
    created = order(world.ctx, world.check(owner="acme/web/dev/two", fabric_type="infiniband"))
    assert created.state["fabric_type"] == "infiniband"


def test_an_intent_journal_that_fails_after_the_order_does_not_lose_the_cluster(world: World) -> None:
    class Failing(type(world.intents)):  # type: ignore[misc]
        def note(self, intent: Any) -> None:
            if intent.stage in ("answered", "listed"):
                raise LiumError("The disk is full")

    inputs = world.check()
    created = order(world.context(intents=Failing()), inputs)
    assert created.cluster_id == world.state["clusters"][0]["id"]
    assert world.said("The disk is full")


def test_an_intent_that_cannot_be_written_orders_nothing(world: World) -> None:
    class Failing(type(world.intents)):  # type: ignore[misc]
        def open(self, intent: Any) -> None:
            raise LiumError("The disk is full, so nothing was ordered")

    inputs = world.check()
    with pytest.raises(LiumError, match="nothing was ordered"):
        order(world.context(intents=Failing()), inputs)
    assert orders(world) == []
