"""The rehearsal's perftest refuses what the real one would, so that a wrong argument of the agents shows at scale."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End, classify
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import read
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import Options, sweep_plans
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import timetable

from tests.collection.roce.agents import Agents

Make = Callable[..., Agents]


@pytest.mark.parametrize("host", ["gpu00", "gpu01"])
@pytest.mark.parametrize(
    ("part", "wrong", "name"),
    [
        ("rail", {"device": "mlx5_9"}, "no_device"),
        ("rail", {"port": 2}, "port_down"),
        ("rail", {"gid_index": 7}, "gid_empty"),
        ("settings", {"iterations": 999}, "arguments"),
        ("settings", {"qps": 2}, "arguments"),
        ("settings", {"duration_s": 1}, "arguments"),
        ("settings", {"bidirectional": True}, "arguments"),
    ],
)
def test_a_wrong_argument_of_one_end(make_agents: Make, host: str, part: str, wrong: dict[str, Any], name: str) -> None:
    """One of the two hosts is the server. A rail is the host's own fault; of two arguments none is the right one."""
    agents = make_agents(2)
    known = agents.rails()
    rounds = timetable({one: [0] for one in known})
    plans = json.loads(json.dumps(sweep_plans(Options("run-1", settings=Settings()), known, rounds)))
    (plans[host]["settings"] if part == "settings" else plans[host]["hosts"][host][0]).update(wrong)
    agents.start(plans)
    agents.wait()
    (record,) = agents.records(host)
    assert (record["status"], record["class"]) == ("FAIL", name)
    assert record["accused"] == (host if part == "rail" else None)


def run_pair(agents: Agents, arguments: Sequence[str]) -> End:
    """A server and its client with the same arguments; answers the client's end."""
    server, client = agents.addresses
    command = [str(agents.program), *arguments]
    with subprocess.Popen(command, env=agents.environ(server), stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        while "Waiting for client" not in serving.stdout.readline():
            pass
        command.append(agents.addresses[server])
        done = subprocess.run(command, env=agents.environ(client), capture_output=True, text=True, timeout=30)
        serving.communicate(timeout=30)
    return End(done.returncode, done.stdout, done.stderr)


def test_without_the_unit_asked_for_the_rate_is_perftests_own(make_agents: Make) -> None:
    agents = make_agents(2)
    good = read(run_pair(agents, ["-d", "mlx5_0", "-x", "3", "-p", "18515", "--report_gbits"]), gid_index=3)
    assert good.gigabits_per_second == pytest.approx(195, rel=0.02)
    told = read(run_pair(agents, ["-d", "mlx5_0", "-x", "3", "-p", "18515"])).failure
    assert told is not None
    assert told.name == "unit_mismatch"


@pytest.mark.parametrize("arguments", [["-z"], ["--report_gbit"], ["-x", "three"], ["-x"], ["-n", "1000x"]])
def test_what_is_no_option_is_refused(make_agents: Make, arguments: list[str]) -> None:
    agents = make_agents(2)
    done = subprocess.run(
        [agents.program, *arguments], env=agents.environ("gpu00"), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert classify(End(done.returncode, done.stdout, done.stderr)).name == "bad_option"
