"""The overlay's port between virtual hosts with Docker: who blocks it is named, with the fix."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook, Run

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

PAIRS = "wg.reachable_pairs"
#: What a probe would leave on a host: container, image, interfaces, state, and a lock that is held.
LEFTOVERS = (
    "docker ps --all --quiet --filter name=lium_wg_probe; docker images --quiet lium-wg-probe;"
    " ls /sys/class/net | grep ^lium-; ls -d /run/lium-wg-probe 2>/dev/null;"
    " flock --nonblock /run/lock/lium-net-probe.lock true || echo locked"
)


def nothing_left(host: Host) -> bool:
    return host.run(LEFTOVERS, check=False).stdout.strip() == ""


def pairs(run: Run) -> dict[tuple[str, str], str]:
    return {(row["from"], row["to"]): row["state"] for row in run.report["wireguard_pairs"]}


def test_who_blocks_the_port_is_named(full_rack: Rack, inventory: Callable[[Rack], Path], playbook: Playbook) -> None:
    hosts = inventory(full_rack)
    one, two = full_rack.hosts
    switch = full_rack.switch

    good = playbook("verify_wireguard", hosts)
    assert pairs(good) == {("host1", "host2"): "reachable", ("host2", "host1"): "reachable"}, good.screen
    for host in full_rack.hosts:
        record = good.record(host.name, PAIRS)
        assert (record["status"], record["observed"]) == ("OK", "both directions proven with 1 of 1 hosts")
        assert nothing_left(host), host.run(LEFTOVERS, check=False).stdout
    assert {row["path"] for row in good.report["wireguard_pairs"]} == {"docker-publish"}
    assert all(row["rtt_ms"] > 0 and row["rx_bytes"] > 0 for row in good.report["wireguard_pairs"])

    switch.drop(source=1, target=2, protocol="udp", port=51820)
    switch.drop(source=1, target=2, protocol="tcp", port=51820)
    one_way = playbook("verify_wireguard", hosts)
    assert pairs(one_way) == {("host1", "host2"): "not verified", ("host2", "host1"): "reachable"}, one_way.screen
    for host in full_rack.hosts:
        record = one_way.record(host.name, PAIRS)
        assert record["status"] == "MUST_FIX"
        assert "host1 to host2 (10.77.0.2): UDP 51820 does not arrive" in record["observed"]
        assert "switch ACL" in record["remediation"]
    switch.clear()

    switch.drop(protocol="udp", port=51820)
    tcp_only = playbook("verify_wireguard", hosts)
    assert set(pairs(tcp_only).values()) == {"not verified"}, tcp_only.screen
    record = tcp_only.record("host2", PAIRS)
    assert record["observed"].count("TCP 51820 gets through") == 2
    assert "Forward UDP as well as TCP 51820 to host1" in record["remediation"]
    assert "Forward UDP as well as TCP 51820 to host2" in record["remediation"]
    switch.clear()

    two.run(
        "nft 'add table inet mine; add chain inet mine fwd { type filter hook forward priority 0; };"
        " add rule inet mine fwd udp dport 51820 drop'"
    )
    firewall = playbook("verify_wireguard", hosts)
    assert pairs(firewall)[("host1", "host2")] == "not verified", firewall.screen
    record = firewall.record("host2", PAIRS)
    assert "the packets arrive at host2, which drops them before its container" in record["observed"]
    assert "see wg.fw_forward there" in record["remediation"]
    rule = firewall.record("host2", "wg.fw_forward")
    assert (rule["status"], rule["observed"]) == ("MUST_FIX", "inet mine fwd: a rule drops UDP 51820")
    two.run("nft delete table inet mine")

    one.run("ip link add wg0 type wireguard && wg set wg0 listen-port 51820 && ip link set wg0 up")
    two.write("/root/holder.py", "import socket, time\ns = socket.socket(2, 2)\ns.bind(('', 51820))\ntime.sleep(900)\n")
    two.run("systemd-run --unit=holder python3 /root/holder.py")
    taken = playbook("verify_wireguard", hosts)
    assert "WireGuard interface wg0 of this host" in taken.record("host1", "wg.port_free")["observed"], taken.screen
    assert "UDP 51820: python3 (pid " in taken.record("host2", "wg.port_free")["observed"]
    for host in full_rack.hosts:
        assert "the probe failed here" in taken.record(host.name, PAIRS)["observed"]
        assert nothing_left(host)
    assert one.run("ip -o link show wg0").rc == 0, "a foreign tunnel stays"


def test_an_interrupted_probe_leaves_nothing(
    full_rack: Rack, inventory: Callable[[Rack], Path], tmp_path: Path
) -> None:
    hosts = inventory(full_rack)
    full_rack.switch.drop(protocol="udp", port=51820)  # so that the calls take their time
    variables = "wireguard_probe_lifetime=150"
    play = subprocess.Popen(
        [ansible_tool("ansible-playbook"), "-i", str(hosts), "lium.cluster.verify_wireguard", "-e", variables],
        cwd=tmp_path,
        env={**ansible_env(ROOT, tmp_path / "ansible"), "ANSIBLE_PIPELINING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert play.stdout is not None
    for line in play.stdout:
        if "Call the other hosts" in line:
            break
    assert not all(nothing_left(host) for host in full_rack.hosts), "the probe was open when it was interrupted"
    play.send_signal(signal.SIGINT)
    play.stdout.read()
    assert play.wait(timeout=300) != 0
    deadline = time.monotonic() + 400
    while not all(nothing_left(host) for host in full_rack.hosts):
        assert time.monotonic() < deadline, [host.run(LEFTOVERS, check=False).stdout for host in full_rack.hosts]
        time.sleep(5)
