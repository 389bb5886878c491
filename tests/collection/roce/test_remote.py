"""The agent as its module handles it on a host: started once, collected once, nothing left."""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import Options, sweep_plans
from ansible_collections.lium.cluster.plugins.module_utils._roce.remote import AgentError, RemoteAgent
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import timetable
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.bundle import agent_file

from tests.collection.roce.agents import Agents

Make = Callable[..., Agents]


@pytest.fixture
def pair(make_agents: Make, monkeypatch: pytest.MonkeyPatch) -> tuple[Agents, dict[str, Any]]:
    """Two hosts whose tests take long enough to look at them; this process is the first host."""
    agents = make_agents(2, floor_s=2.0)
    for name, value in agents.environ("gpu00").items():
        monkeypatch.setenv(name, value)
    rails = agents.rails()
    rounds = timetable({host: [0] for host in rails})
    return agents, sweep_plans(Options("run-1", Settings()), rails, rounds)


def remote(tmp_path: Path) -> RemoteAgent:
    return RemoteAgent(str(tmp_path / "here" / "agent"), str(tmp_path / "here" / "lock" / "roce.lock"))


def start(agent: RemoteAgent, plan: dict[str, Any]) -> bool:
    return agent.start(plan, agent_file(), sys.executable)


def test_started_once_collected_once(pair: tuple[Agents, dict[str, Any]], tmp_path: Path) -> None:
    agents, plans = pair
    agent = remote(tmp_path)
    assert start(agent, plans["gpu00"])
    assert not start(agent, plans["gpu00"]), "the agent works on this very plan already"
    agents.start(plans, ["gpu01"])
    done = agent.collect("run-1", 30.0)
    rows = [json.loads(line) for line in zlib.decompress(base64.b64decode(done["packed"])).decode().splitlines()]
    assert (done["ended"], done["count"], [row["status"] for row in rows]) == ("done", 1, ["OK"])
    assert agent.collect("run-1", 0.0)["count"] == 1, "collecting again answers the same"
    assert agent.remove(really=True)
    assert not (tmp_path / "here" / "agent").exists()
    assert not agent.remove(really=True)


def test_an_agent_of_an_earlier_run_is_stopped_first(pair: tuple[Agents, dict[str, Any]], tmp_path: Path) -> None:
    agents, plans = pair
    agent = remote(tmp_path)
    start(agent, plans["gpu00"])
    first = json.loads((tmp_path / "here" / "agent" / "records.jsonl").read_text().splitlines()[0])["pid"]
    later = {host: {**plan, "run": "run-2"} for host, plan in plans.items()}
    assert start(agent, later["gpu00"])
    assert agent.collect("run-2", 0.0)["ended"] == "running"
    os.waitpid(first, 0)
    with pytest.raises(AgentError, match="no records of run run-1"):
        agent.collect("run-1", 0.0)
    assert agent.remove(really=True)
    assert agents.model.server.tests == 0


def test_a_lock_of_somebody_else_is_respected(pair: tuple[Agents, dict[str, Any]], tmp_path: Path) -> None:
    _, plans = pair
    first, second = (
        remote(tmp_path),
        RemoteAgent(str(tmp_path / "other"), str(tmp_path / "here" / "lock" / "roce.lock")),
    )
    start(first, plans["gpu00"])
    with pytest.raises(AgentError, match="another verification runs") as told:
        start(second, plans["gpu00"])
    assert told.value.code == "locked"
    first.remove(really=True)


def test_an_agent_that_was_killed_is_told_as_such(pair: tuple[Agents, dict[str, Any]], tmp_path: Path) -> None:
    _, plans = pair
    agent = remote(tmp_path)
    start(agent, plans["gpu00"])
    pid = json.loads((tmp_path / "here" / "agent" / "records.jsonl").read_text().splitlines()[0])["pid"]
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    done = agent.collect("run-1", 5.0)
    assert (done["ended"], done["count"]) == ("killed", 0)


def test_check_mode_removes_nothing(pair: tuple[Agents, dict[str, Any]], tmp_path: Path) -> None:
    _, plans = pair
    agent = remote(tmp_path)
    start(agent, plans["gpu00"])
    assert agent.remove(really=False)
    assert (tmp_path / "here" / "agent").is_dir()
    agent.remove(really=True)


def test_a_plan_that_is_none_is_reported(tmp_path: Path) -> None:
    agent = remote(tmp_path)
    start(agent, {"run": "run-1"})
    with pytest.raises(AgentError, match="no records of run run-1"):
        agent.collect("run-1", 10.0)
    text = (tmp_path / "here" / "agent" / "records.jsonl").read_text()
    assert "KeyError" in text
