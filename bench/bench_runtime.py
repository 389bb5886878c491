"""The container runtime: what it adds to the start of a container, over runc itself.

runc prints its version in each row, so that it does the same work behind the wrapper as alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.figure import Figure
from tests.support.role_files import ROLES

CALLS = 41
AIM_MS = 30.0
WRAPPER = ROLES / "runtime_hook" / "files" / "lium_rdma_runc.py"


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lium-bench-") as folder:
        settings, bundle, program = (Path(folder, name) for name in ("rdma-runc.conf", "bundle", WRAPPER.name))
        program.write_bytes(WRAPPER.read_bytes())
        program.chmod(0o755)
        settings.write_text("runtime=runc\nruntime=--version\n", encoding="utf-8")
        bundle.mkdir()
        subprocess.run(["runc", "spec", "--bundle", str(bundle)], check=True)
        environ = {**os.environ, "LIUM_RDMA_RUNC_SETTINGS": str(settings)}
        bare, passed_on, create = _medians(
            [
                ["runc", "--version"],
                [str(program), "state", "id"],
                [str(program), "create", "--bundle", str(bundle), "id"],
            ],
            environ,
        )
    return [
        Figure(
            f"{name}, median wall time over runc",
            f"{spent - bare:.1f} ms",
            f"{bare:.1f} ms of `runc --version` alone; {CALLS} calls each, in turn; load {os.getloadavg()[0]:.1f}",
            f"{AIM_MS:.0f} ms",
            spent - bare <= AIM_MS,
        )
        for name, spent in (("a verb that is passed on", passed_on), ("`create`, with its edits", create))
    ]


def _medians(commands: list[list[str]], environ: Mapping[str, str]) -> list[float]:
    """Milliseconds of each command. They take turns, so that what else the machine does falls on all of them."""
    spent: list[list[float]] = [[] for _ in commands]
    for _ in range(CALLS):
        for command, times in zip(commands, spent, strict=True):
            started = time.monotonic()
            subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
            times.append((time.monotonic() - started) * 1000)
    return [statistics.median(times) for times in spent]
