"""Field cases on the environment of a pod: the inputs stand in cases/, the right outcome in each expected.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulumi_lium.lifecycle.members import launch_outputs
from tests.collection.runtime_hook.layouts import Card, Entry, mapped, write_sysfs
from tests.support.role_files import load

env = load("runtime_hook", "lium_fabric_env")
log = load("runtime_hook", "lium_nccl_log")
CASES = Path(__file__).parent / "cases"


def case(name: str, file: str) -> str:
    return (CASES / name / file).read_text()


def tree(name: str, tmp_path: Path) -> str:
    """The case's sysfs as a root."""
    (tmp_path / "sys").symlink_to(CASES / name / "sysfs")
    return str(tmp_path)


def test_b63_presence_is_not_judged_by_dev_alone() -> None:
    nodes = case("B63", "dev-infiniband.txt").split()
    devices = case("B63", "sys-class-infiniband.txt").split()
    assert env.presence(nodes, devices).startswith("present, not mapped")
    assert env.presence(nodes, []) == "absent"
    assert env.presence(["rdma_cm", "uverbs0"], devices) == "present"


def test_b89_a_gid_of_another_namespace(tmp_path: Path) -> None:
    ports = env.read_sysfs(tree("B89", tmp_path))
    own = [address for _, address in env.interface_addresses(case("B89", "ip-j-addr.json"))]
    (told,) = env.foreign_gids(ports, own)
    assert "no GID of an address in this namespace" in told
    assert "host network (or a function of its own) needed" in told
    assert env.foreign_gids(ports, [*own, "192.0.2.19"]) == []


@pytest.mark.parametrize("other_gid", [mapped("10.99.0.7"), "fe80:0000:0000:0000:02aa:bbff:fecc:dd01"])
def test_b103_exact_names(tmp_path: Path, other_gid: str) -> None:
    devices = json.loads(case("B103", "devices.json"))
    cards = tuple(
        Card(
            name,
            1,
            row["state"],
            "Ethernet",
            (Entry(3, mapped(f"10.20.30.{number}") if row["fabric"] else other_gid, "RoCE v2"),),
        )
        for number, (name, row) in enumerate(devices.items(), 11)
    )
    write_sysfs(tmp_path, cards)
    values = env.environment(env.choose(env.read_sysfs(str(tmp_path)), "10.20.30.0/24"), "wg0")
    assert f"NCCL_IB_HCA={values['NCCL_IB_HCA']}" == case("B103", "want.txt").strip()


def test_b104_the_fabrics_gid(tmp_path: Path) -> None:
    (port,) = env.read_sysfs(tree("B104", tmp_path))
    assert env.rail_gid(port).index == 3


def test_b106_empty_slots(tmp_path: Path) -> None:
    root = tree("B106", tmp_path)

    def read(path: str) -> str:
        if path.endswith(("types/0", "types/1", "types/2", "types/3")):
            raise OSError(22, "Invalid argument", path)
        return env.read_text(path)

    for ports in (env.read_sysfs(root), env.read_sysfs(root, read)):
        assert env.rail_gid(ports[0]).index == 7


def test_b108_the_overlay_and_not_the_docker_bridge() -> None:
    interface = env.overlay_interface(case("B108", "ip-j-addr.json"))
    values = env.environment(env.Fabric("infiniband", (), ()), interface)
    assert [f"{key}={value}" for key, value in values.items()] == case("B108", "want.txt").split()


def test_b109_the_interface_that_carries_the_overlay() -> None:
    assert env.overlay_interface(case("B109", "pod1-ip-j-addr.json")) == "wg-lium0"
    with pytest.raises(env.FabricError, match=r"10\.42\.0\.0/24: the overlay is not up"):
        env.overlay_interface(case("B109", "pod2-ip-j-addr.json"))


def test_b110_no_names_in_the_launch_line() -> None:
    cluster = json.loads(case("B110", "cluster.json"))
    rows = [{**node, "gpu_count": cluster["gpus_per_node"]} for node in cluster["nodes"]]
    lines = launch_outputs(rows, len(rows))["torchrun_args"]
    assert lines == [
        f"--nnodes 2 --nproc_per_node 8 --node_rank {rank} --master_addr 10.42.0.1" for rank in range(len(rows))
    ]
    names = {name for line in case("B110", "etc-hosts.txt").splitlines() for name in line.split()[1:]}
    assert not any(name in line for line in lines for name in names)


@pytest.mark.parametrize(
    ("file", "transport", "quote", "cause"),
    [
        ("good.log", "IB", "Using network IB", ""),
        ("nodev.log", "Socket", "Using network Socket", "no RDMA device"),
        ("noopen.log", "Socket", "Using network Socket", "cannot be opened"),
    ],
)
def test_b112_no_quiet_fall_back(file: str, transport: str, quote: str, cause: str) -> None:
    reading = log.read_log(case("B112", file))
    assert reading.transport == transport
    assert reading.well == (transport == "IB")
    assert quote in reading.line
    assert cause in reading.cause


@pytest.mark.parametrize("row", json.loads(case("B114", "selectors.json")), ids=lambda row: row["v"] or "empty")
def test_b114_what_a_selector_means(row: dict) -> None:
    ports = [env.Port(name, 1, "ACTIVE", "Ethernet", ()) for name in ("mlx5_0", "mlx5_1", "mlx5_10", "mlx5_bond_0")]
    if row["want"] == "error":
        with pytest.raises(env.FabricError) as caught:
            env.select(row["v"], ports)
        assert row["v"].lstrip("^=") in str(caught.value)
    else:
        assert [port.device for port in env.select(row["v"], ports)] == row["want"]
