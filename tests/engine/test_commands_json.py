"""What programs read of the commands that settle a stack: one document on standard output, the rest beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import OWNER_KEY, PULUMI_LIUM
from tests.engine.conftest import MakeStack
from tests.support.clusters import ORDER, bills, cluster, live, market, orders, program
from tests.support.pulumi_stack import Stack
from tests.support.waiting import wait_for
from tools.emulator import Emulator


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str], tmp_path: Path) -> Stack:
    env = {**engine_env, "PULUMI_LIUM_STATE_DIR": str(tmp_path / "state")}
    return make_stack(program(cluster(ttl="2h")), env=env)


def document(stack: Stack, name: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What `pulumi-lium NAME --json` of this stack printed on standard output."""
    where = ["--cwd", str(stack.project), "--stack", stack.name] if name != "sweep" else []
    done = subprocess.run(
        [*PULUMI_LIUM, name, *where, *arguments, "--json"],
        cwd=stack.root,
        env=stack.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert OWNER_KEY not in done.stdout + done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_a_whole_stack(stack: Stack, emulator: Emulator) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    moved = document(stack, "extend", "--by", "1h")
    assert (moved["cluster_id"], moved["ttl"], moved["price_per_hour"]) == (cluster_id, "3h", 32.0)
    assert moved["until"] > moved["before"]
    assert document(stack, "recover") == {"changed": False, "steps": [], "may_bill": []}

    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=0)
    began = time.monotonic()
    stuck = document(stack, "teardown", "--timeout", "5", code=4)
    assert time.monotonic() - began < 60, "the engine keeps to that limit too, not to the 900 s of the program"
    (left,) = stuck["may_bill"]
    assert (left["cluster_id"], stuck["known"]) == (cluster_id, True)
    assert left["price_per_hour"] == 16.0, "that of the member that stayed"
    bills(emulator, 1)

    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=1)
    gone = document(stack, "teardown")
    assert (gone["may_bill"], gone["failures"], gone["known"]) == ([], [], True)
    assert len(gone["removed"]) == 1
    assert cluster_id in gone["removed"][0]
    bills(emulator, 0)


def test_a_create_that_was_cut_off(stack: Stack, emulator: Emulator) -> None:
    emulator.fault(ORDER, "delay", seconds=2)
    running = stack.start("up")
    running.wait_until(lambda: orders(emulator), what="the order has arrived")
    running.wait_until_pending("creating")
    for process in running.kill():
        process.end()
    wait_for(lambda: len(live(emulator)) == 2, what="the cluster")
    shown = document(stack, "recover", code=4)
    (step,) = shown["steps"]
    assert (shown["changed"], step["action"], step["price_per_hour"]) == (False, "adopt", 32.0)
    assert shown["may_bill"] == [step]
    done = document(stack, "recover", "--yes", "--lock-age", "0")
    assert (done["changed"], done["may_bill"]) == (True, [])
    assert [step["action"] for step in done["steps"]] == ["adopt"]
    assert Path(done["state_before"]).is_file()
    assert stack.up().outputs["cluster_id"] == done["steps"][0]["cluster_id"]
    bills(emulator, 2)
    stack.destroy()
    bills(emulator, 0)


def test_a_teardown_that_is_ended_by_two_signals(stack: Stack, emulator: Emulator, tmp_path: Path) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    emulator.fault("DELETE /clusters/*", "delay", seconds=6, times=0)
    told = tmp_path / "told"
    with (
        told.open("wb") as errors,
        subprocess.Popen(
            [*PULUMI_LIUM, "teardown", "--cwd", str(stack.project), "--stack", stack.name, "--json"],
            cwd=stack.root,
            env=stack.env,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        wait_for(lambda: any(row["method"] == "DELETE" for row in emulator.journal()), what="the first DELETE")
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "SIGTERM" in told.read_text(), what="the first signal is answered")
        process.send_signal(signal.SIGTERM)
        printed = json.loads(process.communicate(timeout=30)[0])
    assert process.returncode == printed["error"]["exit_code"] == 4
    assert printed["error"]["code"] == "interrupted"
    (left,) = printed["may_bill"]
    assert (left["cluster_id"], left["price_per_hour"]) == (cluster_id, 32.0)
    assert "$32.00 an hour" in told.read_text().splitlines()[-1]
    emulator.clear_faults()
