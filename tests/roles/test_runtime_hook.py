"""The container runtime inside a virtual host: its own Docker, its runc, real uverbs nodes of a Soft-RoCE device."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docker.daemon import busybox_files
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGE = "lium-test"
PLAY = str(Path(__file__).with_name("runtime_hook.yml"))
#: Devices by name; whether the first can be opened, which the cgroup decides; the limit of locked memory in KiB;
#: whether the capability IPC_LOCK is there; the fabric's variables.
_LOOK = (
    "ls /dev/infiniband 2>/dev/null; (exec 3<>/dev/infiniband/uverbs0) 2>/dev/null && echo opened; ulimit -l;"
    " while read key value; do test $key != CapEff: || echo lock=$((0x$value >> 14 & 1)); done < /proc/self/status;"
    " echo hca=$NCCL_IB_HCA index=$NCCL_IB_GID_INDEX"
)


def make_image(host: Host) -> None:
    busybox = shutil.which("busybox")
    assert busybox is not None, "the rack is made with it"
    command = [*host.ssh_command(), f"docker import - {IMAGE}"]
    subprocess.run(command, input=busybox_files(busybox), check=True, capture_output=True, timeout=300)


def container(host: Host, *options: str) -> list[str]:
    command = [
        "docker",
        "run",
        "--rm",
        "--pull",
        "never",
        "--network",
        "host",
        *options,
        IMAGE,
        "sh",
        "-c",
        f"'{_LOOK}'",
    ]
    return host.run(" ".join(command), timeout=300).stdout.split()


def executed(host: Host, *options: str) -> str:
    """The same by `docker exec` in a container with a network of its own, and that container's environment."""
    run = f"docker run --detach --name nested --pull never --network none {' '.join(options)} {IMAGE}"
    run += " sh -c 'env > /tmp/env; > /tmp/written; sleep 600'"
    look = f"docker exec nested sh -c '{_LOOK}; until test -e /tmp/written; do sleep 1; done; cat /tmp/env'"
    return host.run(f"{run} && {look}; docker rm --force nested", timeout=300).stdout


def test_containers_of_a_virtual_host_get_its_devices(
    full_rack: Rack, inventory: Callable[[Rack], Path], playbook: Playbook
) -> None:
    hosts, one = inventory(full_rack), full_rack.hosts[0]
    one.run("modprobe rdma_ucm")
    make_image(one)
    one.run('mkdir -p /etc/docker && printf \'{"log-driver": "json-file"}\\n\' > /etc/docker/daemon.json')

    first = playbook(PLAY, hosts, "--limit", one.name, runtime_hook_install=True, runtime_hook_selftest_image=IMAGE)
    assert first.changed == {one.name: 2}, first.screen
    tried = first.record(one.name, "runtime.selftest")
    assert (tried["status"], tried["observed"].partition("; runc: no device; ")[0]) == (
        "OK",
        "lium-rdma: rdma_cm, uverbs0; locked memory unlimited",
    )
    second = playbook(PLAY, hosts, "--limit", one.name, runtime_hook_install=True)
    assert second.changed == {one.name: 0}, second.screen
    merged = json.loads(one.run("cat /etc/docker/daemon.json").stdout)
    assert list(merged) == ["log-driver", "runtimes"], "a named runtime, never the default of a host"
    one.run("printf 'NCCL_IB_HCA==rxe0:1\\nNCCL_IB_GID_INDEX=3\\n' > /etc/lium-cluster.env")
    whole = ["rdma_cm", "uverbs0", "opened", "unlimited", "lock=1", "hca==rxe0:1", "index=5"]
    assert container(one, "--runtime", "lium-rdma", "--env", "NCCL_IB_GID_INDEX=5") == whole, "a variable of -e wins"
    bare = container(one)
    assert "opened" not in bare, "without the runtime's name a container gets nothing"
    assert bare[-3:] == ["lock=0", "hca=", "index="]
    own_network = executed(one, "--runtime", "lium-rdma")
    assert "opened" in own_network
    assert "PATH=" in own_network
    assert "NCCL" not in own_network, "the fabric's variables are for the host's network alone"
