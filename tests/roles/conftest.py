"""Playbooks of the collection against virtual hosts, and what a host looks like before and after."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool

# For the way from a bare rack to an ordered cluster.
from tests.engine.conftest import engine_env, make_stack, pulumi_cli  # noqa: F401
from tests.rack.host import Host
from tests.rack.rack import Rack

#: A host under emulation takes seconds for a task, and minutes where the machine is busy.
PLAY_TIMEOUT = 1800.0


@dataclasses.dataclass(frozen=True)
class Run:
    """A playbook that ended: exit code, its screen, its report with the page, and on each host how many tasks changed
    something."""

    rc: int
    screen: str
    report: dict[str, Any]
    changed: dict[str, int]
    page: str = ""

    def record(self, host: str, record_id: str) -> dict[str, str]:
        return self.records(host)[record_id]

    def records(self, host: str) -> dict[str, dict[str, str]]:
        (found,) = (row for row in self.report["hosts"] if row["name"] == host)
        return {record["id"]: record for record in found["records"]}

    def not_well(self, host: str) -> dict[str, str]:
        """Records that want something done: id -> status."""
        return {
            record_id: record["status"]
            for record_id, record in self.records(host).items()
            if record["status"] not in ("OK", "SKIPPED")
        }

    def on_page(self, record_id: str) -> str:
        """What the part "What to do next" of the page says on this check, as a person reads it."""
        part = self.page.partition("<h2>What to do next</h2>")[2].partition("<h2>")[0]
        cards = " ".join(f"<div {card}" for card in part.split("<div ") if f">{record_id}</code>" in card)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", cards)).split())


Playbook = Callable[..., Run]


@pytest.fixture
def playbook(tmp_path: Path) -> Playbook:
    """Runs a playbook of the collection, or a file: ``playbook("audit", inventory, "--check", hosts="host1")``."""

    def run(name: str, inventory: Path, *arguments: str, **variables: object) -> Run:
        report, page = tmp_path / "report.json", tmp_path / "report.html"
        for path in (report, page):
            path.unlink(missing_ok=True)
        play = name if name.endswith(".yml") else f"lium.cluster.{name}"
        values = json.dumps({"lium_report_path": str(report), "lium_report_page": str(page), **variables})
        done = subprocess.run(
            [ansible_tool("ansible-playbook"), "-i", str(inventory), play, "-e", values, *arguments],
            cwd=tmp_path,
            env={**ansible_env(ROOT, tmp_path / "ansible"), "ANSIBLE_PIPELINING": "1"},
            capture_output=True,
            text=True,
            timeout=PLAY_TIMEOUT,
        )
        screen = done.stdout + done.stderr
        changed = {host: int(count) for host, count in re.findall(r"^(host\d+) +: ok=\d+ +changed=(\d+)", screen, re.M)}
        found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        shown = page.read_text(encoding="utf-8") if page.exists() else ""
        return Run(done.returncode, screen, found, changed, shown)

    return run


@pytest.fixture
def inventory(tmp_path: Path) -> Callable[[Rack], Path]:
    return lambda rack: rack.write_inventory(tmp_path / "inventory.yml")


#: What changes on any running system by itself, or is a cache or a log.
_OWN_LIFE = (
    "/proc /sys /dev /run /tmp /var/tmp /var/log /var/cache /root/.ansible /var/lib/systemd /var/lib/apt/lists"
    " /var/lib/apt/periodic /var/lib/chrony"
)
# What cannot be read ends the snapshot: it must not pass for absent. A busy systemd is asked again.
_SNAPSHOT = f"""
set -euo pipefail
find / -xdev \\( {" -o ".join(f"-path {path}" for path in _OWN_LIFE.split())} \\) -prune -o \\( \\
    -type f -printf 'file %p %m %u %s %TY-%Tm-%Td %TT\\n' -o \\
    -type l -printf 'link %p %l\\n' -o \\
    -type d -printf 'folder %p %m %u\\n' \\)
cut -d' ' -f1 /proc/modules | sed 's/^/module /'
ip -o link | sed -E 's/^[0-9]+: /netdev /; s/ qlen [0-9]+//'
ip -o addr | sed -E 's/^[0-9]+: /address /; s/ valid_lft.*//'
ip route | sed 's/^/route /'
cat /proc/net/ip_tables_names 2>/dev/null | sed 's/^/iptables /' || true
find /sys/class/infiniband -maxdepth 1 -mindepth 1 -printf 'rdma %f\\n' 2>/dev/null || true
find /dev/infiniband -type c -printf 'node %p %m\\n' 2>/dev/null || true
sysctl -a 2>/dev/null | grep -E '^(net\\.ipv[46]\\.conf|vm\\.(swappiness|overcommit))' | sed 's/^/sysctl /'
for _ in 1 2 3; do units=$(systemctl list-unit-files --no-legend --type=service) && break; done
awk '{{print "unit", $1, $2}}' <<< "$units"
ulimit -l | sed 's/^/memlock /'
"""


def snapshot(host: Host) -> set[str]:
    """The whole disk and the kernel's state as lines; what lives by itself is left out."""
    return set(host.run(_SNAPSHOT, timeout=600).stdout.splitlines())


def differences(before: set[str], after: set[str], apart_from: str = r"(?!)") -> list[str]:
    """Lines of only one side, but those that match ``apart_from``."""
    lines = [f"- {line}" for line in sorted(before - after)] + [f"+ {line}" for line in sorted(after - before)]
    return [line for line in lines if not re.search(apart_from, line)]
