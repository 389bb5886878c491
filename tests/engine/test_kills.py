"""The engine killed at each of ten moments, then one cure: afterwards exactly what the state holds bills.

The full product of moments, signals, cures and disks takes the better part of an hour and is run with `KILLS=all`. The
table is chosen so that every moment, every signal, every cure and both disks occur, each moment with both ways of
dying, and each cure on both disks. The crash simulator goes through every point and pair of points
(`tests/simulation`).

`kill`: `kill -9` of the engine alone; its provider finishes the request in flight, as it would on a workstation.
`runner`: `kill -9` of all its processes, as when a machine dies; what the service has received it carries out all the
same. On a bare disk the state of the stack is there (a backend keeps it) and the intent journal is not.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pulumi_lium.api import ClusterOrder, LiumApi, Settings
from tests.conftest import PULUMI_LIUM
from tests.engine.conftest import MakeStack
from tests.engine.moments import MOMENTS, NEIGHBOUR_KEYS, NEIGHBOURS, ours
from tests.support.clusters import PUBLIC_KEY, live, orders, said
from tests.support.pulumi_stack import Running, Stack
from tests.support.waiting import wait_for
from tools.emulator import ControlPlane, Emulator

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WHOLE = os.environ.get("KILLS") == "all"
#: Where an answer was lost on a disk without a record, the order may arrive for 300 s, and that is waited for.
LIUM_TIMEOUT_S = 420.0 if WHOLE else 90.0
OWNER_KEY, OTHER_KEY = "sk_emulator_owner", "sk_other"


def kill(running: Running) -> None:
    running.kill()


def kill_runner(running: Running) -> None:
    for handle in running.kill():
        handle.end()


def interrupt(running: Running) -> None:
    running.interrupt()
    running.wait()


def terminate(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)
    running.wait()


SIGNALS: dict[str, Callable[[Running], None]] = {
    "kill": kill,
    "runner": kill_runner,
    "SIGINT": interrupt,
    "SIGTERM": terminate,
}


class Disk:
    """Commands of a person who goes on after the kill, on the disk of the killed run or on another one."""

    def __init__(self, stack: Stack, env: dict[str, str], *, bare: bool) -> None:
        self.stack, self.bare = stack, bare
        self._env = dict(env)
        if bare:
            self._env["PULUMI_LIUM_STATE_DIR"] = str(stack.root / "another-disk")

    def up(self) -> str:
        return said(self.stack.up(env=self._env))

    def export(self) -> Path:
        file = self.stack.root / "export.json"
        self.stack.run("stack", "export", "--stack", self.stack.name, "--file", str(file))
        return file

    def lium(self, *arguments: str, may_refer_to: str = "") -> bool:
        """`pulumi-lium` with these arguments, again while it says that a provider which was left behind is at work.

        False where it leaves something, with exit code 4, and refers to the option `may_refer_to` for it.
        """
        text, ended = wait_for(lambda: self._lium(*arguments), what="the end of the provider that was left behind")
        assert OWNER_KEY not in text
        assert "Traceback" not in text
        referred = bool(may_refer_to) and ended == 4 and f"pass {may_refer_to}" in text
        assert ended == 0 or referred, f"exit code {ended} of {arguments}:\n{text}"
        return not referred

    def _lium(self, *arguments: str) -> tuple[str, int | None] | None:
        log = self.stack.root / f"lium-{arguments[0]}.log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [*PULUMI_LIUM, *arguments],
                env={**self.stack.env, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                ended = process.wait(LIUM_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                ended = None
        text = log.read_text(errors="replace")
        if ended and "living process is at work" in text:
            return None
        return text, ended


def up(disk: Disk, emulator: ControlPlane) -> None:
    """On the same disk it settles its own order first. On a bare one the engine orders again, and the leftover is named
    until it is swept with what the engine still knows of it."""
    text = disk.up()
    left = ours(emulator) - in_state(disk.stack)
    if not disk.bare:
        assert not left
    if left:
        assert "$32.00 an hour" in text
        assert all(cluster_id in text for cluster_id in left)
        disk.lium("sweep", "--stack-export", str(disk.export()), "--yes")


def sweep(disk: Disk, emulator: ControlPlane) -> None:
    """By the journal; on a bare disk by the stack's export, which says what the state holds and what was cut off.

    In the whole product complete orders are cut off as well, for which the journal refers to the export.
    """
    if disk.bare or not disk.lium("sweep", "--yes", may_refer_to="--stack-export" if WHOLE else ""):
        disk.lium("sweep", "--stack-export", str(disk.export()), "--yes")


def recover(disk: Disk, emulator: ControlPlane) -> None:
    disk.lium("recover", "--cwd", str(disk.stack.project), "--stack", disk.stack.name, "--yes")
    # One that is being deleted stands in the state; the next `destroy` or `up` goes on with it.
    cut_off = [operation for operation in disk.stack.pending_operations() if operation["type"] != "deleting"]
    assert not [operation for operation in cut_off if is_cluster(operation["resource"])]


def teardown(disk: Disk, emulator: ControlPlane) -> None:
    disk.lium("teardown", "--cwd", str(disk.stack.project), "--stack", disk.stack.name)
    assert not disk.stack.resources()
    assert not ours(emulator)


CURES = {cure.__name__: cure for cure in (up, sweep, recover, teardown)}


def in_state(stack: Stack) -> set[str]:
    """Ids of the clusters that the engine's state holds."""
    return {item["id"] for item in stack.resources() if is_cluster(item)}


def is_cluster(resource: Mapping[str, Any]) -> bool:
    return str(resource["type"]).endswith("lium:Cluster")


def move_in(emulator: ControlPlane) -> None:
    """The neighbours order clusters of similar names, which run: what happens to a start happens to none of theirs."""
    for key, names in ((OWNER_KEY, NEIGHBOURS), (OTHER_KEY, NEIGHBOURS[:1])):
        api = LiumApi(Settings(emulator.base_url, SecretStr(key)))
        template = api.templates.list()[0].id
        for name in names:
            machines = [node.id for node in api.offers.list()[0].nodes[:2]]
            wanted = ClusterOrder(
                pod_name=name, template_id=template, executor_uuids=machines, user_public_key=[PUBLIC_KEY]
            )
            api.clusters.order(wanted, idempotency_key=f"{NEIGHBOUR_KEYS}{key}-{name}")
    wait_for(lambda: all(pod["status"] == "RUNNING" for pod in live(emulator)), what="the neighbours' start")


def of_neighbours(emulator: ControlPlane) -> list[tuple[str, object]]:
    """Their pods, and whether anybody has scheduled a removal."""
    return [(pod["id"], pod["removal_scheduled_at"]) for pod in live(emulator) if pod["pod_name"] in NEIGHBOURS]


TABLE: list[tuple[str, str, str, bool, int | None]] = [
    # moment, signal, cure, bare disk, nodes that bill afterwards
    ("before the snapshot", "kill", "up", False, 2),
    ("before the snapshot", "SIGTERM", "recover", True, 2),
    ("order sent, not answered", "kill", "up", False, 2),
    ("order sent, not answered", "runner", "recover", True, 2),
    ("order sent, not answered", "runner", "sweep", False, 0),
    ("order sent, not answered", "kill", "teardown", True, 0),
    ("order sent, not answered", "kill", "teardown", False, 0),
    ("answered, not saved", "runner", "up", False, 2),
    ("answered, not saved", "runner", "up", True, 2),
    ("answered, not saved", "kill", "sweep", True, 0),
    ("members not listed", "runner", "up", False, 2),
    ("members not listed", "SIGINT", "teardown", False, 0),
    ("members not listed", "runner", "sweep", True, 0),
    ("TTL half set", "kill", "recover", False, 2),
    ("TTL half set", "runner", "teardown", True, 0),
    ("readiness wait", "kill", "up", True, 2),
    ("readiness wait", "SIGINT", "sweep", False, 2),
    ("readiness wait", "SIGTERM", "teardown", True, 0),
    ("failed start being removed", "kill", "up", False, 2),
    ("failed start being removed", "runner", "recover", True, 0),
    ("delete sent", "kill", "teardown", False, 0),
    ("delete sent", "runner", "up", False, 2),
    ("delete half done", "SIGINT", "sweep", True, 0),
    ("delete half done", "runner", "teardown", True, 0),
    ("recovery", "runner", "up", False, 2),
    ("recovery", "runner", "sweep", False, 0),
    ("recovery", "SIGTERM", "teardown", False, 0),
]


def rows() -> list[tuple[str, str, str, bool, int | None]]:
    """The table; with `KILLS=all` the rest of the product too, where which nodes go on is what the state says."""
    told = {row[:4] for row in TABLE}
    rest = [row for row in itertools.product(MOMENTS, SIGNALS, CURES, (False, True)) if row not in told]
    return TABLE + [(*row, None) for row in rest if WHOLE]


def test_the_table_leaves_nothing_out() -> None:
    assert {row[0] for row in TABLE} == set(MOMENTS)
    assert len(MOMENTS) == 10
    assert {row[1] for row in TABLE} == set(SIGNALS)
    assert {(row[2], row[3]) for row in TABLE} == {(cure, bare) for cure in CURES for bare in (False, True)}
    assert {row[:4] for row in TABLE} <= set(itertools.product(MOMENTS, SIGNALS, CURES, (False, True)))


@pytest.mark.timeout(900 if WHOLE else 300)
@pytest.mark.parametrize(("moment", "how", "cure", "bare", "nodes"), rows())
def test_what_bills_after_a_kill_and_its_cure_is_what_the_state_holds(
    make_stack: MakeStack,
    lium_env: dict[str, str],
    emulator: Emulator,
    moment: str,
    how: str,
    cure: str,
    bare: bool,
    nodes: int | None,
) -> None:
    at = MOMENTS[moment]
    emulator.reset(at.market())
    move_in(emulator)
    before = of_neighbours(emulator)
    stack = make_stack(at.program(), env=lium_env)
    disk = Disk(stack, lium_env, bare=bare)
    if at.first_up:
        stack.up()
    if at.killed_before:
        kill_runner(MOMENTS[at.killed_before].run_into(stack, emulator))
        stack.cancel()

    SIGNALS[how](at.run_into(stack, emulator))
    if at.verb == "destroy":
        settle(emulator)
    if cure != "teardown":
        stack.cancel()
    CURES[cure](disk, emulator)
    settle(emulator)

    assert ours(emulator) <= in_state(stack)
    assert of_neighbours(emulator) == before
    assert nodes is None or len(emulator.billing()["pods"]) == len(before) + nodes
    placed = [row["idempotency_key"] for row in orders(emulator) if row["committed"]]
    assert len(placed) == len(set(placed)), "one key ordered twice"
    if cure == "up":
        mine = [pod for pod in live(emulator) if pod["cluster_id"] in ours(emulator)]
        assert all(pod["removal_scheduled_at"] for pod in mine), "the time limit is whole again"


def settle(emulator: ControlPlane) -> None:
    """Until the service has carried out all that it received: it does though the caller has gone."""
    wait_for(lambda: all(row["status"] for row in emulator.journal()), what="requests that the service still holds")
