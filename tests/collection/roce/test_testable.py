"""The refusals of host-contract 5.7, on recorded hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe
from ansible_collections.lium.cluster.plugins.module_utils._roce.testable import look

MakeProbe = Callable[..., HostProbe]
QP = "link mlx5_0/1 lqpn 423 rqpn 434 type RC state RTS rq-psn 0 sq-psn 0 path-mig-state MIGRATED pid 4242 comm python3"
KERNEL_QP = "link mlx5_0/1 lqpn 1 type GSI state RTS sq-psn 58 comm [ib_core]"


def mapped(address: str) -> str:
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def port(device: str, address: str, index: int = 3, layer: str = "Ethernet") -> dict[str, str]:
    folder = f"/sys/class/infiniband/{device}"
    return {
        f"{folder}/ports/1/state": "4: ACTIVE",
        f"{folder}/ports/1/link_layer": layer,
        f"{folder}/ports/1/rate": "200 Gb/sec (4X HDR)",
        f"{folder}/ports/1/gids/{index}": mapped(address),
        f"{folder}/ports/1/gid_attrs/types/{index}": "RoCE v2",
        f"{folder}/device/current_link_speed": "16.0 GT/s PCIe",
        f"{folder}/device/current_link_width": "16",
        f"{folder}/device/numa_node": "1",
    }


def addresses(*own: str) -> dict[str, Any]:
    rows = [
        {"ifname": f"e{n}", "addr_info": [{"family": "inet", "local": a, "prefixlen": 24}]} for n, a in enumerate(own)
    ]
    no_users = {f"rdma resource show qp link mlx5_{n}/1": "" for n in (0, 1, 2, 10)}
    return {"ip -j addr show": json.dumps(rows), **no_users}


def refusal(seen: Look) -> str:
    roce = seen.facts["roce"]
    assert bool(roce["refused"]) == (roce["rails"] == [])
    return str(roce["refused"])


def test_rails_in_the_platforms_order(make_probe: MakeProbe) -> None:
    files = {**port("mlx5_2", "10.0.0.3"), **port("mlx5_10", "10.0.0.2"), **port("mlx5_0", "10.0.0.1")}
    files["/sys/class/infiniband/mlx5_0/device/net/ens1f0np0/mtu"] = "9000"
    seen = look(make_probe(files, addresses("10.0.0.1", "10.0.0.2", "10.0.0.3")), {})
    assert refusal(seen) == ""
    assert seen.records[0].status == "OK"
    rails = seen.facts["roce"]["rails"]
    assert [rail["device"] for rail in rails] == ["mlx5_0", "mlx5_10", "mlx5_2"]
    assert rails[0]["slot"] == [16.0, 16]
    assert rails[0]["numa"] == 1
    assert [rail["netdevs"] for rail in rails] == [["ens1f0np0"], [], []]
    # Without a driver it is a soft device, whose line rate means nothing.
    assert rails[0]["link_gbps"] is None


def test_a_host_for_confidential_vms_is_left_alone(make_probe: MakeProbe) -> None:
    files = {**port("mlx5_0", "10.0.0.1"), "/proc/812/comm": "qemu-system-x86"}
    seen = look(make_probe(files, addresses("10.0.0.1")), {"allow_busy": True})
    assert seen.records[0].status == "SKIPPED"
    assert "QEMU running (pid 812)" in refusal(seen)


#: What the platform cannot measure: files, the record's words, and the fix.
SEEDED: list[tuple[dict[str, str], str, str]] = [
    ({}, "no active RoCE port", "See rdma.port_active"),
    (port("mlx5_0", "10.0.0.1", layer="InfiniBand"), "fabric.mixed", "Down the InfiniBand port"),
    (port("mlx5_0", "10.0.0.1", index=4), "roce.no_address", "Give each rail an IPv4 address"),
    (port("mlx5_0", "169.254.0.1"), "roce.no_address", "Give each rail an IPv4 address"),
    ({**port("mlx5_0", "10.0.0.1"), **port("mlx5_1", "10.0.1.1")}, "roce.two_segments", "into one /24"),
    (
        {**port("mlx5_0", "10.0.0.1"), **port("mlx5_1", "10.0.0.2", index=1)},
        "roce.gid_index_mixed: mlx5_0:1 3, mlx5_1:1 1",
        "GID tables of the rails alike",
    ),
    (port("mlx5_0", "10.0.0.9"), "network namespace: mlx5_0:1 10.0.0.9", "Run in the host's network"),
]


@pytest.mark.parametrize(("files", "word", "fix"), SEEDED)
def test_what_hides_a_host_refuses_the_test(make_probe: MakeProbe, files: dict[str, str], word: str, fix: str) -> None:
    seen = look(make_probe(files, addresses("10.0.0.1", "10.0.0.2", "10.0.1.1")), {})
    assert word in refusal(seen)
    assert seen.records[0].status == "MUST_FIX"
    assert fix in seen.records[0].remediation


@pytest.mark.parametrize(
    ("answer", "status", "word"),
    [
        ({"stdout": "pod_1234\n"}, "SKIPPED", "pod_1234"),
        ({"stdout": "lium_roce_probe\n"}, "SKIPPED", "the platform is measuring"),
        ({"rc": 1, "stderr": "Cannot connect to the Docker daemon"}, "SKIPPED", "cannot tell whether a rental runs"),
        ({"timeout": True}, "SKIPPED", "cannot tell whether a rental runs"),
        ({"stdout": "filler_7\n"}, "OK", ""),
    ],
)
def test_a_rental_or_a_doubt_about_one_refuses(make_probe: MakeProbe, answer: Any, status: str, word: str) -> None:
    commands = {**addresses("10.0.0.1"), "docker ps --format {{.Names}}": answer}
    seen = look(make_probe(port("mlx5_0", "10.0.0.1"), commands), {})
    assert word in refusal(seen)
    assert seen.records[0].status == status


def test_another_program_on_the_device_refuses_unless_allowed(make_probe: MakeProbe) -> None:
    commands = {**addresses("10.0.0.1"), "rdma resource show qp link mlx5_0/1": f"{QP}\n{KERNEL_QP}\n"}
    probe = make_probe(port("mlx5_0", "10.0.0.1"), commands)
    seen = look(probe, {})
    assert refusal(seen) == "in use by mlx5_0:1 python3 (pid 4242)"
    assert "roce_verify_allow_busy" in seen.records[0].remediation
    assert refusal(look(probe, {"allow_busy": True})) == ""


def test_kernel_users_do_not_count(make_probe: MakeProbe) -> None:
    commands = {**addresses("10.0.0.1"), "rdma resource show qp link mlx5_0/1": KERNEL_QP}
    assert refusal(look(make_probe(port("mlx5_0", "10.0.0.1"), commands), {})) == ""


@pytest.mark.parametrize("answer", [None, {"rc": 255, "stderr": "Operation not permitted"}, {"timeout": True}])
def test_a_device_whose_users_cannot_be_told_is_tested_with_a_warning(make_probe: MakeProbe, answer: Any) -> None:
    command = "rdma resource show qp link mlx5_1/1"
    commands = {**addresses("10.0.0.1", "10.0.0.2"), "rdma resource show qp link mlx5_0/1": KERNEL_QP}
    del commands[command]
    if answer is not None:
        commands[command] = answer
    probe = make_probe({**port("mlx5_0", "10.0.0.1"), **port("mlx5_1", "10.0.0.2")}, commands)
    seen = look(probe, {})
    assert refusal(seen) == ""
    assert seen.records[0].status == "WARN"
    assert f"not known whether other programs use them: {command}" in seen.records[0].observed
    assert look(probe, {"allow_busy": True}).records[0].status == "OK"


def test_what_cannot_be_read_is_unknown_and_refuses(make_probe: MakeProbe) -> None:
    files = {**port("mlx5_0", "10.0.0.1"), "/sys/class/infiniband/mlx5_0/ports/1/gids/3": "not a gid"}
    seen = look(make_probe(files, addresses("10.0.0.1")), {})
    assert seen.records[0].status == "UNKNOWN"
    assert refusal(seen)
