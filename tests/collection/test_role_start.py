"""A role that cannot read its host says so and changes nothing: a start without a word would look like a success."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("role", "module", "breaks", "text"),
    [
        ("rdma", "rdma_info", without_ip, "ip -j addr show: not installed"),
        ("rdma", "rdma_info", malformed_gid, "not a GID"),
        ("wireguard", "wireguard_info", without_os_release, "/etc/os-release: No such file or directory"),
    ],
)
def test_a_role_says_what_it_could_not_read(
    role: str,
    module: str,
    breaks: Callable[[RecordedHost], None],
    text: str,
    play: Play,
    write_inventory: Callable[..., Path],
    tmp_path: Path,
) -> None:
    host = _roce()
    breaks(host)
    root = host.write(tmp_path / "host")
    book = tmp_path / "book.yml"
    tasks = [{"name": "Role", "ansible.builtin.import_role": {"name": f"lium.cluster.{role}"}}]
    rows = {
        "hosts": "lium_fabric",
        "gather_facts": False,
        # The role has no word for a recorded host: it is for real ones, and this one must not be changed.
        "module_defaults": {f"lium.cluster.{module}": {"host_root": str(root)}},
        "tasks": tasks,
    }
    book.write_text(json.dumps([rows]), encoding="utf-8")
    done = play(str(book), write_inventory({"h1": {"ansible_become": False}}))
    assert done.returncode == 2, done.stdout + done.stderr
    assert text in done.stdout
    assert "changed=0" in done.stdout
    assert "failed=1" in done.stdout
