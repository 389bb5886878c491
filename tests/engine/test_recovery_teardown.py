"""`pulumi-lium teardown` with the real engine, in each state that a run can leave. Every test ends at the ledger."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from pulumi_lium.recovery.intents import FileIntents
from tests.engine.conftest import MakeStack
from tests.support.clusters import ORDER, bills, cluster, live, market, orders, program
from tests.support.lium import teardown
from tests.support.pulumi_stack import Stack
from tests.support.waiting import wait_for
from tools.emulator import Emulator

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str], journal: Path) -> Stack:
    return make_stack(program(cluster()), env={**engine_env, "PULUMI_LIUM_STATE_DIR": str(journal)})


def cut_off(stack: Stack, emulator: Emulator) -> None:
    """`up`, killed with all its processes when its order has arrived; the stack stays locked."""
    running = stack.start("up")
    running.wait_until(lambda: len(orders(emulator)) == 1, what="the order has arrived")
    running.wait_until_pending("creating")
    for process in running.kill():
        process.end()
    wait_for(lambda: len(live(emulator)) == 2, what="the cluster")


def deletes(emulator: Emulator) -> int:
    return sum(row["method"] == "DELETE" for row in emulator.journal())


def test_a_whole_stack_is_kept_with_a_wrong_key_and_torn_down_with_the_right_one_and_again(
    stack: Stack, emulator: Emulator
) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    refused = teardown(stack, "--remove-stack", env={"LIUM_API_KEY": "sk_of_nobody"}).wait(4).splitlines()[-1]
    assert refused.startswith("May still bill $32.00 an hour: train-")
    assert cluster_id in refused
    assert refused.endswith(f"The stack {stack.name} was kept.")
    assert cluster_id in {item["id"] for item in stack.resources()}
    bills(emulator, 2)
    said = teardown(stack).wait()
    assert said.splitlines()[-1].startswith(f"Nothing of {stack.name} is left that bills. Removed: train-")
    assert live(emulator) == []
    assert stack.resources() == []
    bills(emulator, 0)
    again = teardown(stack, "--remove-stack").wait()
    assert again.splitlines()[-1] == f"Nothing of {stack.name} is left that bills."
    missing = teardown(stack).wait()
    assert f"There is no stack {stack.name}" in missing


@pytest.mark.parametrize("disk", ["same", "bare"])
def test_an_interrupted_order_is_found_behind_the_lock_of_its_dead_run(
    stack: Stack, emulator: Emulator, journal: Path, tmp_path: Path, disk: str
) -> None:
    cut_off(stack, emulator)
    env = {} if disk == "same" else {"PULUMI_LIUM_STATE_DIR": str(tmp_path / "bare")}
    said = teardown(stack, env=env).wait()
    assert "of an interrupted order" in said
    assert "s old and its run is dead" in said
    assert live(emulator) == []
    assert stack.pending_operations() == []
    bills(emulator, 0)
    if disk == "same":
        assert FileIntents(journal / "intents").look() == []


def test_on_the_same_disk_a_stack_that_is_gone_is_swept_all_the_same(
    stack: Stack, emulator: Emulator, journal: Path
) -> None:
    cut_off(stack, emulator)
    stack.cancel()
    stack.run("stack", "rm", "--yes", "--force", stack.name)
    said = teardown(stack).wait()
    assert "There is no stack" in said
    assert live(emulator) == []
    bills(emulator, 0)
    assert FileIntents(journal / "intents").look() == []


def test_a_member_that_refuses_is_named_with_its_price_and_the_stack_kept(stack: Stack, emulator: Emulator) -> None:
    stack.set_program(program(cluster(delete_timeout=4)))
    cluster_id = stack.up().outputs["cluster_id"]
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=0)
    last = teardown(stack, "--remove-stack").wait(4).splitlines()[-1]
    assert last.startswith("May still bill $16.00 an hour: train-")
    assert cluster_id in last
    assert [item["id"] for item in stack.resources() if item["id"] == cluster_id]
    emulator.reset(market())
    teardown(stack, "--remove-stack").wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_deletion_leaves_within_two_seconds_of_a_signal(
    stack: Stack, emulator: Emulator, number: signal.Signals
) -> None:
    stack.up()
    # A machine on which the CLI's mere export takes long is given its share of that.
    began = time.monotonic()
    stack.export()
    allowed = max(2.0, 4 * (time.monotonic() - began))
    command = teardown(stack)
    wait_for(lambda: _handles(command.process.pid, number), what="the command is up")
    command.signal(number)
    began = time.monotonic()
    wait_for(lambda: deletes(emulator) > 0, what="the first DELETE", timeout=20, poll=0.01)
    seconds = time.monotonic() - began
    assert number.name in command.text()
    command.wait()
    bills(emulator, 0)
    assert seconds < allowed, f"{seconds:.1f} s"


def test_a_second_signal_ends_it_and_names_what_may_bill(stack: Stack, emulator: Emulator) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    emulator.fault("DELETE /clusters/*", "delay", seconds=6, times=0)
    command = teardown(stack)
    wait_for(lambda: deletes(emulator) > 0, what="the first DELETE")
    command.signal(signal.SIGINT)
    wait_for(lambda: "SIGINT" in command.text(), what="the first signal is answered")
    command.signal(signal.SIGINT)
    last = command.wait(4).splitlines()[-1]
    assert "May still bill" in last
    assert cluster_id in last
    assert "$32.00 an hour" in last
    emulator.clear_faults()


def test_an_engine_that_hangs_keeps_no_cluster_from_being_deleted(
    stack: Stack, emulator: Emulator, tmp_path: Path
) -> None:
    stack.up()
    hung = tmp_path / "bin"
    hung.mkdir()
    (hung / "pulumi").write_text(
        f'#!/bin/sh\n[ "$1" = destroy ] && exec sleep 600\nPATH="{stack.env["PATH"]}" exec pulumi "$@"\n'
    )
    (hung / "pulumi").chmod(0o755)
    command = teardown(stack, env={"PATH": f"{hung}:{stack.env['PATH']}"})
    wait_for(lambda: live(emulator) == [], what="the cluster is gone")
    assert command.process.poll() is None
    command.process.kill()
    command.process.wait()
    bills(emulator, 0)


def test_a_run_that_is_alive_is_not_cancelled(stack: Stack, emulator: Emulator) -> None:
    emulator.fault(ORDER, "delay", seconds=15)
    running = stack.start("up")
    running.wait_until(lambda: len(orders(emulator)) == 1, what="the order has arrived")
    said = teardown(stack, "--wait", "0").wait(None)
    assert "end that run first" in said
    assert running.process.poll() is None
    running.wait(ok=True)
    bills(emulator, 2)
    teardown(stack).wait()
    bills(emulator, 0)


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for this signal."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            caught = int(line.split()[1], 16)
            # Python itself catches SIGINT; both are the command's once SIGTERM is caught too.
            return bool(caught >> (signal.SIGTERM - 1) & 1) and bool(caught >> (number - 1) & 1)
    return False
