"""Containers of a real dockerd and runc with the wrapper runtime before runc."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.conftest import Site

pytestmark = pytest.mark.docker

IMAGE = "lium-test"
CAP_IPC_LOCK = 1 << 14


def test_devices_with_the_hosts_numbers_and_no_others(site: Site) -> None:
    out = site.daemon.run("--network", "host", IMAGE, "ls", "-ln", "/dev/infiniband")
    rows = {line.split()[-1]: line.split() for line in out.splitlines() if line.startswith("c")}
    assert set(rows) == {"uverbs0", "uverbs1", "rdma_cm"}
    assert [rows["uverbs1"][4].rstrip(","), rows["uverbs1"][5]] == ["505", "7"]
    assert rows["uverbs0"][0] == "crw-rw-rw-"


def forbidden_device() -> tuple[int, int]:
    """A device of this kernel that anyone may open, and that Docker allows in no container."""
    numbers = {"loop-control": (10, 237), "fuse": (10, 229), "btrfs-control": (10, 234), "kvm": (10, 232)}
    known = {line.split()[1] for line in Path("/proc/misc").read_text().splitlines()}
    return next(pair for name, pair in numbers.items() if name in known)


def test_a_device_may_be_opened(site: Site) -> None:
    major, minor = forbidden_device()
    os.mknod(site.devices / "uverbs9", 0o020666, os.makedev(major, minor))
    try:
        mapped = "exec 3<>/dev/infiniband/uverbs9 && echo opened"
        assert site.daemon.run("--network", "none", IMAGE, "sh", "-c", mapped) == "opened\n"
    finally:
        os.unlink(site.devices / "uverbs9")
    made = f"mknod /tmp/other c {major} {minor} && exec 3<>/tmp/other"
    refused = site.daemon.docker("run", "--rm", "--network", "none", IMAGE, "sh", "-c", made, check=False)
    assert "Operation not permitted" in refused.stderr


def limit_here() -> str:
    """The limit that containers can have on this machine: none, but for a root without the right to lift it."""
    lift = "import resource as r; n = r.RLIM_INFINITY; r.setrlimit(r.RLIMIT_MEMLOCK, (n, n))"
    if subprocess.run([sys.executable, "-c", lift], capture_output=True).returncode == 0:
        return "unlimited"
    return str(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])


def memlock(limits: str) -> str:
    (row,) = [line.split() for line in limits.splitlines() if line.startswith("Max locked memory")]
    return row[4]


def test_memory_lock_and_capability(site: Site) -> None:
    limits = site.daemon.run("--network", "none", IMAGE, "cat", "/proc/self/limits", "/proc/self/status")
    assert memlock(limits) == limit_here()
    (effective,) = [line.split()[1] for line in limits.splitlines() if line.startswith("CapEff")]
    assert int(effective, 16) & CAP_IPC_LOCK


def test_variables_with_the_hosts_network_only_and_the_users_win(site: Site) -> None:
    shared = site.daemon.run("--network", "host", IMAGE, "env").splitlines()
    assert {"NCCL_IB_HCA==mlx5_0:1", "NCCL_IB_GID_INDEX=3"} <= set(shared)
    own = site.daemon.run("--network", "host", "-e", "NCCL_IB_GID_INDEX=5", IMAGE, "env").splitlines()
    assert "NCCL_IB_GID_INDEX=5" in own
    assert "NCCL_IB_GID_INDEX=3" not in own
    apart = site.daemon.run("--network", "none", IMAGE, "env")
    assert "NCCL" not in apart


def test_another_runtime_goes_past_the_wrapper(site: Site) -> None:
    out = site.daemon.run("--runtime", "runc", "--network", "host", IMAGE, "sh", "-c", "ls /dev; env")
    assert "infiniband" not in out
    assert "NCCL" not in out


@pytest.fixture
def sleeper(site: Site) -> Iterator[str]:
    name = site.daemon.docker("run", "-d", "--network", "host", IMAGE, "sleep", "600").stdout.strip()
    yield name
    site.daemon.docker("rm", "-f", name)


def test_exec_stop_and_start_again(site: Site, sleeper: str) -> None:
    listed = site.daemon.docker("exec", sleeper, "ls", "/dev/infiniband").stdout.split()
    assert listed == ["rdma_cm", "uverbs0", "uverbs1"]
    site.daemon.docker("restart", "-t", "0", sleeper)
    assert site.daemon.docker("exec", sleeper, "ls", "/dev/infiniband").stdout.split() == listed
    state = json.loads(site.daemon.docker("inspect", sleeper).stdout)[0]
    assert state["State"]["Running"]
    assert state["HostConfig"]["Runtime"] == "lium-rdma"


def test_exec_keeps_the_limit_off(site: Site, sleeper: str) -> None:
    limits = site.daemon.docker("exec", sleeper, "cat", "/proc/1/limits").stdout
    assert memlock(limits) == limit_here()


COMPOSE_FILE = """
version: "2.4"
services:
  default: {image: lium-test, network_mode: host, command: "sh -c 'ls /dev/infiniband; env'"}
  named: {image: lium-test, network_mode: host, runtime: lium-rdma, command: ls /dev/infiniband}
  bypass: {image: lium-test, network_mode: host, runtime: runc, command: ls /dev}
"""


def test_compose_services_are_containers_like_any_other(site: Site) -> None:
    file = site.folder / "compose.yml"
    file.write_text(COMPOSE_FILE)
    default = site.daemon.compose(file, "default").split()
    assert default[:3] == ["rdma_cm", "uverbs0", "uverbs1"]
    assert "NCCL_IB_GID_INDEX=3" in default
    assert site.daemon.compose(file, "named").split() == ["rdma_cm", "uverbs0", "uverbs1"]
    assert "infiniband" not in site.daemon.compose(file, "bypass")


def test_without_rdma_devices_containers_start_all_the_same(site: Site) -> None:
    shutil.rmtree(site.devices)
    try:
        out = site.daemon.run("--network", "host", IMAGE, "sh", "-c", "ls /dev; cat /proc/self/limits")
    finally:
        site.make_nodes()
    assert "infiniband" not in out
    assert memlock(out) == limit_here()


def test_a_user_who_lists_a_device_himself(site: Site) -> None:
    node = f"{site.devices}/uverbs0:/dev/infiniband/uverbs0:r"
    out = site.daemon.run("--device", node, "--network", "none", IMAGE, "ls", "/dev/infiniband")
    assert out.split() == ["rdma_cm", "uverbs0", "uverbs1"]


def test_other_rights(site: Site) -> None:
    for options in (["--user", "1000"], ["--cap-drop", "ALL"], ["--read-only"]):
        out = site.daemon.run(*options, "--network", "none", IMAGE, "ls", "/dev/infiniband")
        assert {"rdma_cm", "uverbs0", "uverbs1"} <= set(out.split()), options


def test_a_missing_runtime_behind_is_named(site: Site) -> None:
    site.write_settings("/nowhere/crun")
    try:
        done = site.daemon.docker("run", "--rm", "--network", "none", IMAGE, "ls", check=False)
    finally:
        site.write_settings("runc")
    assert done.returncode != 0
    assert "cannot run /nowhere/crun, the runtime behind lium-rdma" in done.stderr
    assert site.daemon.alive
