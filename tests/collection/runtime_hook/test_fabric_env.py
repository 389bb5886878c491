"""`lium-fabric-env`: which cards, which GID, which interface, and the gate before a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, RecordedRunner
from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import read_tree
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import predict

from tests.collection.runtime_hook.layouts import Card, Entry, Layout, ibv_devinfo, layout, mapped, write_sysfs
from tests.support.role_files import ROLES, load

env = load("runtime_hook", "lium_fabric_env")
LAYOUTS = 500


def named(ports: list[object], segment: str = "") -> dict[str, str]:
    return env.environment(env.choose(ports, segment), "wg0")


def judge(made: Layout, ports: list[object], seed: int) -> None:
    """Compares what the program makes of the ports with what is right for the layout."""
    if made.kind == "refused":
        with pytest.raises(env.FabricError):
            env.choose(ports, made.segment)
        return
    if made.kind == "ambiguous":
        with pytest.raises(env.FabricError, match="--segment"):
            env.choose(ports)
    values = named(ports, made.segment)
    assert values.get("NCCL_IB_HCA", "") == made.hca, seed
    assert values.get("NCCL_IB_GID_INDEX") == made.gid_index, seed
    if made.hca:
        # What NCCL would take of it is what was meant, and nothing else.
        chosen = env.select(values["NCCL_IB_HCA"], ports)
        assert sorted(port.name for port in chosen) == sorted(made.hca[1:].split(",")), seed


def test_500_layouts_from_sysfs_and_from_verbs(tmp_path: Path) -> None:
    kinds = dict.fromkeys(("roce", "infiniband", "refused", "ambiguous"), 0)
    uniform = 0
    for seed in range(LAYOUTS):
        made = layout(seed)
        write_sysfs(tmp_path / str(seed), made.cards)
        judge(made, env.read_sysfs(str(tmp_path / str(seed))), seed)
        judge(made, env.parse_ibv_devinfo(ibv_devinfo(made.cards)), seed)
        kinds[made.kind] += 1
        uniform += made.gid_index is not None
    assert all(count >= 20 for count in kinds.values()), kinds
    assert 100 <= uniform <= LAYOUTS - 100


def test_agrees_with_the_collections_own_prediction(tmp_path: Path) -> None:
    compared = 0
    for seed in range(LAYOUTS, LAYOUTS + 60):
        made = layout(seed)
        if made.kind != "roce":
            continue
        root = tmp_path / str(seed)
        write_sysfs(root, made.cards)
        view = predict(read_tree(HostProbe(RecordedRunner({}), str(root))).ports)
        values = named(env.read_sysfs(str(root)))
        assert values["NCCL_IB_HCA"] == view.nccl_ib_hca
        index = view.nccl_ib_gid_index
        assert values.get("NCCL_IB_GID_INDEX") == (None if index is None else str(index))
        compared += 1
    assert compared > 20


PORT = Card("mlx5_0", 1, "ACTIVE", "Ethernet", (Entry(3, mapped("10.20.30.11"), "RoCE v2"),))


def test_segment_comes_from_the_peers() -> None:
    endpoints = "wg0\tk1=\t10.20.30.12:51820\nwg0\tk2=\t10.20.30.13:51820\nwg0\tk3=\t(none)\n"
    assert env.peers_segment(endpoints) == "10.20.30.0/24"
    assert env.peers_segment("wg0\tk1=\t10.20.30.12:51820\nwg0\tk2=\t10.9.9.9:51820\n") == ""
    assert env.peers_segment("") == ""


def test_two_interfaces_on_the_overlay_are_no_choice() -> None:
    rows = [
        {"ifname": name, "addr_info": [{"family": "inet", "local": address}]}
        for name, address in (("wg0", "10.42.0.1"), ("br0", "10.42.0.7"))
    ]
    with pytest.raises(env.FabricError, match="br0 and wg0"):
        env.overlay_interface(json.dumps(rows))


@pytest.mark.parametrize("text", ["", "{", "null", "[[1]]", '[{"addr_info": [{"family": "inet"}]}]', "<html>"])
def test_addresses_that_are_not_understood_are_an_error(text: str) -> None:
    with pytest.raises(env.FabricError, match="ip -j addr show"):
        env.overlay_interface(text)


def test_an_unreadable_attribute_is_an_error_and_no_absence(tmp_path: Path) -> None:
    write_sysfs(tmp_path, (PORT,))

    def read(path: str) -> str:
        if path.endswith("/state"):
            raise PermissionError(13, "Permission denied", path)
        return env.read_text(path)

    with pytest.raises(env.FabricError, match="/state: Permission denied"):
        env.read_sysfs(str(tmp_path), read)


def test_gate_waits_for_a_link_and_gives_up_with_the_reason() -> None:
    down, up = (env.Port("mlx5_0", 1, state, "Ethernet", ()) for state in ("DOWN", "ACTIVE"))
    answers = iter([[], [down], [up]])
    slept: list[float] = []
    said: list[str] = []
    assert env.gate(lambda: next(answers), slept.append, said.append)
    assert slept == [2.0, 2.0]
    assert said == []

    assert not env.gate(lambda: [down], slept.append, said.append)
    assert len(slept) == 2 + 4
    assert said == ["no usable RDMA fabric: no port is ACTIVE (mlx5_0:1 DOWN)"]

    def unreadable() -> list[object]:
        raise env.FabricError("/sys/class/infiniband: Permission denied")

    assert not env.gate(unreadable, slept.append, said.append)
    assert "Permission denied" in said[-1]


def test_active_defer_is_not_active() -> None:
    ports = env.parse_ibv_devinfo(ibv_devinfo((PORT._replace(state="ACTIVE_DEFER"),)))
    assert not env.gate(lambda: ports, lambda _: None, lambda _: None)


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("=mlx5_0:", "mlx5_0:"),
        ("=mlx5_0:-1", "mlx5_0:-1"),
        ("=mlx5_0:01", "mlx5_0:01"),
        ("= mlx5_0", " mlx5_0"),
        ("^mlx5_9", "mlx5_9"),
        ("=^mlx5_0", "^mlx5_0"),
        (":1", ":1"),
    ],
)
def test_a_token_that_stands_for_nothing_is_named(value: str, token: str) -> None:
    ports = [env.Port(f"mlx5_{number}", 1, "ACTIVE", "Ethernet", ()) for number in range(2)]
    with pytest.raises(env.FabricError) as caught:
        env.select(value, ports)
    assert repr(token) in str(caught.value)


def test_leaving_out_everything_is_an_error() -> None:
    with pytest.raises(env.FabricError, match="every device"):
        env.select("^mlx5", [env.Port("mlx5_0", 1, "ACTIVE", "Ethernet", ())])


@pytest.fixture
def run(tmp_path: Path):
    """Runs the program on a tree, with an `ip` that shows the given addresses."""
    tools = tmp_path / "tools"
    tools.mkdir()
    rows = [{"ifname": "wg0", "addr_info": [{"family": "inet", "local": "10.42.0.1", "prefixlen": 24}]}]
    (tools / "ip").write_text(f"#!/bin/sh\necho '{json.dumps(rows)}'\n")
    (tools / "ip").chmod(0o755)

    def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = ROLES / "runtime_hook" / "files" / "lium_fabric_env.py"
        return subprocess.run(
            [sys.executable, str(program), "--root", str(tmp_path), *arguments],
            env={"PATH": f"{tools}:{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


def test_the_program(tmp_path: Path, run) -> None:
    empty = run()
    assert (empty.returncode, empty.stdout) == (1, "")
    assert "no port is ACTIVE" in empty.stderr

    write_sysfs(tmp_path, (PORT, PORT._replace(device="mlx5_1", gids=PORT.gids, state="DOWN")))
    done = run(NCCL_IB_HCA="mlx5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "NCCL_SOCKET_IFNAME==wg0",
        "GLOO_SOCKET_IFNAME=wg0",
        "NCCL_IB_HCA==mlx5_0:1",
        "NCCL_IB_GID_INDEX=3",
    ]
    assert "selects mlx5_1:1: not active (DOWN), NOT on the fabric" in done.stderr

    assert run("gate").returncode == 0
    told = run("explain", "=mlx5_0:1")
    assert (told.returncode, told.stdout) == (0, "mlx5_0:1: active, on the fabric\n")
    assert run("explain", "=mlx5_7").returncode == 1
    assert run("--segment", "nonsense").returncode == 2


def test_check_names_everything_at_once(tmp_path: Path, run) -> None:
    write_sysfs(tmp_path, (PORT,))
    done = run("check", NCCL_IB_HCA="=mlx5_7")
    assert done.returncode == 1
    for words in ("present, not mapped", "no GID of an address in this namespace", "'mlx5_7' names no RDMA device"):
        assert words in done.stderr

    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/uverbs0").touch()
    parameters = tmp_path / "sys/module/ib_core/parameters"
    parameters.mkdir(parents=True)
    (parameters / "netns_mode").write_text("Y\n")
    done = run("check")
    assert done.returncode == 0, done.stderr
    assert "proven by traffic only" in done.stderr
