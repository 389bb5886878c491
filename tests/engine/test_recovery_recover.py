"""`pulumi-lium recover` and `sweep` on a bare disk, with the real engine: its pending operations tell enough."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PULUMI_LIUM
from tests.engine.conftest import MakeStack
from tests.support.clusters import ORDER, bills, cluster, live, market, orders, program
from tests.support.pulumi_stack import Stack
from tests.support.waiting import wait_for
from tools.emulator import Emulator

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str], tmp_path: Path) -> Stack:
    return make_stack(
        program(cluster(ttl="8h")), env={**engine_env, "PULUMI_LIUM_STATE_DIR": str(tmp_path / "first disk")}
    )


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_LIUM_STATE_DIR": str(tmp_path / "bare disk")}


def lium(stack: Stack, *arguments: str, env: dict[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PULUMI_LIUM, *arguments],
        cwd=stack.root,
        env={**stack.env, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "sk_emulator" not in done.stdout + done.stderr
    return done


def recover(stack: Stack, bare: dict[str, str], *arguments: str, code: int = 0) -> str:
    done = lium(stack, "recover", "--stack", stack.name, "--cwd", str(stack.project), *arguments, env=bare, code=code)
    return done.stdout + done.stderr


def cut_off(stack: Stack, emulator: Emulator) -> str:
    """`up`, killed with kill -9 once its order has arrived: the id of the cluster that runs in no state."""
    running = stack.start("up")
    running.wait_until(lambda: len(orders(emulator)) == 1, what="the order has arrived")
    running.wait_until_pending("creating")
    for process in running.kill():
        process.end()
    wait_for(lambda: len(live(emulator)) == 2, what="the cluster")
    (cluster_id,) = {str(pod["cluster_id"]) for pod in live(emulator)}
    return cluster_id


def test_the_cluster_is_adopted_into_the_state_and_the_next_up_orders_nothing(
    stack: Stack, emulator: Emulator, bare: dict[str, str], tmp_path: Path
) -> None:
    emulator.fault(ORDER, "delay", seconds=2)
    cluster_id = cut_off(stack, emulator)
    shown = recover(stack, bare, code=4)
    assert "adopt into the state train-" in shown
    assert cluster_id in shown
    assert "$32.00 an hour" in shown
    assert "Nothing was changed" in shown
    assert stack.pending_operations() != []

    before = stack.export()
    done = recover(stack, bare, "--yes")
    assert "The state was imported" in done
    (copy,) = (tmp_path / "bare disk" / "backups").iterdir()
    assert json.loads(copy.read_text()) == before
    assert stack.pending_operations() == []
    assert [item["id"] for item in stack.resources()] == [cluster_id]
    assert {pod["removal_scheduled_at"] is None for pod in live(emulator)} == {False}

    up = stack.up(env=bare)
    assert up.outputs["cluster_id"] == cluster_id
    assert ("create", "pulumi-python:dynamic/lium:Cluster::train") not in up.steps
    assert stack.up(env=bare).changes == {"same": 3}
    assert len(orders(emulator)) == 1
    bills(emulator, 2)
    stack.destroy(env=bare)
    bills(emulator, 0)
    assert "nothing to do" in recover(stack, bare, "--yes")


def test_a_cluster_with_a_failed_node_is_removed_and_its_operation_dropped(
    stack: Stack, emulator: Emulator, bare: dict[str, str]
) -> None:
    cut_off(stack, emulator)
    emulator.event("pod_fails", pod=live(emulator)[0]["id"], reason="no RDMA port")
    assert "remove train-" in recover(stack, bare, "--yes")
    bills(emulator, 0)
    assert stack.pending_operations() == []
    assert stack.resources() == []
    stack.up(env=bare)
    bills(emulator, 2)


def test_a_lock_of_the_killed_run_is_taken_off_with_its_age(
    stack: Stack, emulator: Emulator, bare: dict[str, str]
) -> None:
    cut_off(stack, emulator)
    said = recover(stack, bare, "--yes")
    assert "s old and its run is dead" in said
    stack.up(env=bare)
    bills(emulator, 2)


def test_a_run_that_is_alive_is_never_taken_for_one_that_was_cut_off(
    stack: Stack, emulator: Emulator, bare: dict[str, str]
) -> None:
    emulator.fault(ORDER, "delay", when="after", seconds=20)
    running = stack.start("up")
    running.wait_until(lambda: len(live(emulator)) == 2, what="the cluster is there")
    said = recover(stack, bare, "--yes", code=1)
    assert "end that run first" in said
    running.wait(ok=True)
    bills(emulator, 2)


def test_an_import_that_fails_loses_nothing(
    stack: Stack, emulator: Emulator, bare: dict[str, str], tmp_path: Path
) -> None:
    cluster_id = cut_off(stack, emulator)
    stack.cancel()
    before = stack.export()
    real = stack.env["PATH"]
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "pulumi").write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" = "stack import" ] && { echo "error: no space left" >&2; exit 255; }\n'
        f'PATH="{real}" exec pulumi "$@"\n'
    )
    (broken / "pulumi").chmod(0o755)
    said = recover(stack, {**bare, "PATH": f"{broken}:{real}"}, "--yes", code=1)
    assert "no space left" in said
    assert "$32.00 an hour" in said
    assert "The state was not changed" in said
    assert stack.export()["deployment"]["pending_operations"] == before["deployment"]["pending_operations"]
    recover(stack, bare, "--yes")
    assert stack.up(env=bare).outputs["cluster_id"] == cluster_id
    bills(emulator, 2)


def test_sweep_finds_it_by_the_export_and_removes_it(
    stack: Stack, emulator: Emulator, bare: dict[str, str], tmp_path: Path
) -> None:
    cluster_id = cut_off(stack, emulator)
    export = tmp_path / "state.json"
    export.write_text(json.dumps(stack.export()))
    found = json.loads(lium(stack, "sweep", "--stack-export", str(export), "--json", env=bare, code=4).stdout)
    assert [item["cluster_id"] for item in found["may_bill"]] == [cluster_id]
    assert found["may_bill"][0]["price_per_hour"] == 32.0
    bills(emulator, 2)
    done = lium(stack, "sweep", "--stack-export", str(export), "--yes", env=bare)
    assert done.stdout.splitlines()[-1] == "Nothing is left that bills and is owned by nobody."
    assert live(emulator) == []
    bills(emulator, 0)
