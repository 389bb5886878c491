"""An engine that is killed while it orders, and what the next command makes of it. Each ends at the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulumi_lium.recovery.intents import FileIntents, OpenIntent
from tests.conftest import OWNER_KEY
from tests.engine.conftest import MakeStack
from tests.support.clusters import ORDER, PUBLIC_KEY, bills, cluster, live, market, orders, program, said
from tests.support.lium import Lium
from tests.support.pulumi_stack import Running, Stack
from tests.support.waiting import wait_for
from tools.emulator import Emulator


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str], journal: Path) -> Stack:
    return make_stack(program(cluster()), env={**engine_env, "PULUMI_LIUM_STATE_DIR": str(journal)})


def intents(journal: Path) -> list[OpenIntent]:
    return FileIntents(journal / "intents").look()


def killed_while_ordering(stack: Stack, emulator: Emulator) -> Running:
    """`up`, killed with kill -9 when the order has reached the service; the stack's lock is taken off."""
    before = len(orders(emulator))
    running = stack.start("up")
    running.wait_until(lambda: len(orders(emulator)) > before, what="the order has arrived")
    running.wait_until_pending("creating")
    running.kill()
    stack.cancel()
    return running


def test_nothing_is_left_open_after_a_plain_up(stack: Stack, journal: Path, emulator: Emulator) -> None:
    stack.up()
    assert intents(journal) == []
    bills(emulator, 2)


def test_the_next_up_takes_over_what_the_killed_one_ordered(stack: Stack, journal: Path, emulator: Emulator) -> None:
    emulator.fault(ORDER, "delay", seconds=3)
    killed_while_ordering(stack, emulator)
    assert len(intents(journal)) == 1
    kept = b"".join(path.read_bytes() for path in journal.rglob("*") if path.is_file())
    assert PUBLIC_KEY.encode() in kept
    assert OWNER_KEY.encode() not in kept
    outcome = stack.up()
    assert {pod["cluster_id"] for pod in live(emulator)} == {outcome.outputs["cluster_id"]}
    assert "nothing new was ordered" in said(outcome)
    assert intents(journal) == []
    bills(emulator, 2)
    assert stack.up().changes == {"same": 3}
    stack.destroy()
    bills(emulator, 0)


def test_the_provider_of_a_killed_engine_finishes_its_order_and_ends(
    stack: Stack, journal: Path, emulator: Emulator
) -> None:
    emulator.fault(ORDER, "delay", seconds=2)
    running = stack.start("up")
    running.wait_until(lambda: orders(emulator), what="the order has arrived")
    for process in running.kill():
        process.wait(timeout=30)
    (entry,) = intents(journal)
    assert entry.intent.stage == "listed"
    assert not entry.held
    assert {pod["cluster_id"] for pod in live(emulator)} == {entry.intent.cluster_id}
    # The resource leaves the program: nothing settles the order of `train`, so it is named.
    stack.cancel()
    stack.set_program(program(cluster("eval")))
    outcome = stack.up()
    assert f"the order of '{entry.intent.pod_name}' (resource {entry.intent.owner}, cluster" in said(outcome)
    assert "$32.00 an hour" in said(outcome)
    export = stack.root / "stack.json"
    export.write_text(json.dumps(stack.export()))
    Lium(stack, "sweep", "--stack-export", str(export), "--yes").wait()
    assert {pod["cluster_id"] for pod in live(emulator)} == {outcome.outputs["cluster_id"]}
    assert intents(journal) == []


def test_a_provider_whose_engine_is_gone_orders_nothing_more(stack: Stack, journal: Path, emulator: Emulator) -> None:
    emulator.fault("GET /templates", "delay", seconds=2)
    running = stack.start("up")
    running.wait_until(
        lambda: any(row["path"].endswith("/templates") for row in emulator.journal()), what="create has begun"
    )
    for process in running.kill():
        process.wait(timeout=30)
    assert orders(emulator) == []
    assert intents(journal) == []


def test_a_killed_up_of_another_request_is_removed_before_the_new_order(
    stack: Stack, journal: Path, emulator: Emulator
) -> None:
    emulator.fault(ORDER, "delay", seconds=1)
    killed_while_ordering(stack, emulator)
    wait_for(lambda: len(live(emulator)) == 2, what="the first cluster")
    stack.set_program(program(cluster(nodes=4)))
    outputs = stack.up().outputs
    assert {pod["cluster_id"] for pod in live(emulator)} == {outputs["cluster_id"]}
    bills(emulator, 4)
    assert intents(journal) == []


def test_on_a_bare_disk_the_first_cluster_is_named_and_left_alone(
    stack: Stack, journal: Path, emulator: Emulator, tmp_path: Path
) -> None:
    killed_while_ordering(stack, emulator)
    wait_for(lambda: len(live(emulator)) == 2, what="the first cluster")
    (first,) = {pod["cluster_id"] for pod in live(emulator)}
    outcome = stack.up(env={"PULUMI_LIUM_STATE_DIR": str(tmp_path / "bare")})
    assert first in said(outcome)
    assert "$32.00 an hour" in said(outcome)
    assert first != outcome.outputs["cluster_id"]
    bills(emulator, 4)
