"""Field cases of the RDMA stack: what the tools print is read for what it means."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look_at_rdma
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.ibv import parse_ibv_devinfo
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ip_route
from ansible_collections.lium.cluster.plugins.module_utils._parsers.rdma_tool import (
    parse_netns_mode,
    parse_rdma_link,
    parse_rdma_link_json,
)
from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    Completed,
    HostProbe,
    RecordedRunner,
    Unreadable,
    open_probe,
)
from ansible_collections.lium.cluster.plugins.module_utils._rdma.soft import SoftRoceError, explain_add, needs_change
from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import read_tree

from tests.collection.recorded_host import RecordedHost, healthy_host

CASES = Path(__file__).parent / "cases"


def text(case: str, name: str) -> str:
    return (CASES / case / name).read_text(encoding="utf-8")


def roce_host() -> RecordedHost:
    """A RoCE host whose only card is mlx5_0."""
    rng = random.Random(5)
    while True:
        host = healthy_host(rng, kind="roce")
        if host.description.endswith("1 x mlx5_core"):
            return host


def records(host: RecordedHost, folder: Path) -> dict[str, tuple[str, str, str]]:
    found = look_at_rdma(open_probe(str(host.write(folder)), {}), {}).records
    return {record.id: (record.status, record.observed, record.remediation) for record in found}


def test_b53_an_old_library_is_not_a_missing_card(tmp_path: Path) -> None:
    host = roce_host()
    host.answer("ibv_devinfo", text("B53", "ibv_devinfo.txt"), rc=255)
    status, observed, fix = records(host, tmp_path / "host")["rdma.stack_identity"]
    assert status == "WARN"
    assert "provider library too old for this kernel (needs 6, has 1" in observed
    assert "provider libraries" in fix
    assert parse_ibv_devinfo(text("B53", "ibv_devinfo.txt")).devices == ()
    links = parse_rdma_link(text("B53", "rdma-link.txt"))
    assert [(link.device, link.port, link.state, link.netdev) for link in links] == [
        ("bnxt_re0", 1, "ACTIVE", None),
        ("bnxt_re1", 1, "DOWN", None),
    ]


@pytest.mark.parametrize("name", ["empty.json", "prefixed.json", "route-local.json"])
def test_b55_json_that_is_none_is_a_typed_error(name: str) -> None:
    for parse in (parse_rdma_link_json, parse_ip_route):
        with pytest.raises(ParseError, match="not JSON"):
            parse(text("B55", name))


def test_b55_one_broken_tool_leaves_the_other_checks_standing(tmp_path: Path) -> None:
    host = roce_host()
    host.answer("ip -j addr show", text("B55", "route-local.json"))
    found = records(host, tmp_path / "host")
    assert found["roce.same_prefix_assumption"][0] == "UNKNOWN"
    assert "ip -j addr show: not JSON" in found["roce.same_prefix_assumption"][1]
    assert {status for key, (status, _, _) in found.items() if key != "roce.same_prefix_assumption"} <= {
        "OK",
        "SKIPPED",
    }


def test_b56_a_tool_that_lacks_a_command_says_so() -> None:
    done = Completed(("rdma", "system", "show"), 1, "", text("B56", "system.stderr"))
    with pytest.raises(ParseError, match="iproute2 too old"):
        parse_netns_mode(done)
    assert explain_add("rxe0", "eth0", text("B56", "link-add.stderr")).startswith(
        "iproute2 too old, needs `rdma link add`"
    )


def test_b56_nothing_else_breaks(tmp_path: Path) -> None:
    host = roce_host()
    host.answer("rdma system show", rc=1, stderr=text("B56", "system.stderr"))
    found = records(host, tmp_path / "host")
    assert found["rdma.netns_mode"][0] == "UNKNOWN"
    assert found["roce.single_segment"][0] == "OK"


def test_b57_soft_roce_is_added_once() -> None:
    links = parse_rdma_link_json(text("B57", "rdma-link-before.json"))
    assert needs_change(links, "rxe0", "eth0") is False
    assert needs_change(links, "rxe1", "eth1") is True
    with pytest.raises(SoftRoceError, match="rxe0 stands on eth0 already, not on eth1"):
        needs_change(links, "rxe0", "eth1")
    with pytest.raises(SoftRoceError, match="eth0 carries rxe0 already"):
        needs_change(links, "rxe1", "eth0")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("add-again.stderr", "rxe0 is there already"),
        ("bad-netdev.stderr", "eth9: no such netdev"),
        ("no-module.stderr", "module rdma_rxe is not there; kernel 6.1.0-21-cloud-amd64 is of the cloud flavour"),
    ],
)
def test_b57_errors_of_the_kernel_are_explained(name: str, said: str) -> None:
    assert said in explain_add("rxe0", "eth9", text("B57", name))


@pytest.mark.parametrize(
    ("name", "command"), [("ibv_devinfo-a.txt", "ibv_devinfo"), ("ibv_devices-b.txt", "ibv_devinfo")]
)
def test_b58_a_missing_package_is_not_missing_hardware(name: str, command: str, tmp_path: Path) -> None:
    host = roce_host()
    host.answer(command, rc=255, stderr=text("B58", name))
    status, observed, fix = records(host, tmp_path / "with")["rdma.stack_identity"]
    assert (status, "provider package missing" in observed) == ("WARN", True)
    assert "ibverbs-providers" in fix
    assert "mlx5_0" in observed


def test_b58_without_a_device_in_sysfs_the_warning_means_nothing(tmp_path: Path) -> None:
    host = roce_host()
    host.answer("ibv_devinfo", rc=255, stderr=text("B58", "ibv_devinfo-a.txt"))
    host.remove("/sys/class/infiniband")
    found = records(host, tmp_path / "host")
    assert "provider package" not in found["rdma.stack_identity"][1]
    assert found["rdma.port_active"][0] == "MUST_FIX"


def with_nodes(names: list[str], owners: dict[str, str]) -> RecordedHost:
    host = roce_host()
    host.remove("/dev/infiniband")
    host.remove("/sys/class/infiniband_verbs")
    for name in names:
        host.files[f"/dev/infiniband/{name}"] = ""
        host.modes[f"/dev/infiniband/{name}"] = 0o666
    for node, owner in owners.items():
        host.files[f"/sys/class/infiniband_verbs/{node}/ibdev"] = owner
    return host


def test_b59_roce_needs_no_management_nodes(tmp_path: Path) -> None:
    host = with_nodes(text("B59", "roce.txt").split(), {"uverbs0": "mlx5_0", "uverbs1": "mlx5_1"})
    assert records(host, tmp_path / "host")["rdma.device_nodes"][0] == "OK"


def test_b59_a_missing_rdma_cm_names_its_module(tmp_path: Path) -> None:
    host = with_nodes(text("B59", "no-rdma_cm.txt").split(), {"uverbs0": "mlx5_0"})
    status, observed, fix = records(host, tmp_path / "host")["rdma.device_nodes"]
    assert (status, observed) == ("MUST_FIX", "no rdma_cm")
    assert "modprobe -a rdma_ucm" in fix


def test_b59_the_node_of_a_card_is_found_through_sysfs(tmp_path: Path) -> None:
    owners = json.loads(text("B59", "gap-sysfs.json"))
    host = with_nodes(text("B59", "gap.txt").split(), owners)
    assert records(host, tmp_path / "host")["rdma.device_nodes"][0] == "OK"
    assert Host(open_probe(str(tmp_path / "host"), {})).verbs_nodes == owners


class EmptySlots(HostProbe):
    """As the kernel does: the type of an empty slot cannot be read."""

    def read(self, path: str) -> str:
        if "gid_attrs" in path and path.endswith(("/0", "/1", "/2", "/3")):
            raise Unreadable(path, OSError(errno.EINVAL, "Invalid argument"))
        return super().read(path)


@pytest.mark.parametrize(
    ("case", "kind", "index"), [("B104", HostProbe, 3), ("B106", HostProbe, 7), ("B106", EmptySlots, 7)]
)
def test_b104_b106_gid_of_the_pod(case: str, kind: type[HostProbe], index: int, tmp_path: Path) -> None:
    (tmp_path / "sys").symlink_to(CASES / case / "sysfs")
    (port,) = read_tree(kind(RecordedRunner({}), str(tmp_path))).ports
    assert port.rail_gid is not None
    assert port.rail_gid.index == index
