"""Audit of 32 hosts: recorded trees, connection local.

The hosts' own share is measured by the shell that starts each module, and taken off: on a fabric it is spent there.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.collection.recorded_host import healthy_host

HOSTS = 32
WALL_AIM_S = 30.0
CPU_AIM_S = 1.5

_INTERPRETER = """#!/bin/sh
{python} "$@"
code=$?
times >> "{log}"
exit $code
"""


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lium-bench-") as folder:
        wall, total, modules = _audit(Path(folder))
    controller = (total - modules) / HOSTS
    return [
        Figure(
            f"audit of {HOSTS} hosts, wall time",
            f"{wall:.1f} s",
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
            f"{WALL_AIM_S:.0f} s on 2 cores",
            wall <= WALL_AIM_S,
        ),
        Figure(
            "control node's CPU time a host",
            f"{controller:.2f} s",
            f"{modules / HOSTS:.2f} s in the modules of the host itself",
            f"{CPU_AIM_S} s",
            controller <= CPU_AIM_S,
        ),
    ]


def _audit(place: Path) -> tuple[float, float, float]:
    """Wall time, CPU time of everything, and that of the modules, in seconds."""
    log, interpreter = place / "times", place / "python"
    interpreter.write_text(_INTERPRETER.format(python=sys.executable, log=log), encoding="utf-8")
    interpreter.chmod(0o755)
    hosts = {}
    for number in range(1, HOSTS + 1):
        root = healthy_host(random.Random(number), number + 24, "roce", "mlx5_core").write(place / f"h{number}")
        hosts[f"h{number}"] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(interpreter),
            "preflight_host_root": str(root),
            "preflight_become": False,
            "wireguard_host_root": str(root),
            "wireguard_become": False,
            "lossless_host_root": str(root),
            "lossless_become": False,
            "runtime_hook_host_root": str(root),
            "runtime_hook_become": False,
        }
    inventory = place / "inventory.yml"
    inventory.write_text(json.dumps({"lium_fabric": {"hosts": hosts}}), encoding="utf-8")
    command = [ansible_tool("ansible-playbook"), "-i", str(inventory), "--forks", "8", "lium.cluster.audit"]
    started, before = time.monotonic(), os.times()
    done = subprocess.run(
        command, cwd=place, env=ansible_env(ROOT, place / "home"), capture_output=True, text=True, check=False
    )
    wall, after = time.monotonic() - started, os.times()
    if done.returncode != 0:
        raise RuntimeError(f"the audit found something on healthy hosts:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    total = after.children_user + after.children_system - before.children_user - before.children_system
    # Two lines a module: the shell's own time, and that of what it has started.
    children = log.read_text(encoding="utf-8").splitlines()[1::2]
    return wall, total, sum(_seconds(text) for line in children for text in line.split())


def _seconds(text: str) -> float:
    """``0m1.25s``, as the shell's ``times`` prints."""
    match = re.fullmatch(r"(\d+)m([0-9.]+)s", text)
    if match is None:
        raise ValueError(f"not a time of the shell: {text!r}")
    return int(match[1]) * 60 + float(match[2])
