"""The playbook verify_lossless with real agents against recorded hosts, an emulated perftest and emulated counters."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.collection.recorded_host import RecordedHost, healthy_host
from tests.collection.roce.agents import Model
from tools.rehearsal.counters import Counters
from tools.rehearsal.fabric import Fabric

pytestmark = pytest.mark.slow

HOSTS = ("gpu01", "gpu02", "gpu03", "gpu04")
NETDEV = "enp32s0np0"
RENTED = "docker ps --format {{.Names}}"
_PYTHON = "/usr/bin/python3"


def address(number: int) -> str:
    return f"10.20.30.{number}"


def lossless_host(number: int) -> RecordedHost:
    """A host with one good rail of mlx5."""
    rng = random.Random(number)
    while True:
        host = healthy_host(rng, number, "roce", "mlx5_core")
        if host.description.endswith(" 1 x mlx5_core"):
            return host


class Rack:
    """Recorded hosts, the model behind their perftest, and the run of the playbook over them."""

    def __init__(self, folder: Path, perftest: Path, hosts: dict[str, RecordedHost], counters: Counters) -> None:
        self.folder = folder
        addresses = {name: address(number) for number, name in enumerate(hosts, 1)}
        fabric = Fabric(list(hosts), 1, 400.0)
        self.model = Model(
            fabric, addresses, folder / "model.sock", floor_s=0.3, counters=counters, netdevs={NETDEV: 0}
        )
        programs = folder / "bin"
        programs.mkdir()
        for name in ("ib_write_bw", "ethtool", "rdma"):
            (programs / name).symlink_to(perftest)
        rows: dict[str, Any] = {}
        for name, host in hosts.items():
            root = str(host.write(folder / name / "root"))
            rows[name] = {
                "roce_verify_host_root": root,
                "lossless_host_root": root,
                "roce_verify_folder": str(folder / name / "agent"),
                "roce_verify_lock": str(folder / name / "lock"),
                "roce_verify_environment": {
                    "PATH": str(programs),
                    "LIUM_REHEARSAL_SOCKET": str(self.model.socket),
                    "LIUM_REHEARSAL_HOST": name,
                    "LIUM_REHEARSAL_ADDRESS": addresses[name],
                },
            }
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": _PYTHON if os.access(_PYTHON, os.X_OK) else "python3",
            "roce_verify_become": False,
            "lossless_become": False,
        }
        inventory = {"lium_fabric": {"hosts": rows, "vars": common}}
        (folder / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")

    def play(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the playbook in a network of its own, where the hosts' addresses are local."""
        playbook = [ansible_tool("ansible-playbook"), "-i", "inventory.json", "lium.cluster.verify_lossless"]
        network = "ip link set lo up && ip route add local 10.20.30.0/24 dev lo"
        flags = ["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
        if os.geteuid() != 0:
            flags.append("--map-root-user")
        return subprocess.run(
            ["unshare", *flags, "sh", "-c", f"{network} && exec {shlex.join([*playbook, *arguments])}"],
            cwd=self.folder,
            env={**ansible_env(ROOT, self.folder / "home"), "ANSIBLE_PIPELINING": "true"},
            capture_output=True,
            text=True,
            timeout=280,
        )

    @property
    def report(self) -> dict[str, Any]:
        path = self.folder / "lium-report.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


@pytest.fixture
def rack(tmp_path: Path, fake_perftest: Path) -> Iterator[Callable[..., Rack]]:
    assert shutil.which("unshare"), "package util-linux"
    made: list[Rack] = []

    def make(counters: Counters, change: Callable[[dict[str, RecordedHost]], None] = lambda _: None) -> Rack:
        hosts = {name: lossless_host(number) for number, name in enumerate(HOSTS, 1)}
        change(hosts)
        made.append(Rack(tmp_path, fake_perftest, hosts, counters))
        return made[-1]

    yield make
    for one in made:
        one.model.close()


def test_the_screen_the_report_and_the_verdict(rack: Callable[..., Rack]) -> None:
    """One port behind a switch that drops, one host under a rental."""
    one = rack(Counters("switch", "gpu02"), lambda hosts: hosts["gpu04"].answer(RENTED, "pod_7\n"))
    done = one.play()
    screen = done.stdout
    assert done.returncode == 2, screen + done.stderr
    assert "3 hosts, 3 incasts of 10 s, traffic class 106; 1 hosts refused" in screen
    assert "gpu04: a rental runs (pod_7)" in screen
    assert "2 of 3 ports lost nothing under an incast (traffic class 106)" in screen
    assert "gpu01: lossless (exercised)" in screen
    assert "gpu02: lossy (exercised)" in screen
    assert "priority-flow-control" in " ".join(screen.split()), "the text for the operator of the switch"
    report = one.report
    jsonschema.validate(report, json.loads((ROOT / "docs/schema/report.schema.json").read_text(encoding="utf-8")))
    assert {row["receiver"]: (row["proven"], row["place"]) for row in report["incasts"]} == {
        "gpu01": ("exercised_ok", None),
        "gpu02": ("exercised_loss", "switch"),
        "gpu03": ("exercised_ok", None),
    }
    records = {
        host["name"]: {record["id"]: (record["status"], record["observed"]) for record in host["records"]}
        for host in report["hosts"]
    }
    assert records["gpu01"]["roce.lossless"] == ("OK", "lossless (exercised)")
    assert records["gpu01"]["roce.loss_counters"][0] == "OK"
    assert records["gpu02"]["roce.lossless"] == ("MUST_FIX", "lossy (exercised): mlx5_0:1: switch")
    assert records["gpu02"]["roce.loss_counters"][0] == "MUST_FIX"
    assert records["gpu04"]["roce.loss_counters"] == ("SKIPPED", "no test ran: a rental runs (pod_7)")
    assert records["gpu04"]["roce.testable"][0] == "SKIPPED"
    assert not (one.folder / "gpu04/agent").exists(), "nothing ran on the rented host"
    assert "roce.loss_counters" in (one.folder / "lium-report.html").read_text(encoding="utf-8")


def test_check_mode_plans_and_sends_nothing(rack: Callable[..., Rack]) -> None:
    one = rack(Counters())
    done = one.play("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 hosts, 4 incasts of 10 s, traffic class 106; 0 hosts refused" in done.stdout
    assert one.model.server.tests == 0
    assert not any((one.folder / name / "agent").exists() for name in HOSTS)
    assert one.report == {}
