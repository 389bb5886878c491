"""A role that cannot read its host says so and changes nothing: a start without a word would look like a success."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.collection.conftest import Play
from tests.collection.recorded_host import RecordedHost
from tests.collection.test_host_info import _roce


def without_ip(host: RecordedHost) -> None:
    for line in [line for line in host.commands if line.startswith("ip ")]:
        del host.commands[line]


def malformed_gid(host: RecordedHost) -> None:
    host.files["/sys/class/infiniband/mlx5_0/ports/1/gids/3"] = "not a GID"


def without_os_release(host: RecordedHost) -> None:
    host.remove("/etc/os-release")


def healthy(host: RecordedHost) -> None:
    pass


#: host -> (role, module, fault, what is said of it).
HOSTS: dict[str, tuple[str, str, Callable[[RecordedHost], None], str]] = {
    "no_ip": ("rdma", "rdma_info", without_ip, "ip -j addr show: not installed"),
    "bad_gid": ("rdma", "rdma_info", malformed_gid, "not a GID"),
    "no_key": ("rdma", "rdma_info", healthy, "rdma_doca_repository_key is not: set it to the repository's key"),
    "no_checksum": ("rdma", "rdma_info", healthy, "rdma_doca_host_package_checksum is not: set it to sha256:"),
    "no_os": ("wireguard", "wireguard_info", without_os_release, "/etc/os-release: No such file or directory"),
}
#: host -> what its inventory sets.
SETTINGS = {
    "no_key": {"rdma_stack": "doca", "rdma_doca_repository_url": "http://mirror.example/doca"},
    "no_checksum": {"rdma_stack": "doca", "rdma_doca_host_package": "http://mirror.example/doca-host.deb"},
}


def test_a_role_says_what_it_could_not_read_or_lacks(
    play: Play, write_inventory: Callable[..., Path], tmp_path: Path
) -> None:
    """One run for all, since most of its time goes into the start of Ansible."""
    inventory, plays = {}, []
    for name, (role, module, breaks, _text) in HOSTS.items():
        host = _roce()
        breaks(host)
        root = str(host.write(tmp_path / name))
        inventory[name] = {"ansible_become": False, **SETTINGS.get(name, {})}
        # The role has no word for a recorded host, being for real ones; this machine must not be changed in its place.
        defaults = {f"lium.cluster.{module}": {"host_root": root}}
        role_task = {"name": "Role", "ansible.builtin.import_role": {"name": f"lium.cluster.{role}"}}
        rescue = {"name": "Go on, as onboard does", "ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}
        tasks = [{"name": "Roles", "block": [role_task], "rescue": [rescue]}]
        play_of_host = {"hosts": name, "gather_facts": False, "check_mode": True}
        plays.append({**play_of_host, "module_defaults": defaults, "tasks": tasks})
    book = tmp_path / "book.yml"
    book.write_text(json.dumps(plays), encoding="utf-8")
    done = play(str(book), write_inventory(inventory))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, (_role, _module, _breaks, text) in HOSTS.items():
        assert text in done.stdout, name
        recap = next(line for line in done.stdout.splitlines() if line.startswith(name) and "rescued=" in line)
        assert ("rescued=1" in recap, "changed=0" in recap, "failed=0" in recap) == (True, True, True), done.stdout
