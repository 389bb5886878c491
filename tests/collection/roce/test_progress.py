"""What is shown while agents work: how far the tests are, from one host for all."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.action import roce_agent
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP, RunFolder


class Task:
    """What the action plug-in reads of its task."""

    def __init__(self, **arguments: Any) -> None:
        self.args = arguments
        self.async_val = 0
        self.check_mode = False


def collect(monkeypatch: pytest.MonkeyPatch, folder: RunFolder, host: str, wait_s: Any, looks: list[str]) -> list[Any]:
    """Runs a collection in which the module answers ``looks``; answers how long each look was allowed to take."""
    packed = base64.b64encode(zlib.compress(b"")).decode()
    allowed: list[Any] = []
    clock = 0.0

    def module(module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        nonlocal clock
        allowed.append(module_args["wait_s"])
        ended = looks.pop(0)
        if ended == "running":
            clock += module_args["wait_s"]
        return {"ended": ended, "count": len(allowed), "packed": packed}

    monkeypatch.setattr(roce_agent.time, "monotonic", lambda: clock)
    monkeypatch.setattr(roce_agent.ActionBase, "run", lambda self, tmp, task_vars: {})
    plugin = object.__new__(roce_agent.ActionModule)
    plugin._task = Task(state="collected", run_folder=folder.path, wait_s=wait_s)
    monkeypatch.setattr(plugin, "_execute_module", module, raising=False)
    result = plugin.run(task_vars={"inventory_hostname": host, "ansible_play_hosts": ["refused", "gpu01", "gpu02"]})
    assert "packed" not in result
    return allowed


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(str(tmp_path))
    plan = {"run": "run-1", "appointments": [[0, "gpu01", "gpu02", [["gpu01", "gpu02", 0]] * 2, False]] * 3}
    made.write_plans(SWEEP, {"gpu01": plan, "gpu02": plan})
    return made


def test_the_first_host_with_a_plan_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, shown: list[str]
) -> None:
    assert collect(monkeypatch, folder, "gpu01", 600.0, ["running", "running", "done"]) == [20.0, 20.0, 20.0]
    assert shown == [
        "gpu01: 1 of 6 tests after 20 s, about 100 s to go",
        "gpu01: 2 of 6 tests after 40 s, about 80 s to go",
    ]


def test_the_others_wait_in_one_go(monkeypatch: pytest.MonkeyPatch, folder: RunFolder, shown: list[str]) -> None:
    assert collect(monkeypatch, folder, "gpu02", 600.0, ["done"]) == [600.0]
    assert shown == []


def test_the_time_limit_holds_over_all_looks(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, shown: list[str]
) -> None:
    assert collect(monkeypatch, folder, "gpu01", "50", ["running"] * 3) == [20.0, 20.0, 10.0]
    assert len(shown) == 2


def test_a_limit_that_is_no_number_is_left_to_the_module(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, shown: list[str]
) -> None:
    assert collect(monkeypatch, folder, "gpu01", "soon", ["done"]) == ["soon"]


def test_nothing_is_foretold_before_the_first_test() -> None:
    assert roce_agent.progress("gpu01", 0, 6, 20.0) == "gpu01: 0 of 6 tests after 20 s"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(roce_agent.display, "display", lines.append)
    return lines
