"""Every example, run by the real engine as a reader would run it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.conftest import MakeStack
from tests.support.clusters import PUBLIC_KEY, bills, live, market, said
from tests.support.pulumi_stack import Stack
from tools.emulator import Emulator

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


def example(make_stack: MakeStack, name: str, env: dict[str, str], **config: str) -> Stack:
    return make_stack(EXAMPLES / name, files={"key.pub": PUBLIC_KEY + "\n"}, env=env, config=config)


def test_every_example_is_run_here() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if (path / "__main__.py").exists()}
    assert folders == {"cluster", "two-clusters", "choose-an-offer", "torchrun-launch"}


def test_cluster(make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator) -> None:
    stack = example(make_stack, "cluster", engine_env, nodes="3")
    outputs = stack.up().outputs
    assert outputs["master"] == "10.42.0.1"
    assert outputs["hostfile"].splitlines() == [f"10.42.0.{rank + 1} slots=8" for rank in range(3)]
    assert [node["pod_id"] for node in outputs["nodes"]] == [pod["id"] for pod in live(emulator)]
    assert outputs["price_per_hour"] == 48.0
    bills(emulator, 3)
    stack.destroy()
    bills(emulator, 0)


def test_two_clusters_declared_in_a_module(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    stack = example(make_stack, "two-clusters", engine_env)
    outcomes = [stack.preview(), stack.up(), stack.refresh(), stack.preview()]
    assert outcomes[1].outputs == {"training": "10.42.0.1", "evaluation": "10.42.0.1", "price_per_hour": 64.0}
    assert outcomes[3].changes == {"same": 5}
    assert len({pod["cluster_id"] for pod in live(emulator)}) == 2
    bills(emulator, 4)
    outcomes.append(stack.destroy())
    bills(emulator, 0)
    text = "".join(outcome.text for outcome in outcomes)
    assert "without the Pulumi engine" not in text
    assert "Can't get attribute" not in text


@pytest.mark.parametrize(("budget", "wire"), [("40", "infiniband"), ("30", "roce")])
def test_choose_an_offer(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator, budget: str, wire: str
) -> None:
    scenario = market()
    cheaper = market(fabrics=2)["providers"][1]
    cheaper["fabrics"] = [{"name": "ib", "type": "roce", "segment": "10.20.30.0/24", "measured": "all"}]
    cheaper["hosts"] = [{**host, "price_per_gpu": 1.8} for host in cheaper["hosts"][:2]]
    scenario["providers"].append(cheaper)
    emulator.reset(scenario)
    stack = example(make_stack, "choose-an-offer", engine_env, budget=budget)
    first = stack.up()
    assert first.outputs == {"fabric_type": wire, "price_per_hour": 32.0 if wire == "infiniband" else 28.8}
    assert "roce: 2 x 8 H100 for $28.80 an hour, 2 of 2 machines free" in said(first)
    # What others rent meanwhile changes the offers and not the choice.
    emulator.event("rival_order", fabric="site-0/ib", nodes=2)
    again = stack.up()
    assert again.changes == {"same": 3}
    stack.destroy()
    assert live(emulator) == []


def test_torchrun_launch(make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator, tmp_path: Path) -> None:
    stack = example(make_stack, "torchrun-launch", engine_env)
    scripts = stack.up().outputs["scripts"]
    assert scripts == ["launch/rank-0.sh", "launch/rank-1.sh"]

    # `ssh` runs the command here and `torchrun` says what it was given: what a node would do.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {
        "ssh": f'#!/bin/bash\necho "$1 $2 $3" >> {tmp_path}/hosts\nexec bash -c "${{@: -1}}"\n',
        "torchrun": '#!/bin/bash\nprintf "%s|" "$@"\n',
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    env = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    said_by = []
    for script in scripts:
        command = [f"./{script}", "29500", "train.py", "--name", "two words; $HOME"]
        done = subprocess.run(command, cwd=stack.project, env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        said_by.append(done.stdout.split("|"))
    for rank, words in enumerate(said_by):
        assert words == [
            *f"--nnodes 2 --nproc_per_node 8 --node_rank {rank} --master_addr 10.42.0.1 --master_port 29500".split(),
            "train.py",
            "--name",
            "two words; $HOME",
            "",
        ]
    hosts = (tmp_path / "hosts").read_text().splitlines()
    assert hosts == [pod["ssh_connect_cmd"].removeprefix("ssh ") for pod in live(emulator)]
    done = subprocess.run([f"./{scripts[0]}"], cwd=stack.project, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "a port that no other run uses" in done.stderr
    stack.destroy()
    bills(emulator, 0)
