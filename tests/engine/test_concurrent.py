"""Two engines at once, `protect` and `retain_on_delete`, a slow network, and a journal that cannot be written.

Each ends at the ledger.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.conftest import MakeStack
from tests.support.clusters import ORDER, bills, cluster, live, market, orders, program, said
from tests.support.pulumi_stack import Stack
from tools.emulator import Emulator


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str]) -> Stack:
    return make_stack(program(cluster()), env=engine_env)


def clusters(emulator: Emulator) -> set[str]:
    return {pod["cluster_id"] for pod in live(emulator)}


def declared_with(options: str) -> str:
    """The usual program, its cluster with resource options."""
    return program(re.sub(r"\)$", f", opts=pulumi.ResourceOptions({options}))", cluster()))


def test_of_two_ups_at_once_on_one_stack_one_orders(stack: Stack, emulator: Emulator) -> None:
    emulator.fault(ORDER, "delay", seconds=6)
    first = stack.start("up")
    first.wait_until(lambda: orders(emulator), what="the order has arrived")
    second = stack.up(ok=False)
    assert "locked" in said(second)
    outcome = first.wait(ok=True)
    assert clusters(emulator) == {outcome.outputs["cluster_id"]}
    assert len(orders(emulator)) == 1
    bills(emulator, 2)
    assert stack.up().changes == {"same": 3}


@pytest.mark.parametrize("stacks", [("one", "other"), ("dev", "dev")], ids=["two stacks", "one stack on two backends"])
def test_two_at_once_with_one_journal_never_take_each_others_cluster(
    make_stack: MakeStack,
    engine_env: dict[str, str],
    emulator: Emulator,
    tmp_path: Path,
    stacks: tuple[str, str],
) -> None:
    """Resources of one name; in the second case their owner has one name too."""
    env = {**engine_env, "PULUMI_LIUM_STATE_DIR": str(tmp_path / "journal")}
    one, other = (make_stack(program(cluster()), env=env, name=name) for name in stacks)
    emulator.fault(ORDER, "delay", seconds=3, times=2)
    both = [one.start("up"), other.start("up")]
    ids = {running.wait(ok=True).outputs["cluster_id"] for running in both}
    assert len(ids) == 2
    assert clusters(emulator) == ids
    bills(emulator, 4)
    one.destroy()
    assert clusters(emulator) == {other.outputs()["cluster_id"]}
    assert other.up().changes == {"same": 3}
    other.destroy()
    bills(emulator, 0)


def test_a_chosen_name_that_is_in_use_is_refused_and_the_other_left_alone(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    named = program(cluster()).replace("nodes=2", "nodes=2, name='train-1'")
    first, second = (make_stack(named, env=engine_env, name=name) for name in ("first", "second"))
    kept = first.up().outputs["cluster_id"]
    refused = second.up(ok=False)
    assert "in use already" in said(refused)
    assert kept in said(refused)
    second.destroy()
    assert clusters(emulator) == {kept}
    assert len(orders(emulator)) == 1


def test_a_protected_cluster_is_neither_destroyed_nor_replaced(stack: Stack, emulator: Emulator) -> None:
    stack.set_program(declared_with("protect=True"))
    kept = stack.up().outputs["cluster_id"]
    stack.destroy(ok=False)
    stack.set_program(declared_with("protect=True").replace("nodes=2", "nodes=3"))
    stack.up(ok=False)
    assert clusters(emulator) == {kept}
    bills(emulator, 2)
    stack.set_program(declared_with("protect=False"))
    assert stack.up().outputs["cluster_id"] == kept
    stack.destroy()
    bills(emulator, 0)


def test_a_retained_cluster_goes_on_is_named_with_its_price_and_can_be_adopted(
    make_stack: MakeStack, engine_env: dict[str, str], stack: Stack, emulator: Emulator
) -> None:
    stack.set_program(declared_with("retain_on_delete=True"))
    kept = stack.up().outputs["cluster_id"]
    stack.destroy()
    assert stack.resources() == []
    assert clusters(emulator) == {kept}, "as the program asked"
    bills(emulator, 2)
    stack.set_program(program(cluster()))
    outcome = stack.up()
    assert kept in said(outcome), "named, since no state holds it"
    assert "$32.00 an hour" in said(outcome)
    bills(emulator, 4)
    stack.destroy()
    other = make_stack(program(cluster(adopt=kept, ssh_public_keys=None)), env=engine_env, name="other")
    assert other.up().outputs["cluster_id"] == kept
    other.destroy()
    bills(emulator, 0)


def test_a_slow_network_changes_nothing_but_the_time(stack: Stack, emulator: Emulator) -> None:
    for on in ("GET /pods", "GET /templates", "GET /executors/*", "POST /executors/cluster/rent", "DELETE /clusters/*"):
        emulator.fault(on, "delay", seconds=1.5, times=0)
    outcome = stack.up()
    assert clusters(emulator) == {outcome.outputs["cluster_id"]}
    assert len(orders(emulator)) == 1
    assert stack.up().changes == {"same": 3}
    stack.destroy()
    bills(emulator, 0)


@pytest.mark.parametrize("place", ["a-file/state", "unwritable"])
def test_without_a_place_for_the_record_nothing_is_ordered(
    stack: Stack, emulator: Emulator, tmp_path: Path, place: str
) -> None:
    (tmp_path / "a-file").write_text("")
    # No process may make files in it, whoever it runs as.
    (tmp_path / "unwritable").symlink_to("/proc/self")
    refused = stack.up(ok=False, env={"PULUMI_LIUM_STATE_DIR": str(tmp_path / place)})
    assert "nothing was ordered" in said(refused).lower()
    assert "PULUMI_LIUM_STATE_DIR" in said(refused)
    assert orders(emulator) == []
    stack.up()
    bills(emulator, 2)
