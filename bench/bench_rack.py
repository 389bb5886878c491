"""The rack of virtual hosts: ready from the cache, and onboarding with nothing to do.

Processors are emulated: of the onboarding only the ratio says something about real hosts.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.rack.rack import Boot, Rack

HOSTS = 2
NAME = "bench"
READY_AIM_S = 10.0


def figures() -> list[Figure]:
    # What the racks start from is made, where it is missing, before anything is measured.
    _ready("snapshot")
    cold = _ready("cold")
    warm = _ready("snapshot")
    with tempfile.TemporaryDirectory(prefix="lium-bench-") as folder:
        rack = Rack.up(HOSTS, name=NAME, owned=True)
        try:
            inventory = rack.write_inventory(Path(folder) / "inventory.yml")
            first, done = _onboard(inventory)
            second, nothing = _onboard(inventory)
        finally:
            rack.down()
    if not done or nothing:
        raise RuntimeError(f"onboarding changed {done} things on bare hosts, and {nothing} the second time")
    return [
        Figure(
            f"rack of {HOSTS} ready, from the cache",
            f"{warm:.1f} s",
            f"{cold:.1f} s by a cold boot (ratio {warm / cold:.2f})",
            f"{READY_AIM_S:.0f} s",
            warm <= READY_AIM_S,
        ),
        Figure(
            f"onboarding of {HOSTS} hosts with nothing to do",
            f"{second:.0f} s",
            f"{first:.0f} s on bare hosts (ratio {second / first:.2f}); load {os.getloadavg()[0]:.1f}",
        ),
    ]


def _ready(boot: Boot) -> float:
    """Seconds until a rack's hosts answer."""
    started = time.monotonic()
    rack = Rack.up(HOSTS, name=NAME, boot=boot, owned=True)
    try:
        for host in rack.hosts:
            host.run("true")
        return time.monotonic() - started
    finally:
        rack.down()


def _onboard(inventory: Path) -> tuple[float, int]:
    """Seconds, and how many changes were made. A bare host without Docker is not sellable, hence not exit code 0."""
    started = time.monotonic()
    done = subprocess.run(
        [ansible_tool("ansible-playbook"), "-i", str(inventory), "lium.cluster.onboard"],
        cwd=inventory.parent,
        env={**ansible_env(ROOT, inventory.parent / "ansible"), "ANSIBLE_PIPELINING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    changed = re.findall(r"^host\d+ +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE)
    if len(changed) != HOSTS:
        raise RuntimeError(f"onboarding did not end:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return seconds, sum(map(int, changed))
