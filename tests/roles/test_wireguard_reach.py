"""The overlay's port between virtual hosts with Docker: who blocks it is named, with the fix."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.plugin_utils._wireguard_pairs import collect_tests, pair_records

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook
from tests.roles.driver import install, look_at, probe_all

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


FIREWALL = """
add table inet mine
add chain inet mine gate {{ type filter hook {hook} priority 0; }}
add rule inet mine gate udp dport 51820 drop
"""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a probe between the hosts of a rack came to."""

    states: dict[tuple[str, str], str]
    records: dict[str, Record]
    paths: set[str]


def probe(rack: Rack) -> Seen:
    facts = probe_all(rack.hosts)
    tests = collect_tests(facts)
    for host in rack.hosts:
        assert nothing_left(host), host.run(LEFTOVERS, check=False).stdout
    return Seen(
        states={(test.evidence.sender, test.evidence.receiver): test.judgement.state for test in tests},
        records={host: records[0] for host, records in pair_records(facts, tests).items()},
        paths={test.evidence.path for test in tests},
    )


def test_who_blocks_the_port_is_named(full_rack: Rack) -> None:
    two, switch = full_rack.hosts[1], full_rack.switch
    for host in full_rack.hosts:
        install(host)
    there, back = ("host1", "host2"), ("host2", "host1")

    good = probe(full_rack)
    assert good.states == {there: "reachable", back: "reachable"}
    assert {record.observed for record in good.records.values()} == {"both directions proven with 1 of 1 hosts"}
    assert good.paths == {"docker-publish"}

    switch.drop("udp", 51820, source=1, target=2)
    switch.drop("tcp", 51820, source=1, target=2)
    one_way = probe(full_rack)
    assert one_way.states == {there: "not verified", back: "reachable"}
    for record in one_way.records.values():
        assert record.status == "MUST_FIX"
        assert record.observed == "host1 to host2 (10.77.0.2): UDP 51820 does not arrive"
        assert "switch ACL" in record.remediation
    switch.clear()

    switch.drop("udp", 51820)
    tcp_only = probe(full_rack)
    assert set(tcp_only.states.values()) == {"not verified"}
    assert tcp_only.records["host2"].observed.count("TCP 51820 gets through (refused)") == 2
    for name in ("host1", "host2"):
        assert f"Forward UDP as well as TCP 51820 to {name}" in tcp_only.records["host1"].remediation
    switch.clear()

    two.run("nft -f -", text=FIREWALL.format(hook="forward"))
    firewall = probe(full_rack)
    assert firewall.states[there] == "not verified"
    assert "the packets arrive at host2, which drops them before its container" in firewall.records["host1"].observed
    assert "see wg.fw_forward there" in firewall.records["host1"].remediation


def test_the_playbook_names_rule_and_holder(
    full_rack: Rack, inventory: Callable[[Rack], Path], playbook: Playbook
) -> None:
    """One run for a firewall's rule on one host and a stale tunnel on the other, and both left as they were."""
    one, two = full_rack.hosts
    one.run("ip link add wg0 type wireguard && wg set wg0 listen-port 51820 && ip link set wg0 up")
    two.run("nft -f -", text=FIREWALL.format(hook="forward"))
    run = playbook("verify_wireguard", inventory(full_rack))
    assert run.rc == 2, run.screen

    stale = run.record("host1", "wg.port_free")
    assert (stale["status"], stale["observed"]) == ("MUST_FIX", "UDP 51820: WireGuard interface wg0 of this host")
    assert "the probe failed here" in run.record("host1", PAIRS)["observed"]
    rule = run.record("host2", "wg.fw_forward")
    assert (rule["status"], rule["observed"]) == ("MUST_FIX", "inet mine gate: a rule drops UDP 51820")
    assert "out of inet mine gate" in rule["remediation"]

    assert one.run("ip -o link show wg0").stdout
    assert two.run("nft list table inet mine").stdout
    for host in full_rack.hosts:
        assert nothing_left(host), host.run(LEFTOVERS, check=False).stdout


def test_a_port_that_a_process_holds_is_named(full_rack: Rack) -> None:
    host = full_rack.hosts[0]
    install(host)
    host.write(
        "/root/holder.py", "import socket, time\ns = socket.socket(2, 2)\ns.bind(('', 51820))\ntime.sleep(900)\n"
    )
    host.run("systemd-run --unit=holder python3 /root/holder.py")
    found = look_at(host, "wg.port_free")
    assert found.status == "MUST_FIX"
    assert re.fullmatch(r"UDP 51820: python3 \(pid \d+\)", found.observed)
    host.run("systemctl is-active holder")


def test_an_interrupted_probe_leaves_nothing(
    full_rack: Rack, inventory: Callable[[Rack], Path], tmp_path: Path
) -> None:
    hosts = inventory(full_rack)
    full_rack.switch.drop(protocol="udp", port=51820)  # so that the calls take their time
    variables = "wireguard_probe_lifetime=150"
    with subprocess.Popen(
        [ansible_tool("ansible-playbook"), "-i", str(hosts), "lium.cluster.verify_wireguard", "-e", variables],
        cwd=tmp_path,
        env={**ansible_env(ROOT, tmp_path / "ansible"), "ANSIBLE_PIPELINING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as play:
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
