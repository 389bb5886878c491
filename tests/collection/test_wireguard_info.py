"""`wireguard_info` on generated hosts: nothing found on good ones, each seeded fault found with its fix."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import look_at_wireguard

from tests.collection.recorded_host import PROC_NET_HEAD, RecordedHost, healthy_host

#: What a look at one host cannot prove.
RANGE = "wg.range_udp_unverified"
IDS = {RANGE, "wg.module", "wg.port_free", "wg.subnet_conflict", "wg.fw_forward", "wg.conntrack", "wg.mtu"}
PORT = "CA6C"  # 51820


def look_at(host: RecordedHost, folder: Path) -> dict[str, Record]:
    found = look_at_wireguard(open_probe(str(host.write(folder)), {}), {"ports": [51820]})
    return {record.id: record for record in found.records}


@pytest.mark.parametrize("seed", range(25))
def test_nothing_is_found_on_a_healthy_host(seed: int, tmp_path: Path) -> None:
    records = look_at(healthy_host(random.Random(seed)), tmp_path / "host")
    assert set(records) == IDS
    assert {row.id: (row.status, row.observed) for row in records.values() if row.status != "OK"} == {
        RANGE: ("WARN", "UDP of 9000-9009 is not proven by a look at one host")
    }


def not_loaded(host: RecordedHost) -> None:
    host.remove("/sys/module/wireguard")
    host.answer("modinfo -F filename wireguard", "/lib/modules/6.8.0/kernel/drivers/net/wireguard/wireguard.ko.zst\n")


def no_module(host: RecordedHost) -> None:
    host.remove("/sys/module/wireguard")
    host.answer("uname -r", "6.1.0-21-cloud-amd64\n")
    host.answer("modinfo -F filename wireguard", rc=1, stderr="modinfo: ERROR: Module wireguard not found.\n")


def listen(host: RecordedHost, inode: int) -> None:
    host.files["/proc/net/udp"] = f"{PROC_NET_HEAD}\n  9: 00000000:{PORT} 00000000:0000 07 0:0 0:0 0 0 0 {inode} 2 0 0"


def port_of_a_process(host: RecordedHost) -> None:
    listen(host, 4711)
    host.files["/proc/812/comm"] = "tailscaled"
    host.links["/proc/812/fd/9"] = "socket:[4711]"


def stale_wg0(host: RecordedHost) -> None:
    listen(host, 0)
    key = "+rui4vFKuFqKmjZoQNSWRxmD/nYAISea4B5bMe/JOFk="
    host.answer("wg show all dump", f"wg0\t(none)\t{key}\t51820\toff\n")


def stale_wg0_of_a_newer_kernel(host: RecordedHost) -> None:
    """Linux 6.1 shows an inode for the socket of WireGuard, which no process has."""
    stale_wg0(host)
    listen(host, 4711)


def port_of_a_container(host: RecordedHost) -> None:
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "site-vpn\n")


def k3s(host: RecordedHost) -> None:
    host.answer("ip -j route show", json.dumps([{"dst": "10.42.0.0/16", "dev": "cni0"}]))


def docker_network(host: RecordedHost) -> None:
    form = "{{.Name}} {{range .IPAM.Config}}{{.Subnet}} {{end}}"
    host.answer(f"docker network inspect --format {form} bridge host none", "bridge 10.42.0.0/20 \n")


def second_table(host: RecordedHost) -> None:
    chain = {"family": "inet", "table": "mine", "name": "fwd", "hook": "forward", "type": "filter", "policy": "drop"}
    host.answer("nft -j list ruleset", json.dumps({"nftables": [{"chain": chain}]}))


def docker_user(host: RecordedHost) -> None:
    host.answer("iptables -S", "-A DOCKER-USER -p udp -m udp --dport 51820 -j DROP\n")


def chain_behind_a_jump(host: RecordedHost) -> None:
    rules = "-N MYFW\n-A FORWARD -j MYFW\n-A FORWARD -j DOCKER-FORWARD\n-A MYFW -p udp -m udp --dport 51820 -j DROP\n"
    host.answer("iptables -S", rules)


def closed_for_a_netdev(host: RecordedHost) -> None:
    host.answer("iptables -S", "-A FORWARD -j DOCKER-USER\n-A DOCKER-USER ! -s 192.168.1.0/24 -i eth1 -j DROP\n")


def firewalld(host: RecordedHost) -> None:
    host.answer("firewall-cmd --get-active-zones", "public\n  interfaces: eno1\n")
    host.answer("firewall-cmd --get-default-zone", "public\n")
    host.files["/etc/firewalld/firewalld.conf"] = "StrictForwardPorts=yes"


def zone_drop(host: RecordedHost) -> None:
    host.answer("firewall-cmd --get-active-zones", "drop\n  interfaces: enp32s0np0\n")


def default_zone_drop(host: RecordedHost) -> None:
    host.answer("firewall-cmd --get-active-zones", "")
    host.answer("firewall-cmd --get-default-zone", "drop\n")


def docker_before_firewalld(host: RecordedHost) -> None:
    """As firewalld 1.3.3 leaves `iptables -S` when it is installed beside a Docker 20.10 that runs."""
    host.answer("iptables -S", "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n")


def short_timeout(host: RecordedHost) -> None:
    host.files["/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream"] = "20"


def stale_flow(host: RecordedHost) -> None:
    host.answer("docker ps --format {{.Names}}", "pod_7\n")
    there = "ipv4 2 udp 17 90 src=10.20.30.9 dst=10.20.30.1 sport=51820 dport=51820"
    host.files["/proc/net/nf_conntrack"] = f"{there} src=10.20.30.1 dst=10.20.30.9 sport=51820 dport=51820 mark=0"


def _pod_publishes(host: RecordedHost, *, reply_source: str) -> None:
    """A pod at 172.17.0.3 has the port; there is a flow to it, and one of its own to a peer."""
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    host.answer("docker ps --format {{.Names}}", "pod_7\n")
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "pod_7\n")
    host.answer(f"docker inspect --format {form} pod_7", "172.17.0.3 \n")
    here = f"src=10.20.30.9 dst=10.20.30.1 sport=40000 dport=51820 src={reply_source} dst=10.20.30.9"
    there = "src=172.17.0.3 dst=10.20.30.8 sport=51820 dport=51820 src=10.20.30.8 dst=10.20.30.1"
    host.files["/proc/net/nf_conntrack"] = "\n".join(
        f"ipv4 2 udp 17 90 {flow} sport=51820 dport=40000 mark=0" for flow in (here, there)
    )


def flow_of_a_pod_that_is_gone(host: RecordedHost) -> None:
    _pod_publishes(host, reply_source="172.17.0.2")


def test_the_flows_of_the_pod_that_runs_are_not_stale(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1), kind="roce")
    _pod_publishes(host, reply_source="172.17.0.3")
    record = look_at(host, tmp_path / "host")["wg.conntrack"]
    assert (record.status, record.observed) == ("OK", "no stale entry")


def vxlan(host: RecordedHost) -> None:
    host.files["/sys/class/net/eno1/mtu"] = "1450"


SEEDED = [
    (not_loaded, "wg.module", "MUST_FIX", "not loaded", "modprobe wireguard"),
    (no_module, "wg.module", "MUST_FIX", "not there", "cloud flavour"),
    (port_of_a_process, "wg.port_free", "MUST_FIX", "tailscaled (pid 812)", "never ended by this collection"),
    (stale_wg0, "wg.port_free", "MUST_FIX", "WireGuard interface wg0 of this host", "another one"),
    (stale_wg0_of_a_newer_kernel, "wg.port_free", "MUST_FIX", "WireGuard interface wg0 of this host", "another one"),
    (port_of_a_container, "wg.port_free", "MUST_FIX", "container site-vpn", "another one"),
    (k3s, "wg.subnet_conflict", "MUST_FIX", "route 10.42.0.0/16 on cni0", "outside 10.42.0.0/24"),
    (docker_network, "wg.subnet_conflict", "MUST_FIX", "Docker network bridge 10.42.0.0/20", "outside"),
    (second_table, "wg.fw_forward", "MUST_FIX", "inet mine fwd: policy drop", "udp dport 51820 accept"),
    (docker_user, "wg.fw_forward", "MUST_FIX", "DOCKER-USER", "--ctorigdstport 51820"),
    (chain_behind_a_jump, "wg.fw_forward", "MUST_FIX", "MYFW: -A MYFW -p udp", "iptables -I MYFW"),
    (closed_for_a_netdev, "wg.fw_forward", "WARN", "limits some traffic", "Run verify_wireguard"),
    (firewalld, "wg.fw_forward", "MUST_FIX", "StrictForwardPorts=yes", "StrictForwardPorts=no"),
    (zone_drop, "wg.fw_forward", "WARN", "enp32s0np0 is in zone drop", "Run verify_wireguard"),
    (default_zone_drop, "wg.fw_forward", "WARN", "enp32s0np0 is in zone drop", "Run verify_wireguard"),
    (docker_before_firewalld, "wg.fw_forward", "MUST_FIX", "chains of Docker are gone", "systemctl restart docker"),
    (short_timeout, "wg.conntrack", "WARN", "= 20", "120"),
    (stale_flow, "wg.conntrack", "WARN", "UDP 51820 from 10.20.30.9", "conntrack -D"),
    (flow_of_a_pod_that_is_gone, "wg.conntrack", "WARN", "from 10.20.30.9, answered by 172.17.0.2", "conntrack -D"),
    (vxlan, "wg.mtu", "WARN", "eno1 1450", "com.docker.network.driver.mtu"),
]


@pytest.mark.parametrize(
    ("breaks", "record_id", "status", "seen", "fix"), SEEDED, ids=[row[0].__name__ for row in SEEDED]
)
def test_a_seeded_fault_is_found_with_its_fix(
    breaks: Callable[[RecordedHost], None], record_id: str, status: str, seen: str, fix: str, tmp_path: Path
) -> None:
    host = healthy_host(random.Random(1), kind="roce")
    breaks(host)
    records = look_at(host, tmp_path / "host")
    record = records[record_id]
    assert (record.status, seen in record.observed, fix in record.remediation) == (status, True, True), record
    assert [row.id for row in records.values() if row.status not in ("OK", "SKIPPED") and row.id != RANGE] == [
        record_id
    ]


def look_at_range(
    host: RecordedHost, folder: Path, given: str = "", ports: tuple[int, ...] = (51820,)
) -> tuple[Record, int]:
    """The record of the renting range, and the port that a probe will be asked to prove."""
    options = {"ports": list(ports), "range": given}
    found = look_at_wireguard(open_probe(str(host.write(folder)), {}), options)
    return next(row for row in found.records if row.id == RANGE), found.facts["wireguard_range_port"]


ENV = "/opt/lium-io/neurons/executor/.env"


@pytest.mark.parametrize(
    ("env", "given", "status", "seen", "port"),
    [
        ("RENTING_PORT_RANGE=9000-9009", "", "WARN", "UDP of 9000-9009 is not proven", 9000),
        ("RENTING_PORT_RANGE=51820-51821", "", "WARN", "UDP of 51820-51821", 51821),
        ("RENTING_PORT_RANGE=51820", "", "WARN", "UDP of 51820", 51820),
        ("RENTING_PORT_MAPPINGS=[[9001, 19001], [9002, 19002]]", "", "WARN", "[[9001, 19001]", 9001),
        ("RENTING_PORT_RANGE=9000-9009", "9100,9101", "WARN", "UDP of 9100,9101", 9100),
        ("RENTING_PORT_RANGE=9000-9009", "[[9001,19001]]", "WARN", "UDP of [[9001,19001]]", 9001),
        ("RENTING_PORT_RANGE=9000-9009", "abc", "MUST_FIX", "lium_overlay_udp_range=abc", 0),
        ("RENTING_PORT_RANGE=9000-9009", "70000-70001", "MUST_FIX", "lium_overlay_udp_range=70000-70001", 0),
        ("RENTING_PORT_RANGE=9000-9009", "[[70000, 1]]", "MUST_FIX", "no ports from 1 to 65535", 0),
        ("RENTING_PORT_RANGE=9000-9009", "[]", "MUST_FIX", "no ports from 1 to 65535", 0),
        ("RENTING_PORT_RANGE=9000-9009", "[[9001", "MUST_FIX", "not JSON", 0),
        ("RENTING_PORT_RANGE=9009-9000", "", "UNKNOWN", "not a range of ports", 0),
        ("INTERNAL_PORT=8001", "", "SKIPPED", "names 0 ranges", 0),
        ("RENTING_PORT_RANGE=9000-9009\nRENTING_PORT_MAPPINGS=[[1, 2]]", "", "SKIPPED", "names 2 ranges", 0),
    ],
)
def test_the_renting_range_is_known(env: str, given: str, status: str, seen: str, port: int, tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    host.files[ENV] = env
    record, found = look_at_range(host, tmp_path / "host", given)
    assert (record.status, seen in record.observed, found) == (status, True, port), record


def test_the_first_free_port_of_the_range_is_proven(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    host.files["/proc/net/udp"] = f"{PROC_NET_HEAD}\n  9: 00000000:{9000:04X} 00000000:0000 07 0:0 0:0 0 0 0 0 2 0 0"
    host.answer("docker ps --filter publish=9001/udp --format {{.Names}}", "site-vpn\n")
    assert look_at_range(host, tmp_path / "host")[1] == 9002
    record, port = look_at_range(host, tmp_path / "held", "9000,9001")
    assert (record.status, record.observed, port) == (
        "WARN",
        "each port of 9000,9001 is held, so none can be proven",
        0,
    )


def test_a_host_without_an_executor_has_no_range(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    del host.commands["docker compose ls --all --format json"]
    record, port = look_at_range(host, tmp_path / "host")
    assert (record.status, port) == ("SKIPPED", 0)


@pytest.mark.parametrize(("ports", "seen"), [((), "no port"), ((0, 51820), ": 0"), ((70000,), "70000")])
def test_ports_that_are_none_are_refused(ports: tuple[int, ...], seen: str, tmp_path: Path) -> None:
    found = look_at_wireguard(open_probe(str(healthy_host(random.Random(1)).write(tmp_path)), {}), {"ports": ports})
    record = next(row for row in found.records if row.id == "wg.port_free")
    assert (record.status, seen in record.observed) == ("MUST_FIX", True)


OWN_STATE = {"holder": {"pid": 4711, "start": "8123"}, "until_utc": "2026-11-30T18:05:00Z"}


def own_container(host: RecordedHost) -> None:
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "lium_wg_probe\n")


def own_interface(host: RecordedHost) -> None:
    stale_wg0(host)
    key = "+rui4vFKuFqKmjZoQNSWRxmD/nYAISea4B5bMe/JOFk="
    host.answer("wg show all dump", f"lium-wgr0\t(none)\t{key}\t51820\toff\n")


@pytest.mark.parametrize("holds", [own_container, own_interface])
@pytest.mark.parametrize("start", ["8123", "9999", None], ids=["runs", "number-of-another", "killed"])
def test_a_probe_of_our_own_is_no_stranger(
    holds: Callable[[RecordedHost], None], start: str | None, tmp_path: Path
) -> None:
    host = healthy_host(random.Random(1))
    holds(host)
    host.files["/run/lium-wg-probe/state.json"] = json.dumps(OWN_STATE)
    if start:
        host.files["/proc/4711/stat"] = f"4711 (python3) S {'1 ' * 18}{start} 0"
    record = look_at(host, tmp_path / "host")["wg.port_free"]
    if start == "8123":
        assert record.status == "MUST_FIX"
        assert "waits for its next step until 2026-11-30T18:05:00Z" in record.observed
        assert "run `kill 4711` as root" in record.remediation
    else:
        assert record.status == "WARN"
        assert "Run verify_wireguard again" in record.remediation


def test_a_stranger_beside_our_probe_is_still_named(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "lium_wg_probe\nsite-vpn\n")
    record = look_at(host, tmp_path / "host")["wg.port_free"]
    assert (record.status, record.observed) == ("MUST_FIX", "UDP 51820: container site-vpn")


def test_a_running_cluster_pod_may_hold_the_port(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "pod_3f1c\n")
    record = look_at(host, tmp_path / "host")["wg.port_free"]
    assert (record.status, record.observed) == ("OK", "cluster pod running (pod_3f1c)")


def test_rules_that_nobody_can_read_are_unknown(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    for line in ("nft -j list ruleset", "iptables -S"):
        del host.commands[line]
    assert look_at(host, tmp_path / "host")["wg.fw_forward"].status == "UNKNOWN"


def test_a_kernel_without_packet_filter_is_asked_for_nothing(tmp_path: Path) -> None:
    """Also where the tools are there: asking them would load the modules."""
    host = healthy_host(random.Random(1))
    host.remove("/sys/module/nf_tables")
    host.remove("/sys/module/nft_compat")
    host.commands["nft -j list ruleset"] = host.commands["iptables -S"] = {"timeout": True}
    assert look_at(host, tmp_path / "host")["wg.fw_forward"].status == "OK"


def docker_told_to_leave_iptables(host: RecordedHost) -> None:
    host.files["/etc/docker/daemon.json"] = '{"iptables": false}'


def docker_of_nftables(host: RecordedHost) -> None:
    table = {"family": "ip", "name": "docker-bridges"}
    host.answer("nft -j list ruleset", json.dumps({"nftables": [{"table": table}]}))


def docker_stopped(host: RecordedHost) -> None:
    host.answer("docker ps --format {{.Names}}", rc=1, stderr="Cannot connect to the Docker daemon\n")


@pytest.mark.parametrize("why", [docker_told_to_leave_iptables, docker_of_nftables, docker_stopped])
def test_a_docker_may_have_no_chains_in_iptables(why: Callable[[RecordedHost], None], tmp_path: Path) -> None:
    host = healthy_host(random.Random(1), kind="roce")
    docker_before_firewalld(host)
    why(host)
    assert look_at(host, tmp_path)["wg.fw_forward"].status == "OK"
