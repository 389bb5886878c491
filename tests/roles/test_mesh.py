"""The provider's own mesh on virtual hosts: keys, peers and strangers stay (cases B38, B43, B44, B48, B52)."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import PLAY_TIMEOUT

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

CONFIG = "/etc/wireguard/wg-lium.conf"


def public_key(host: Host) -> str:
    return host.run("wg show wg-lium public-key").stdout.strip()


def pings(host: Host, address: str) -> bool:
    """A packet of the mesh's full size, which a path that is too narrow would lose."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if host.run(f"ping -c 1 -W 3 -M do -s 1392 {address}", check=False).returncode == 0:
            return True
    return False


def test_mesh(full_rack: Rack, tmp_path: Path) -> None:
    one, two = full_rack.hosts
    path = full_rack.write_inventory(tmp_path / "inventory.yml")
    inventory = yaml.safe_load(path.read_text(encoding="utf-8"))
    members = inventory["all"]["children"]["lium_fabric"]["children"]["rack"]["hosts"]
    for number, name in enumerate(members, 1):
        members[name]["wireguard_mesh_address"] = f"10.44.0.{number}"
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def play(*arguments: str, fails: bool = False) -> tuple[str, dict[str, int]]:
        done = subprocess.run(
            [ansible_tool("ansible-playbook"), "-i", str(path), str(ROOT / "tests/roles/mesh.yml"), "-v", *arguments],
            cwd=tmp_path,
            env={**ansible_env(ROOT, tmp_path / "ansible"), "ANSIBLE_PIPELINING": "1"},
            capture_output=True,
            text=True,
            timeout=PLAY_TIMEOUT,
        )
        screen = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, screen
        return screen, {
            host: int(count) for host, count in re.findall(r"^(host\d+) +: ok=\d+ +changed=(\d+)", screen, re.M)
        }

    screen, changed = play("--check", "--diff")
    assert changed == {"host1": 2, "host2": 2}, screen
    assert one.run(f"ls {CONFIG}", check=False).returncode != 0, "check mode writes nothing"

    screen, changed = play("--diff")
    assert changed == {"host1": 2, "host2": 2}, screen
    keys = {host.name: public_key(host) for host in full_rack.hosts}
    secrets = [host.run(f"grep PrivateKey {CONFIG}").stdout.split(" = ")[1].strip() for host in full_rack.hosts]
    assert len(set(secrets)) == 2
    assert not any(secret in screen for secret in secrets), "no private key leaves a host"
    assert one.run(f"stat -c %a {CONFIG}").stdout.strip() == "600"
    assert pings(one, "10.44.0.2")
    assert pings(two, "10.44.0.1")

    screen, changed = play()
    assert changed == {"host1": 0, "host2": 0}, screen
    assert {host.name: public_key(host) for host in full_rack.hosts} == keys

    before = one.run(f"cat {CONFIG}").stdout
    screen, changed = play("--limit", "host1")
    assert changed == {"host1": 0}, screen
    assert one.run(f"cat {CONFIG}").stdout == before
    assert keys["host2"] in before

    one.run(f"sed -i 's/^MTU.*/SaveConfig = true/' {CONFIG}")
    screen, changed = play()
    assert changed["host1"] == 1, screen
    assert one.run(f"cat {CONFIG}").stdout == before, "also after the restart that the role has made"
    assert public_key(one) == keys["host1"]
    assert pings(one, "10.44.0.2")

    two.run("ip link add wg9 type wireguard && wg set wg9 listen-port 41194")
    foreign = two.run("wg show wg9 dump").stdout
    screen, _ = play("-e", "wireguard_mesh_interface=wg9", "--limit", "host2", fails=True)
    assert "wg9 is a tunnel of this host already (port 41194, 0 peers); it is left as it is" in screen
    assert two.run("wg show wg9 dump").stdout == foreign
    assert two.run("ls /etc/wireguard/wg9.conf", check=False).returncode != 0
