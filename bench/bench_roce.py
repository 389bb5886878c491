"""RoCE verification: rounds against one pair after another, and what the agents and the controller cost.

    python -m bench.bench_roce [--hosts 32]

Each row is a rehearsal (tools/rehearsal): the playbook, its agents and their sockets are real, perftest takes its 1.5
s, the hosts are emulated on this machine. So the wall time holds the controller and all agents on its few cores;
"agents" is the time from the last agent's start to the last one's end. No serial run is timed: "one pair after another"
is the sum of what the tests took by themselves in these very rounds, so a test that load made longer counts so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.figure import Figure, table

ROOT = Path(__file__).resolve().parents[1]
FLOOR_S = 1.5
#: Hosts → seconds that a verification of them may take.
AIMS = {32: 60.0, 128: 240.0, 300: 600.0}


def rehearse(hosts: int) -> dict[str, Any]:
    """The figures of one rehearsal of a healthy fabric."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        command = [sys.executable, "-m", "tools.rehearsal", "--hosts", str(hosts), "--fault", "none"]
        done = subprocess.run(
            [*command, "--floor", str(FLOOR_S), "--json", str(path)], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return dict(json.loads(path.read_text()))


def figures_of(hosts: int, seen: dict[str, Any]) -> list[Figure]:
    """The rows of one rehearsal."""
    rounds, agents_s = seen["rounds"], seen["agents_s"]
    faster = seen["tests_own_s"] / agents_s
    overhead = agents_s / rounds - FLOOR_S
    aim = AIMS.get(hosts)
    return [
        Figure(
            f"n = {hosts}, playbook from start to end",
            f"{seen['wall_s']:.0f} s",
            f"{rounds} rounds × {FLOOR_S} s = {seen['ideal_s']:.0f} s; agents {agents_s:.0f} s",
            f"≤ {aim:.0f} s" if aim else "",
            seen["wall_s"] <= aim if aim else None,
        ),
        Figure(
            f"n = {hosts}, rounds against one pair after another",
            f"{faster:.1f} × faster",
            f"{seen['tests']} tests, {seen['tests_own_s']:.0f} s: the sum of their own times in this rehearsal",
            f"≥ 0.8 × n/2 = {0.4 * hosts:.1f}",
            faster >= 0.4 * hosts,
        ),
        Figure(
            f"n = {hosts}, agent's time a test beside perftest's own",
            f"{overhead:.2f} s",
            f"{FLOOR_S} s",
            "≤ 0.3 s",
            overhead <= 0.3,
        ),
        Figure(
            f"n = {hosts}, controller a host",
            f"{seen['controller_cpu_s_per_host']:.2f} CPU-s",
            f"{seen['controller_memory_mib']} MiB at most; agent {seen['agent_cpu_s']:.1f} CPU-s,"
            f" {seen['agent_memory_mib']} MiB",
        ),
    ]


def figures(hosts: tuple[int, ...] = tuple(AIMS)) -> list[Figure]:
    """All rows; the largest rehearsal takes ten minutes."""
    return [row for number in hosts for row in figures_of(number, rehearse(number))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, nargs="+", default=list(AIMS))
    print(table(figures(tuple(parser.parse_args().hosts))))
