"""A pair verification on virtual hosts without Ansible: the collection's own planning, agents and verdict, over SSH.

Ansible takes seconds a task on emulated processors; what it adds is tested once, by the playbook.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
import zlib
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible_collections.lium.cluster.plugins.plugin_utils._roce import incast_verdict
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.bundle import agent_file
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import Conclusion, conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_plan import plan_incasts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import (
    OPTIONS,
    Planned,
    plan_reruns_of,
    plan_sweep,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder

from tests.rack.host import Host
from tests.rack.rack import Rack

FOLDER = "/var/lib/lium-cluster/roce"
#: The IPv4-mapped GID of Soft-RoCE stands at index 1.
GID_INDEX = 1


def fabric_address(host: Host) -> str:
    return host.fabric_address


def look(host: Host, gid_index: int = GID_INDEX) -> dict[str, Any]:
    """What roce_info says of a host of the rack; Soft-RoCE has no line rate."""
    rail = {
        "device": "rxe0",
        "port": 1,
        "gid_index": gid_index,
        "address": fabric_address(host),
        "link_gbps": None,
        "slot": None,
        "numa": None,
    }
    return {"facts": {"roce": {"refused": "", "rails": [rail]}}}


class Verification:
    """One verification of a rack's hosts. ``prefix`` stands before the agent's command on a host."""

    def __init__(self, rack: Rack, folder: Path, **options: Any) -> None:
        self.hosts = {host.name: host for host in rack.hosts}
        self.looks = {name: look(host) for name, host in self.hosts.items()}
        self.prefix: dict[str, str] = {}
        self.run_folder = RunFolder(str(folder))
        defaults = {name: option.get("default") for name, option in OPTIONS.items()}
        # An emulated pair takes seconds, many on a busy machine.
        self.options = {**defaults, "pair_timeout_s": 120.0, "listen_wait_s": 90.0, "patience_s": 60.0, **options}
        self.ends: dict[str, Any] = {}

    def plan(self) -> Planned:
        now = datetime.now(timezone.utc)
        planned = plan_sweep(self.options, self.looks, self.run_folder, f"run-{now:%H%M%S%f}", now)
        self.run_folder.write_plans(SWEEP, planned.plans)
        return planned

    def start(self, plans: Mapping[str, Any]) -> None:
        program = base64.b64encode(agent_file()).decode()
        for name, plan in plans.items():
            folder = f"mkdir -p {FOLDER} && rm -f {FOLDER}/records.jsonl && cat > {FOLDER}/plan.json"
            self.hosts[name].run(folder, text=json.dumps(plan))
            self.hosts[name].run(f"base64 -d > {FOLDER}/lium-roce-agent", text=program)
        for name in plans:
            agent = f"python3 -I {FOLDER}/lium-roce-agent {FOLDER}/plan.json {FOLDER} /run/lock/lium-roce.lock"
            shell = shlex.quote(f"{self.prefix.get(name, '')} {agent}")
            self.hosts[name].run(f"setsid -f sh -c {shell} > {FOLDER}/agent.log 2>&1 < /dev/null")

    def last_line(self, name: str) -> dict[str, Any]:
        done = self.hosts[name].run(f"tail -n 1 {FOLDER}/records.jsonl", check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 and done.stdout.strip() else {}

    def records_so_far(self, name: str) -> int:
        done = self.hosts[name].run(f"grep -c '^.\"schema\"' {FOLDER}/records.jsonl", check=False)
        return int(done.stdout.strip() or 0)

    def collect(self, pass_name: str, names: list[str], seconds: float = 400.0) -> None:
        """Waits for the agents, and keeps what they measured. A host that does not answer is lost."""
        deadline = time.monotonic() + seconds
        for name in names:
            host = self.hosts[name]
            if not host.alive():
                self.ends[name] = {"unreachable": True}
                continue
            while "end" not in self.last_line(name) and time.monotonic() < deadline:
                if host.run("pgrep -f ^python3.*lium-roce-agent", check=False).returncode:
                    break
                time.sleep(1)
            lines = host.run(f"cat {FOLDER}/records.jsonl").stdout.splitlines()
            rows = [line for line in lines if line.startswith('{"schema"')]
            packed = base64.b64encode(zlib.compress("\n".join(rows).encode())).decode()
            self.run_folder.write_records(pass_name, name, packed)
            last = json.loads(lines[-1])
            if pass_name == SWEEP:
                self.ends[name] = {"ended": last.get("end", "killed"), "why": last.get("why", "")}

    def conclude(self, *, reruns: bool = True) -> Conclusion:
        again = plan_reruns_of(self.run_folder, reruns)
        self.run_folder.write_plans(RERUN, again.plans)
        alive = {name: plan for name, plan in again.plans.items() if self.hosts[name].alive()}
        self.start(alive)
        self.collect(RERUN, list(alive))
        return conclude(self.run_folder, self.ends, {}, datetime.now(timezone.utc))

    def run(self, *, reruns: bool = True) -> Conclusion:
        planned = self.plan()
        self.start(planned.plans)
        self.collect(SWEEP, list(planned.plans))
        return self.conclude(reruns=reruns)


class CounterProof(Verification):
    """A counter proof over the first hosts of a rack."""

    def __init__(self, rack: Rack, folder: Path, hosts: int, **options: Any) -> None:
        super().__init__(rack, folder, mode="incast", **options)
        self.looks = dict(list(self.looks.items())[:hosts])
        # What lossless_info says of Soft-RoCE.
        leg = {"rail": "rxe0:1", "netdev": "eth1", "soft": True, "verdict": "unknown", "confidence": "host_only"}
        target = {"priority": 3, "traffic_class": 106, "ecn_only": False}
        lossless = {"verdict": "unknown", "confidence": "host_only", "rails": [{**leg, **target}], "switch": {}}
        self.lossless = {name: {"facts": {"lossless": lossless}} for name in self.looks}

    def prove(self) -> incast_verdict.Conclusion:
        now = datetime.now(timezone.utc)
        planned = plan_incasts(self.options, self.looks, self.lossless, self.run_folder, f"run-{now:%H%M%S%f}", now)
        self.run_folder.write_plans(SWEEP, planned.plans)
        self.start(planned.plans)
        self.collect(SWEEP, list(planned.plans))
        return incast_verdict.conclude(self.run_folder, self.ends, self.lossless)
