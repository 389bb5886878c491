"""What is read out of a packet filter's rules: listings of the real `nft` and `iptables`, and recorded ones."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Callable

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    Packet,
    firewalld_strict,
    firewalld_zones,
    ufw_active,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.iptables import iptables_blocks
from ansible_collections.lium.cluster.plugins.module_utils._parsers.nft import nft_blocks

from tests.collection.recorded_host import RECORDED
from tools import system

RAIL, FABRIC = "enp32s0np0", ipaddress.IPv4Network("10.20.30.0/24")
#: To a pod: nobody knows by which netdev a peer comes, and from where.
OVERLAY = Packet("udp", 51820, 51820, own=frozenset({"10.20.30.1", "172.17.0.1"}))
#: To the host itself, from its fabric.
PROBE = Packet("tcp", 18515, None, frozenset({RAIL}), (FABRIC,), frozenset({"10.20.30.1"}))
NOTHING, LIMITED, STOPPED = "nothing in the way", "limits some traffic", "stopped"

Listing = Callable[..., str]


@pytest.fixture
def in_namespace() -> Listing:
    """The output of the last of some commands in a network namespace of their own."""
    missing = system.ensure(("nftables", "iptables", "util-linux"))
    if missing or os.geteuid() != 0:
        pytest.fail(missing or "a packet filter can be set by root alone: run the tests as root")

    def run(commands: str, rules: str = "") -> str:
        argv = ["unshare", "--net", "sh", "-ec", commands]
        return subprocess.run(argv, input=rules, capture_output=True, text=True, check=True, timeout=30).stdout

    return run


def verdict(blocks: list[Block]) -> str:
    if not blocks:
        return NOTHING
    return LIMITED if all(block.partial for block in blocks) else STOPPED


def forward(rules: str = "", policy: str = "accept", hook: str = "forward", more: str = "") -> str:
    head = f"type filter hook {hook} priority 0; policy {policy};"
    return f"table inet mine {{ {more}\n chain base {{ {head}\n{rules}\n}}\n}}\n"


NFT = [
    ("", forward(), NOTHING),
    ("", forward(policy="drop"), STOPPED),
    ("", forward("udp dport 51820 accept", "drop"), NOTHING),
    ("", forward("udp dport 51000-52000 accept", "drop"), NOTHING),
    ("", forward("udp dport { 53, 51820 } accept", "drop"), NOTHING),
    ("", forward("udp dport 53 accept", "drop"), STOPPED),
    ("", forward("udp dport 51820 drop"), STOPPED),
    ("", forward("udp dport 51820 drop", hook="prerouting"), STOPPED),
    ("", forward("udp dport 51820 drop", hook="postrouting"), STOPPED),
    ("", forward(policy="drop", hook="input"), NOTHING),
    ("", "table bridge mine { chain base { type filter hook forward priority 0; policy drop; }\n}", NOTHING),
    ("", "table ip6 mine { chain base { type filter hook forward priority 0; policy drop; }\n}", NOTHING),
    ("every table must accept", forward("accept") + forward(policy="drop").replace("mine", "other"), STOPPED),
    ("Docker's own", forward(policy="drop").replace("inet mine", "ip filter").replace("base", "FORWARD"), NOTHING),
    # Jumps.
    ("", forward("jump sub", more="chain sub { udp dport 51820 drop; }"), STOPPED),
    ("", forward("jump sub", more="chain sub { jump deep; }\nchain deep { drop; }"), STOPPED),
    ("", forward("jump sub", more="chain sub { tcp dport 51820 drop; }"), NOTHING),
    ("", forward("jump sub\ndrop", more="chain sub { udp dport 51820 accept; }"), NOTHING),
    ("", forward("jump sub\naccept", more="chain sub { return; drop; }"), NOTHING),
    ("", forward("goto sub\ndrop", "accept", more="chain sub { udp dport 53 drop; }"), NOTHING),
    ("", forward("udp dport vmap { 53 : accept, 51820 : drop }"), STOPPED),
    ("", forward("udp dport vmap @m", more="map m { type inet_service : verdict; elements = { 51820 : drop }\n}"),
     STOPPED),
    ("", forward("ct state vmap { invalid : drop, established : accept, related : accept }"), NOTHING),
    ("", forward("iifname vmap { lo : accept, eth1 : jump sub }", more="chain sub { drop; }"), LIMITED),
    # Limited to some traffic.
    ("", forward('iifname "eth1" drop'), LIMITED),
    ("", forward("ip saddr != 192.168.0.0/16 drop"), LIMITED),
    ("", forward("ip saddr @bad drop", more="set bad { type ipv4_addr; elements = { 10.0.0.9 }\n}"), LIMITED),
    ("", forward("limit rate over 10/second drop"), LIMITED),
    ("", forward("meta mark 7 drop"), LIMITED),
    ("", forward('iifname "eth1" accept', "drop"), LIMITED),
    ("", forward("udp dport @ports drop", more="set ports { type inet_service; elements = { 51820 }\n}"), STOPPED),
    ("", forward("udp dport @ports drop", more="set ports { type inet_service; elements = { 53 }\n}"), NOTHING),
    ("one netdev",
     "table netdev mine { chain base { type filter hook ingress device lo priority 0;\n drop; }\n}", LIMITED),
    # Not about a peer's packet, though they drop.
    ("", forward("tcp dport != 22 drop"), NOTHING),
    ("", forward("tcp flags & (fin | syn) == fin | syn drop"), NOTHING),
    ("", forward("icmp type echo-request drop"), NOTHING),
    ("", forward("meta nfproto ipv6 drop"), NOTHING),
    ("", forward("meta protocol ip drop"), STOPPED),
    ("", forward("meta l4proto udp drop"), STOPPED),
    ("", forward("udp dport < 1024 drop"), NOTHING),
    ("", forward("udp dport > 1024 drop"), STOPPED),
    ("", forward("ct state invalid drop"), NOTHING),
    ("", forward('iifname "docker0" drop'), NOTHING),
    ("", forward('oifname "virbr0" reject'), NOTHING),
    ("", forward("meta l4proto udp ct original proto-dst 51820 accept\ndrop"), NOTHING),
    ("", forward("fib daddr type local drop"), NOTHING),
    ("direct access to a container, as Docker 28 forbids it",
     'table ip raw { chain PREROUTING { type filter hook prerouting priority -300; '
     'ip daddr 172.17.0.2 iifname != "docker0" drop; }\n}', NOTHING),
    ("Docker's own nftables rules",
     'table ip docker-bridges { chain sub { drop; }\n'
     'map in { type ifname : verdict; elements = { "docker0" : jump sub }\n}\n'
     'chain base { type filter hook forward priority 0; oifname vmap @in; }\n}', NOTHING),
    ("firewalld",
     "table inet firewalld { chain zones { reject with icmpx admin-prohibited; }\n"
     "chain filter_FORWARD { type filter hook forward priority 10;\n"
     'ct state established,related accept; ct status dnat accept; iifname "lo" accept; ct state invalid drop;\n'
     "jump zones; reject with icmpx admin-prohibited; }\n"
     "chain raw_PREROUTING { type filter hook prerouting priority -290;\n"
     "meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }\n}", NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rules", "expected"), NFT)
def test_nft_on_the_way_to_a_pod(name: str, rules: str, expected: str, in_namespace: Listing) -> None:
    blocks = nft_blocks(in_namespace("nft -f - && nft -j list ruleset", rules), OVERLAY)
    assert verdict(blocks) == expected, (name, blocks)
    assert all(block.fix for block in blocks)


def test_the_rule_in_the_way_is_named_where_it_stands(in_namespace: Listing) -> None:
    listing = in_namespace("nft -f - && nft -j list ruleset", forward("udp dport 51820 drop"))
    (block,) = nft_blocks(listing, OVERLAY)
    assert block.what == "inet mine base: a rule drops UDP 51820"
    listing = in_namespace("nft -f - && nft -j list ruleset", forward("jump sub", more="chain sub { reject; }"))
    (block,) = nft_blocks(listing, OVERLAY)
    assert block.what == "inet mine base: a rule rejects UDP 51820 (in inet mine sub)"
    assert block.fix.startswith("Take that rule (reject, handle ")


NFT_INPUT = [
    (forward(policy="drop", hook="input"), STOPPED),
    (forward("tcp dport 18515 accept", "drop", "input"), NOTHING),
    (forward("tcp dport 22 accept\nct state established,related accept", "drop", "input"), STOPPED),
    (forward(f'iifname "{RAIL}" accept', "drop", "input"), NOTHING),
    (forward('iifname "eno1" accept', "drop", "input"), STOPPED),
    (forward('iifname "eno1" drop', "accept", "input"), NOTHING),
    (forward("ip saddr 10.20.0.0/16 accept", "drop", "input"), NOTHING),
    (forward("ip saddr 10.20.30.7 accept", "drop", "input"), LIMITED),
    (forward("ip saddr 192.168.0.0/16 accept", "drop", "input"), STOPPED),
    (forward("fib daddr type local tcp dport 18000-19000 accept", "drop", "input"), NOTHING),
    (forward("tcp flags & (fin | syn | rst | ack) != syn ct state new drop", "accept", "input"), NOTHING),
    (forward("udp dport 18515 drop", "accept", "input"), NOTHING),
    (forward(policy="drop"), NOTHING),
    ("table ip filter { chain INPUT { type filter hook input priority 0; policy drop; }\n}", STOPPED),
    (
        "table inet firewalld { chain public { tcp dport 22 accept; reject with icmpx admin-prohibited; }\n"
        "chain trusted { accept; }\n"
        f'chain zones {{ iifname "{RAIL}" goto trusted; goto public; }}\n'
        "chain filter_INPUT { type filter hook input priority 10; ct state established,related accept; jump zones;\n"
        "reject with icmpx admin-prohibited; }\n}",
        NOTHING,
    ),
    (
        "table inet firewalld { chain public { tcp dport 22 accept; reject with icmpx admin-prohibited; }\n"
        "chain zones { goto public; }\n"
        "chain filter_INPUT { type filter hook input priority 10; ct state established accept; jump zones; }\n}",
        STOPPED,
    ),
]


@pytest.mark.parametrize(("rules", "expected"), NFT_INPUT)
def test_nft_on_the_way_to_the_host_itself(rules: str, expected: str, in_namespace: Listing) -> None:
    blocks = nft_blocks(in_namespace("nft -f - && nft -j list ruleset", rules), PROBE)
    assert verdict(blocks) == expected, blocks
    assert all("18515" in block.fix or "verify_roce" in block.fix for block in blocks)


DOCKER_28 = (
    "-P FORWARD DROP",
    "-N DOCKER",
    "-N DOCKER-BRIDGE",
    "-N DOCKER-FORWARD",
    "-N DOCKER-ISOLATION-STAGE-1",
    "-N DOCKER-ISOLATION-STAGE-2",
    "-N DOCKER-USER",
    "-A FORWARD -j DOCKER-USER",
    "-A FORWARD -j DOCKER-FORWARD",
    "-A DOCKER ! -i docker0 -o docker0 -j DROP",
    "-A DOCKER-BRIDGE -o docker0 -j DOCKER",
    "-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1",
    "-A DOCKER-FORWARD -j DOCKER-BRIDGE",
    "-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2",
    "-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP",
)
DOCKER_20 = (
    "-P FORWARD DROP",
    "-N DOCKER",
    "-N DOCKER-ISOLATION-STAGE-1",
    "-N DOCKER-USER",
    "-A FORWARD -j DOCKER-USER",
    "-A FORWARD -j DOCKER-ISOLATION-STAGE-1",
    "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A FORWARD -o docker0 -j DOCKER",
    "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
)
RETURN = "-A DOCKER-USER -j RETURN"
IPTABLES = [
    ((), NOTHING),
    ((RETURN,), NOTHING),
    (("-A FORWARD -j REJECT --reject-with icmp-host-prohibited",), NOTHING),
    (("-N ufw-reject-forward", "-A FORWARD -j ufw-reject-forward", "-A ufw-reject-forward -j REJECT"), NOTHING),
    (("-A DOCKER-USER -p udp -m udp --dport 51820 -j DROP",), STOPPED),
    (("-A DOCKER-USER -p udp -m udp --dport 0:32767 -j DROP", RETURN), NOTHING),
    (("-A DOCKER-USER -p udp -m udp --dport 1:65535 -j REJECT --reject-with icmp-port-unreachable",), STOPPED),
    (("-A DOCKER-USER -p udp -m multiport --dports 500,51820 -j DROP",), STOPPED),
    (("-A DOCKER-USER -p tcp -j DROP",), NOTHING),
    (("-A DOCKER-USER -p udp -m conntrack --ctorigdstport 51820 -j ACCEPT", "-A DOCKER-USER -p udp -j DROP"), NOTHING),
    (("-A DOCKER-USER -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A DOCKER-USER -j DROP"), STOPPED),
    (("-A INPUT -p udp -m udp --dport 51820 -j DROP",), NOTHING),
    (("-N MYFW", "-I FORWARD -j MYFW", "-A MYFW -p udp -m udp --dport 51820 -j DROP"), STOPPED),
    (("-N MYFW", "-I FORWARD -g MYFW", "-A MYFW -p udp -j DROP"), STOPPED),
    (("-N MYFW", "-A DOCKER-USER -j MYFW", "-A MYFW -p udp -j RETURN", "-A MYFW -j DROP"), NOTHING),
    (("-N MYFW", "-A FORWARD -j MYFW", "-A MYFW -p udp -m udp --dport 51820 -j DROP"), NOTHING),
    (("-A DOCKER-USER -i eth9 -p udp -j DROP",), LIMITED),
    (("-A DOCKER-USER ! -s 192.168.1.0/24 -i eth1 -j DROP",), LIMITED),
    (("-A DOCKER-USER -m mark --mark 7 -j DROP",), LIMITED),
    (("-A DOCKER-USER -i docker0 -d 169.254.169.254/32 -j DROP",), NOTHING),
    (("-N LIBVIRT_FWI", "-I FORWARD -j LIBVIRT_FWI", "-A LIBVIRT_FWI -o virbr0 -j REJECT"), NOTHING),
    (("-I FORWARD -m conntrack --ctstate INVALID -j DROP",), NOTHING),
    (("-A DOCKER-USER -m comment --comment 'a -j DROP' -j RETURN",), NOTHING),
]


@pytest.mark.parametrize("docker", [DOCKER_28, DOCKER_20], ids=["docker-28", "docker-20"])
@pytest.mark.parametrize(("rules", "expected"), IPTABLES)
def test_iptables_on_the_way_to_a_pod(
    docker: tuple[str, ...], rules: tuple[str, ...], expected: str, in_namespace: Listing
) -> None:
    commands = [f"iptables {rule}" for rule in (*docker, *rules)]
    blocks = iptables_blocks(in_namespace("\n".join([*commands, "iptables -S"])), OVERLAY)
    assert verdict(blocks) == expected, blocks


def test_rules_of_a_chain_that_docker_has_yet_to_jump_to() -> None:
    assert verdict(iptables_blocks("-A DOCKER-USER -p udp -m udp --dport 51820 -j DROP\n", OVERLAY)) == STOPPED


def test_the_rules_of_iptables_are_read_in_one_place_only(in_namespace: Listing) -> None:
    commands = "iptables -N DOCKER-USER\niptables -A FORWARD -j DOCKER-USER\niptables -A DOCKER-USER -p udp -j DROP\n"
    listing = in_namespace(f"{commands}nft -j list ruleset")
    assert verdict(nft_blocks(listing, OVERLAY, iptables_read=True)) == NOTHING
    assert verdict(nft_blocks(listing, OVERLAY)) == STOPPED


@pytest.mark.parametrize(
    ("recording", "packet", "expected"),
    [
        ("ufw-iptables-S", OVERLAY, NOTHING),
        ("ufw-iptables-S", PROBE, STOPPED),
        ("ufw-open-iptables-S", OVERLAY, NOTHING),
        ("ufw-open-iptables-S", PROBE, NOTHING),
        ("ufw-denied-iptables-S", PROBE, STOPPED),
        ("ufw-reject-iptables-S", PROBE, STOPPED),
        ("ufw-limit-iptables-S", PROBE, LIMITED),
    ],
)
def test_ufw_as_it_is_set_up(recording: str, packet: Packet, expected: str) -> None:
    text = json.loads((RECORDED / f"{recording}.json").read_text(encoding="utf-8"))["stdout"]
    assert verdict(iptables_blocks(text, packet)) == expected


@pytest.mark.parametrize(
    ("recording", "packet", "expected"),
    [
        ("firewalld-nft-ruleset", OVERLAY, NOTHING),
        ("firewalld-nft-ruleset", PROBE, STOPPED),
        ("firewalld-denied-nft-ruleset", OVERLAY, NOTHING),
        ("firewalld-denied-nft-ruleset", PROBE, STOPPED),
    ],
)
def test_firewalld_as_it_is_set_up(recording: str, packet: Packet, expected: str) -> None:
    text = json.loads((RECORDED / f"{recording}.json").read_text(encoding="utf-8"))["stdout"]
    assert verdict(nft_blocks(text, packet)) == expected


@pytest.mark.parametrize("packet", [OVERLAY, PROBE])
def test_rules_of_ufw_in_the_other_listing_are_no_blocks(packet: Packet) -> None:
    text = json.loads((RECORDED / "ufw-nft-ruleset.json").read_text(encoding="utf-8"))["stdout"]
    assert nft_blocks(text, packet, iptables_read=True) == []
    assert verdict(nft_blocks(text, packet)) == (NOTHING if packet is OVERLAY else LIMITED), "matches nft cannot show"


def test_what_a_program_decides_is_not_known(in_namespace: Listing) -> None:
    listing = in_namespace("nft -f - && nft -j list ruleset", forward("udp dport 51820 drop"))
    assert verdict(nft_blocks(listing.replace('"drop": null', '"queue": null'), OVERLAY)) == LIMITED
    assert verdict(iptables_blocks("-A FORWARD -p udp -j NFQUEUE --queue-num 0\n", OVERLAY)) == LIMITED


def test_a_ring_of_jumps_ends() -> None:
    ring = "-A FORWARD -j A\n-A A -j B\n-A B -j A\n-A B -p udp -j DROP\n"
    assert verdict(iptables_blocks(ring, OVERLAY)) == STOPPED


def test_ufw_and_firewalld() -> None:
    assert ufw_active("Status: active\nDefault: deny (incoming), allow (outgoing), deny (routed)\n")
    assert not ufw_active("Status: inactive\n")
    assert firewalld_zones("public\n  interfaces: eth0 eth1\ndrop\n  interfaces: enp1\n") == {
        "eth0": "public",
        "eth1": "public",
        "enp1": "drop",
    }
    recording = json.loads((RECORDED / "firewalld-active-zones.json").read_text(encoding="utf-8"))
    assert firewalld_zones(recording["stdout"]) == {"10.20.0.0/16": "home", RAIL: "internal"}
    assert firewalld_zones("public (default)\n  interfaces: eth0\n") == {"eth0": "public"}, "since firewalld 2.0"
    assert firewalld_strict("# comment\nStrictForwardPorts=yes\n")
    assert not firewalld_strict("StrictForwardPorts=no\n")
