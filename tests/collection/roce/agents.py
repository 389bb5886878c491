"""Agents of several emulated hosts on one machine: each a real process on a loopback address of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.bundle import agent_file

from tools.rehearsal.fabric import Fabric
from tools.rehearsal.model_server import ModelServer


class Model:
    """The fabric model, served from a thread of its own."""

    def __init__(self, fabric: Fabric, addresses: Mapping[str, str], socket: Path, **options: Any) -> None:
        self.server = ModelServer(fabric, addresses, **options)
        self.socket = socket
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        listener = self._loop.run_until_complete(self.server.serve(self.socket))
        self._ready.set()
        self._loop.run_forever()
        listener.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


class Agents:
    """Starts agents on their plans and reads what they wrote."""

    def __init__(self, folder: Path, perftest: Path, model: Model, addresses: Mapping[str, str]) -> None:
        self.folder = folder
        self.model = model
        self.addresses = addresses
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name in ("ib_write_bw", "ethtool", "rdma"):
            (self._bin / name).symlink_to(perftest)
        self.program = self._bin / "ib_write_bw"
        (self._bin / "setpriv").symlink_to("/usr/bin/setpriv")
        self._agent = folder / "lium-roce-agent"
        self._agent.write_bytes(agent_file())

    def rails(self, count: int = 1) -> dict[str, list[RailAt]]:
        return {
            host: [
                RailAt(f"mlx5_{rail}", 1, 3, address, self.model.server.fabric.link_gbps, netdevs=(f"rail{rail}",))
                for rail in range(count)
            ]
            for host, address in self.addresses.items()
        }

    def home(self, host: str) -> Path:
        home = self.folder / host
        home.mkdir(exist_ok=True)
        return home

    def environ(self, host: str) -> dict[str, str]:
        return {
            "PATH": str(self._bin),
            "LIUM_REHEARSAL_SOCKET": str(self.model.socket),
            "LIUM_REHEARSAL_HOST": host,
            "LIUM_REHEARSAL_ADDRESS": self.addresses[host],
        }

    def start(self, plans: Mapping[str, Any], hosts: Sequence[str] | None = None) -> None:
        for host in hosts or plans:
            home = self.home(host)
            (home / "plan.json").write_text(json.dumps(plans[host]))
            self.processes[host] = subprocess.Popen(
                [sys.executable, "-I", self._agent, home / "plan.json", home, home / "lock"], env=self.environ(host)
            )
            self._started.append(self.processes[host])

    def wait(self, timeout: float = 60.0) -> dict[str, int]:
        deadline = time.monotonic() + timeout
        return {host: process.wait(deadline - time.monotonic()) for host, process in self.processes.items()}

    def lines(self, host: str) -> list[dict[str, Any]]:
        path = self.home(host) / "records.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def records(self, host: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(host) if "status" in line]

    def end(self, host: str) -> dict[str, Any]:
        return self.lines(host)[-1]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.model.close()


def children_of(pid: int) -> list[int]:
    """Processes that have ``pid`` as their parent now."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            if stat.rpartition(")")[2].split()[1] == str(pid):
                found.append(int(entry))
    return found
