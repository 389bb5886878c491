"""What only shows between hosts."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.plugin_utils._fabric import compare_hosts

from tests.collection.recorded_host import CARDS, RecordedHost, add_device, healthy_host, mapped_gid, set_addresses

Facts = dict[str, dict[str, Any]]


def fabric(folder: Path, hosts: list[RecordedHost]) -> Facts:
    return {
        f"h{number}": dict(look(open_probe(str(host.write(folder / f"h{number}")), {}), {}).facts)
        for number, host in enumerate(hosts, 1)
    }


def roce_hosts(count: int) -> list[RecordedHost]:
    return [healthy_host(random.Random(number), number + 30, "roce") for number in range(1, count + 1)]


def findings(facts: Facts) -> dict[str, list[tuple[str, str]]]:
    return {
        host: [(record.id, record.status) for record in records if record.status != "OK"]
        for host, records in compare_hosts(facts).items()
    }


@pytest.mark.parametrize("kind", ["roce", "infiniband"])
def test_nothing_is_found_between_good_hosts(kind: str, tmp_path: Path) -> None:
    hosts = [healthy_host(random.Random(number), number + 30, kind) for number in range(4)]
    facts = fabric(tmp_path, hosts)
    assert findings(facts) == {f"h{number}": [] for number in range(1, 5)}
    (group,) = compare_hosts(facts)["h1"]
    assert group.observed.endswith("h1, h2, h3, h4")


def duplicate(hosts: list[RecordedHost]) -> None:
    gids = [(mapped_gid("10.20.30.31"), "RoCE v2")]
    device = next(path.split("/")[4] for path in hosts[1].files if path.startswith("/sys/class/infiniband/"))
    hosts[1].set_gids(device, [("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"), *gids], "enp32s0np0")


def other_mtu(hosts: list[RecordedHost]) -> None:
    hosts[2].files["/sys/class/net/enp32s0np0/mtu"] = "4200"


def other_gpu(hosts: list[RecordedHost]) -> None:
    hosts[0].remove("/proc/driver/nvidia/gpus/0000:40:00.0")
    hosts[0].remove("/sys/bus/pci/devices/0000:40:00.0")


def lost_gpu(hosts: list[RecordedHost]) -> None:
    for host in hosts:
        host.remove("/proc/driver/nvidia/gpus/0000:43:00.0")


def other_names(hosts: list[RecordedHost]) -> None:
    """A host whose system names cards by their place on the bus."""
    for number, host in enumerate(hosts):
        host.remove("/sys/class/infiniband")
        card = dataclasses.replace(CARDS[0], name="rocep{}s0" if number == 1 else CARDS[0].name)
        add_device(host, card, 0, f"10.20.30.{number + 31}")


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (other_names, {name: [("rdma.persistent_naming", "WARN")] for name in ("h1", "h2", "h3")}),
        (lost_gpu, {name: [("cluster.not_whole", "MUST_FIX")] for name in ("h1", "h2", "h3")}),
        (duplicate, {"h1": [("roce.unique_address", "MUST_FIX")], "h2": [("roce.unique_address", "MUST_FIX")]}),
        (other_mtu, {name: [("net.mtu", "MUST_FIX")] for name in ("h1", "h2", "h3")}),
        (other_gpu, {name: [("cluster.heterogeneous", "WARN")] for name in ("h1", "h2", "h3")}),
    ],
)
def test_a_difference_is_found_on_every_host_it_concerns(
    breaks: Callable[[list[RecordedHost]], None], expected: dict[str, list[tuple[str, str]]], tmp_path: Path
) -> None:
    hosts = roce_hosts(3)
    breaks(hosts)
    found = findings(fabric(tmp_path, hosts))
    assert found == {"h1": [], "h2": [], "h3": []} | expected


def test_a_larger_prefix_is_split_by_the_platform(tmp_path: Path) -> None:
    hosts = []
    for number, address in enumerate(("10.20.30.1", "10.20.31.1"), 31):
        host = healthy_host(random.Random(1), number, "roce")
        host.remove("/sys/class/infiniband")
        add_device(host, CARDS[0], 0, address)
        set_addresses(host, {"enp32s0np0": (address, 22)})
        hosts.append(host)
    found = findings(fabric(tmp_path, hosts))
    assert ("roce.same_prefix_assumption", "WARN") in found["h1"]
    records = {record.id: record for record in compare_hosts(fabric(tmp_path / "again", hosts))["h2"]}
    assert "split 10.20.28.0/22 into 2" in records["roce.same_prefix_assumption"].observed
    assert records["fabric.group"].status == "WARN"


def test_one_lid_with_two_subnet_managers_is_two_fabrics(tmp_path: Path) -> None:
    hosts = []
    for number, guid in enumerate(("0x946dae0300aabbcc", "0x946dae0300ddeeff"), 31):
        host = healthy_host(random.Random(2), number, "infiniband")
        for index in range(8):
            answer = f"sminfo: sm lid 1 sm guid {guid}, activity count 5 priority 14 state 3 SMINFO_MASTER\n"
            host.answer(f"sminfo -C mlx5_{index} -P 1", answer)
        hosts.append(host)
    assert findings(fabric(tmp_path, hosts)) == {name: [("ib.different_fabric", "MUST_FIX")] for name in ("h1", "h2")}


def test_two_limited_members_cannot_talk(tmp_path: Path) -> None:
    hosts = [healthy_host(random.Random(2), number, "infiniband") for number in (31, 32)]
    for host in hosts:
        for path in [path for path in host.files if path.endswith("pkeys/0")]:
            host.files[path] = "0x7fff"
    assert findings(fabric(tmp_path, hosts)) == {name: [("ib.pkey", "MUST_FIX")] for name in ("h1", "h2")}


def test_a_host_without_facts_is_compared_with_nobody(tmp_path: Path) -> None:
    facts = fabric(tmp_path, roce_hosts(2)) | {"gone": {}}
    assert findings(facts) == {"h1": [], "h2": [], "gone": []}


def test_the_audit_compares_the_hosts_of_the_play(tmp_path: Path, write_inventory, play) -> None:
    hosts = [healthy_host(random.Random(number), number + 30, "roce", "mlx5_core") for number in (1, 2, 3)]
    duplicate(hosts)
    inventory = write_inventory(
        {
            f"h{number}": {
                "preflight_become": False,
                "preflight_host_root": str(host.write(tmp_path / f"h{number}")),
                "wireguard_become": False,
                "wireguard_host_root": str(tmp_path / f"h{number}"),
                "lossless_become": False,
                "lossless_host_root": str(tmp_path / f"h{number}"),
                "runtime_hook_become": False,
                "runtime_hook_host_root": str(tmp_path / f"h{number}"),
            }
            for number, host in enumerate(hosts, 1)
        }
    )
    done = play("lium.cluster.audit", inventory, "-e", f"lium_report_path={tmp_path}/report.json")
    assert done.returncode == 2, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    broken = {
        host["name"]: [row["id"] for row in host["records"] if row["status"] == "MUST_FIX"] for host in report["hosts"]
    }
    assert broken == {"h1": ["roce.unique_address"], "h2": ["roce.unique_address"], "h3": []}
    assert "roce.unique_address  (h1, h2)" in done.stdout
    alike = [
        row["status"] for host in report["hosts"] for row in host["records"] if row["id"] == "roce.cluster_consistent"
    ]
    assert alike == ["OK"] * 3
