"""What goes wrong around a cluster, with the real engine: drift, failed starts, lost answers, kills, a refused delete.

Each ends at the ledger: what bills is what the state holds, or nothing.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.engine.conftest import MakeStack
from tests.support.clusters import bills, cluster, live, market, orders, program, said
from tests.support.pulumi_stack import Stack
from tools.emulator import Emulator

PHASES = {
    "queued", "preparing node", "connecting to node", "pulling image", "creating volume", "starting container",
    "mounting encrypted volume", "configuring ssh",
}  # fmt: skip
"""What a pod that starts may be at (contract 3.3)."""
SECRET = "c2VjcmV0IG9mIGEgdGVzdA"
PRIVATE_KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str]) -> Stack:
    return make_stack(program(cluster()), env=engine_env)


def _names(stack: Stack) -> set[str]:
    return {resource["urn"].rsplit("::", 1)[-1] for resource in stack.resources()}


def _ids(stack: Stack) -> dict[str, Any]:
    return {resource["urn"]: (resource["id"], resource["outputs"]) for resource in stack.resources()}


def test_a_cluster_that_is_gone_is_ordered_anew_by_the_next_up(stack: Stack, emulator: Emulator) -> None:
    old = stack.up().outputs["cluster_id"]
    emulator.reset(market(seed=8))  # the service knows nothing of it any more
    outcome = stack.up()
    assert outcome.outputs["cluster_id"] != old
    assert "gone" in said(outcome)
    bills(emulator, 2)


def test_a_lost_member_is_named_by_rank_and_the_cluster_replaced(stack: Stack, emulator: Emulator) -> None:
    old = stack.up().outputs["cluster_id"]
    lost = live(emulator)[1]
    emulator.event("machine_lost", host=lost["executor"]["id"])
    preview = stack.preview()
    assert "rank 1" in said(preview)
    refreshed = stack.refresh()
    assert refreshed.code == 0
    status = next(item for item in stack.resources() if item["type"].endswith("lium:Cluster"))["outputs"]["status"]
    assert status == "degraded"
    outcome = stack.up()
    assert outcome.outputs["cluster_id"] != old
    assert {pod["cluster_id"] for pod in live(emulator)} == {outcome.outputs["cluster_id"]}
    bills(emulator, 2)


def test_a_refresh_after_the_cluster_is_gone_drops_it_from_the_state(stack: Stack, emulator: Emulator) -> None:
    stack.up()
    emulator.reset(market())
    stack.refresh()
    assert stack.resources() == []
    assert stack.up().changes["create"] >= 2
    bills(emulator, 2)


@pytest.mark.parametrize("fault", [{"kind": "refused"}, {"kind": "status", "code": 503}, {"kind": "not_json"}])
def test_a_listing_that_fails_is_never_gone(stack: Stack, emulator: Emulator, fault: dict[str, Any]) -> None:
    stack.up()
    before = _ids(stack)
    emulator.fault("GET /pods", times=0, **fault)
    stack.refresh(ok=False)
    assert _ids(stack) == before
    emulator.clear_faults()
    assert stack.up().changes == {"same": 3}
    bills(emulator, 2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ssh_public_keys": [PRIVATE_KEY]}, "ssh_public_keys: entry 0 this is a private key"),
        ({"ssh_public_keys": PRIVATE_KEY}, "ssh_public_keys: is a single text"),
        ({"account": f"sk_live_{SECRET}"}, "The account's name looks like an API key"),
    ],
)
def test_a_secret_in_the_wrong_place_is_named_and_not_repeated(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator, inputs: dict[str, Any], message: str
) -> None:
    """Of a failure that names its property the engine would print the value."""
    stack = make_stack(program(cluster(**inputs)), env=engine_env)
    outcome = stack.preview(ok=False)
    assert outcome.code != 0
    assert message in said(outcome)
    assert SECRET not in outcome.text + json.dumps(outcome.events)
    assert orders(emulator) == []


def test_a_wrong_key_orders_nothing_and_loses_nothing(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    wrong = {**engine_env, "LIUM_API_KEY": "sk_wrong_0123456789abcdef"}
    stack = make_stack(program(cluster()), env=engine_env)
    outcome = stack.up(ok=False, env=wrong)
    assert "Invalid API key" in said(outcome)
    assert "Traceback" not in outcome.text
    assert wrong["LIUM_API_KEY"] not in outcome.text
    bills(emulator, 0)
    stack.up()
    assert stack.destroy(ok=False, env=wrong).code != 0
    assert _names(stack) >= {"train"}
    bills(emulator, 2)
    stack.destroy()
    bills(emulator, 0)


def test_a_node_that_fails_to_start_ends_the_cluster_and_names_itself(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(2, 2)))
    emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    outcome = stack.up(ok=False)
    assert "rank 1" in said(outcome)
    assert "no active RDMA port" in said(outcome)
    assert "Traceback" not in outcome.text
    bills(emulator, 0)
    # The order is still in the state; the next up sees that it is gone and orders anew.
    assert "train" in _names(stack)
    assert stack.up().outputs["cluster_id"]
    bills(emulator, 2)


def test_a_failed_start_can_be_kept_for_a_look(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(2, 2)))
    emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    stack.set_program(program(cluster(on_start_failure="keep")))
    outcome = stack.up(ok=False)
    assert "no active RDMA port" in said(outcome)
    assert "$16.00 an hour" in said(outcome), "what still bills has a price"
    bills(emulator, 1)
    stack.destroy()
    bills(emulator, 0)


def test_a_start_beyond_the_limit_is_ended(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(600, 600)))
    stack.set_program(program(cluster(ready_timeout=5)))
    outcome = stack.up(ok=False)
    assert "PENDING" in said(outcome)
    assert live(emulator) == []
    bills(emulator, 0)


def test_progress_is_visible_while_nodes_boot(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(12, 12)))
    outcome = stack.up()
    first = re.search(r"0 of 2 nodes up; rank 0, 1 ([a-z ]+); about (\d+) s left", said(outcome))
    assert first, said(outcome)
    assert first[1] in PHASES
    assert 0 < int(first[2]) <= 12, "by the service's estimate"
    assert "all 2 nodes are up" in said(outcome)
    waited = [row for row in emulator.journal() if row["path"].endswith("/pods")]
    assert len(waited) <= 8, "a look at most every ten seconds, however many nodes"
    bills(emulator, 2)


def test_a_delete_that_is_partly_refused_is_repeated_until_all_are_gone(stack: Stack, emulator: Emulator) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=2)
    stack.destroy()
    assert live(emulator) == []
    bills(emulator, 0)


def test_a_member_that_refuses_to_go_fails_the_destroy_and_is_named_with_its_price(
    stack: Stack, emulator: Emulator
) -> None:
    stack.set_program(program(cluster(delete_timeout=5)))
    cluster_id = stack.up().outputs["cluster_id"]
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=0)  # always
    outcome = stack.destroy(ok=False)
    assert "rank 1" in said(outcome)
    assert "$16.00 an hour" in said(outcome)
    assert "train" in _names(stack)
    bills(emulator, 1)
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=1)
    stack.destroy()
    bills(emulator, 0)


def test_an_order_answered_504_after_it_was_done_is_found_again(stack: Stack, emulator: Emulator) -> None:
    emulator.fault("POST /executors/cluster/rent", "status", code=504, commit=True)
    outputs = stack.up().outputs
    assert {pod["cluster_id"] for pod in live(emulator)} == {outputs["cluster_id"]}
    assert len({row["idempotency_key"] for row in orders(emulator)}) == 1
    bills(emulator, 2)


def test_an_order_whose_answer_is_lost_without_idempotency_is_found_by_name(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(idempotency=False))
    emulator.fault("POST /executors/cluster/rent", "drop_after_commit")
    outputs = stack.up().outputs
    assert {pod["cluster_id"] for pod in live(emulator)} == {outputs["cluster_id"]}
    assert len(orders(emulator)) == 1
    bills(emulator, 2)


def test_an_engine_killed_while_nodes_boot_loses_nothing(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(600, 600)))
    running = stack.start("up")
    running.wait_until(lambda: "train" in _names(stack), what="the order in the state")
    running.kill()
    stack.cancel()
    assert len(live(emulator)) == 2
    stack.destroy()
    assert live(emulator) == []
    bills(emulator, 0)


def test_an_interrupt_while_nodes_boot_ends_in_good_time(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(boot=(600, 600)))
    stack.set_program(program(cluster(ready_timeout=8, on_start_failure="keep")))
    running = stack.start("up")
    running.wait_until(lambda: "train" in _names(stack), what="the order in the state")
    began = time.monotonic()
    running.interrupt()
    running.wait(ok=False)
    assert time.monotonic() - began < 60
    stack.destroy()
    bills(emulator, 0)
