"""The container runtime inside a virtual host: its own Docker, its runc, real uverbs nodes of a Soft-RoCE device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGE = "lium-test"
PLAY = str(Path(__file__).with_name("runtime_hook.yml"))
_MAKE_IMAGE = f"""
set -eu
mkdir -p /tmp/image/bin && cp "$(command -v busybox)" /tmp/image/bin/
for name in sh ls cat; do ln -s busybox /tmp/image/bin/$name; done
tar -c -C /tmp/image . | docker import - {IMAGE} >/dev/null
"""
#: Devices by name; whether the first can be opened, which the cgroup decides; the limit of locked memory in KiB.
_LOOK = "ls /dev/infiniband 2>/dev/null; (exec 3<>/dev/infiniband/uverbs0) 2>/dev/null && echo opened; ulimit -l"


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
    one.run(_MAKE_IMAGE)
    one.run('mkdir -p /etc/docker && printf \'{"log-driver": "json-file"}\\n\' > /etc/docker/daemon.json')
    variables = {"runtime_hook_install": True, "runtime_hook_selftest_image": IMAGE}

    def play() -> int:
        run = playbook(PLAY, hosts, "--limit", one.name, **variables)
        tried = run.record(one.name, "runtime.selftest")
        assert tried["status"] == "OK", tried
        assert tried["observed"] == (
            "lium-rdma: rdma_cm, uverbs0; locked memory unlimited; runc: no device; locked memory unlimited"
        )
        return run.changed[one.name]

    assert play() == 2
    assert play() == 0
    merged = json.loads(one.run("cat /etc/docker/daemon.json").stdout)
    assert list(merged) == ["log-driver", "runtimes"], "a named runtime, never the default of a host"
    assert container(one, "--runtime", "lium-rdma") == ["rdma_cm", "uverbs0", "opened", "unlimited"]
    assert "opened" not in container(one), "without the runtime's name a container gets nothing"
