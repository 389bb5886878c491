"""The whole loop: hosts are verified, their results become the offer, and a cluster is ordered on exactly that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import MakeStack
from tests.support.clusters import cluster, live, program, unmeasured
from tools.emulator import Emulator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of `lium.cluster.verify_roce` over four emulated hosts, one of which has a closed memory limit."""
    results = tmp_path_factory.mktemp("verified") / "results.json"
    command = [sys.executable, "-m", "tools.rehearsal", "--hosts", "4", "--floor", "0.2", "--fault", "host"]
    done = subprocess.run([*command, "--results", str(results)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(results.read_text()))


def test_the_proven_fabric_is_offered_and_ordered(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator, verified: dict[str, Any]
) -> None:
    (verdict,) = verified["fabrics"]
    sellable = verdict["sellable"]["hosts"]
    assert len(sellable) == 3
    emulator.reset(unmeasured(verdict["hosts"]))
    all_of_them = make_stack(program(cluster(nodes=4, fabric_type="roce")), env=engine_env)
    three = make_stack(program(cluster(nodes=3, fabric_type="roce")), env=engine_env, name="three")
    three.up(ok=False)  # nothing is on sale before a pair is measured
    assert live(emulator) == []

    emulator.call("POST", "measurements", verified)

    all_of_them.up(ok=False)  # the host without proof is not sold with the others
    assert live(emulator) == []
    three.up()
    assert sorted(pod["executor"]["id"] for pod in live(emulator)) == sorted(sellable)
    three.destroy()
    assert live(emulator) == []
