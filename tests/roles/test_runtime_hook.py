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
#: Devices by name; whether the first can be opened, which the cgroup decides; the limit of locked memory in KiB.
_LOOK = "ls /dev/infiniband 2>/dev/null; (exec 3<>/dev/infiniband/uverbs0) 2>/dev/null && echo opened; ulimit -l"


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
    assert container(one, "--runtime", "lium-rdma") == ["rdma_cm", "uverbs0", "opened", "unlimited"]
    assert "opened" not in container(one), "without the runtime's name a container gets nothing"
