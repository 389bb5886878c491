"""The RDMA driver is reloaded on a host that is idle at that very moment, not minutes before."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._ssh_route import reload_refusal

from tests.collection.conftest import Play
from tests.collection.recorded_host import RecordedHost, healthy_host

#: The role's first look, what happens meanwhile, and the reload that its package task asks for.
_PLAY = """
- hosts: lium_fabric
  gather_facts: false
  module_defaults:
    lium.cluster.rdma_info:
      host_root: "{{ place }}"
  vars:
    ansible_become: false
    rdma_stack: doca
    rdma_driver_reload: true
  tasks:
    - ansible.builtin.import_role:
        name: lium.cluster.rdma
        tasks_from: verify
    - ansible.builtin.copy:
        src: "{{ place }}/later.json"
        dest: "{{ place }}/commands.json"
        mode: "0644"
      check_mode: false
      notify: Reload the RDMA driver
"""

_IDLE = "executor-runner\n"


def idle(host: RecordedHost) -> None:
    host.answer("docker ps --format {{.Names}}", _IDLE)


def rental(host: RecordedHost) -> None:
    host.answer("docker ps --format {{.Names}}", _IDLE + "pod_7\n")


def docker_down(host: RecordedHost) -> None:
    host.answer("docker ps --format {{.Names}}", rc=1, stderr="Cannot connect to the Docker daemon")


@pytest.mark.parametrize(
    ("meanwhile", "restarts", "said"),
    [
        (idle, True, ""),
        (rental, False, "a rental runs (pod_7)"),
        (docker_down, False, "cannot tell whether a rental runs"),
    ],
    ids=["idle", "rental", "docker-down"],
)
def test_the_host_is_looked_at_right_before_the_reload(
    meanwhile: Callable[[RecordedHost], None],
    restarts: bool,
    said: str,
    play: Play,
    write_inventory: Callable[[Mapping[str, Mapping[str, object]]], Path],
    tmp_path: Path,
) -> None:
    host = healthy_host(random.Random(1), kind="roce", driver="mlx5_core")
    # No card whose driver could carry the connection: a recorded host has no processes to see that from.
    host.remove("/sys/bus/pci/drivers")
    idle(host)
    place = host.write(tmp_path / "host")
    meanwhile(host)
    (place / "later.json").write_text(json.dumps({**host.commands, "changed": {"rc": 0}}))
    playbook = tmp_path / "play.yml"
    playbook.write_text(_PLAY)
    inventory = write_inventory({"h1": {"place": str(place)}})
    # Check mode: the machine that runs the tests has no such service, and must not restart it if it has.
    done = play(str(playbook), inventory, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    restart = done.stdout.partition("Restart the driver stack")[2].partition("RUNNING HANDLER")[0]
    assert ("changed: [h1]" in restart, "skipping: [h1]" in restart) == (restarts, not restarts), done.stdout
    assert ("at the next reboot" in done.stdout) is not restarts
    assert said in done.stdout


def _entered_over(address: str) -> Callable[[RecordedHost], None]:
    """The module runs below sudo, which has taken the variable away; its parent, the session, still has it."""

    def enter(host: RecordedHost) -> None:
        host.files["/proc/700/environ"] = "PATH=/bin\0"
        host.files["/proc/700/status"] = "Name:\tpython3\nPPid:\t600"
        host.files["/proc/600/environ"] = f"HOME=/root\0SSH_CONNECTION=198.51.100.9 50000 {address} 22\0"

    return enter


def default_route_over_a_vlan(host: RecordedHost) -> None:
    _entered_over("192.0.2.1")(host)
    host.links["/sys/class/net/enp32s0np0.7/lower_enp32s0np0"] = "../enp32s0np0"
    host.answer("ip -j route show", json.dumps([{"dst": "default", "dev": "enp32s0np0.7"}]))


def unreadable_session(host: RecordedHost) -> None:
    _entered_over("192.0.2.1")(host)
    del host.files["/proc/600/environ"]


@pytest.mark.parametrize(
    ("session", "refusal"),
    [
        (_entered_over("10.20.30.1"), "mlx5_core carries the Ansible connection"),
        (_entered_over("192.0.2.1"), ""),
        (default_route_over_a_vlan, "mlx5_core carries the Ansible connection or the default route"),
        (unreadable_session, "cannot tell which card carries the Ansible connection: /proc/600/environ"),
    ],
    ids=["over-the-card", "over-another", "default-route", "unreadable"],
)
def test_no_driver_is_reloaded_that_carries_the_connection(
    session: Callable[[RecordedHost], None], refusal: str, tmp_path: Path
) -> None:
    host = healthy_host(random.Random(1), kind="roce", driver="mlx5_core")
    host.links["/sys/class/net/enp32s0np0/device"] = "../../../devices/pci0000:00/0000:10:01.0/0000:20:00.0"
    idle(host)
    session(host)
    said = reload_refusal(Host(open_probe(str(host.write(tmp_path / "host")), {})), "mlx5_core", 700)
    assert said.startswith(refusal), said
    assert bool(said) is bool(refusal), said
