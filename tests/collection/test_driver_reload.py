"""The RDMA driver is reloaded on a host that is idle at that very moment, not minutes before."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

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
