"""TCP 18515 on the INPUT path of the fabric: what a firewall does to it is seen, how its tool opens it is said.

The answers are recorded from ufw 0.36.2 and firewalld 1.3.3; tests/roles/test_firewall.py has the real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import look_at_wireguard

from tests.collection.recorded_host import RecordedHost, healthy_host

#: The rails of the host below.
RAILS = ("enp32s0np0", "enp33s0np0")


def two_rails(kind: str = "roce") -> RecordedHost:
    return healthy_host(random.Random(3), kind=kind)


def port(host: RecordedHost, folder: Path) -> Record:
    records = look(open_probe(str(host.write(folder)), {}), {}).records
    (record,) = (record for record in records if record.id == "probe.tcp_18515")
    return record


def ufw(host: RecordedHost) -> None:
    """Its defaults: deny."""
    host.answer_as_recorded("iptables -S", "ufw-iptables-S")
    host.answer_as_recorded("nft -j list ruleset", "ufw-nft-ruleset")
    host.answer_as_recorded("ufw status verbose", "ufw-status-verbose")


def ufw_that_rejects(host: RecordedHost) -> None:
    ufw(host)
    host.answer_as_recorded("iptables -S", "ufw-reject-iptables-S")


def ufw_with_one_rail_open(host: RecordedHost) -> None:
    ufw(host)
    host.answer_as_recorded("iptables -S", "ufw-open-iptables-S")
    answer = host.commands["iptables -S"]
    answer["stdout"] = str(answer["stdout"]).replace("-s 10.20.30.0/24 -p tcp -m tcp --dport 18515", "-s 10.9.9.9/32")


def ufw_with_a_rule_against_it(host: RecordedHost) -> None:
    ufw(host)
    host.answer_as_recorded("iptables -S", "ufw-denied-iptables-S")


def ufw_with_a_limit(host: RecordedHost) -> None:
    ufw(host)
    host.answer_as_recorded("iptables -S", "ufw-limit-iptables-S")


def ufw_beside_a_chain_of_theirs(host: RecordedHost) -> None:
    ufw(host)
    host.answer("iptables -S", "-P INPUT ACCEPT\n-N MYFW\n-A INPUT -j MYFW\n-A MYFW -p tcp -j DROP\n")


def firewalld(host: RecordedHost) -> None:
    """As installed: nothing is bound to a zone."""
    host.answer_as_recorded("nft -j list ruleset", "firewalld-nft-ruleset")
    host.answer_as_recorded("firewall-cmd --get-active-zones", "firewalld-active-zones-none")
    host.answer("firewall-cmd --get-default-zone", "public\n")


def firewalld_with_a_rule_against_it(host: RecordedHost) -> None:
    firewalld(host)
    host.answer_as_recorded("nft -j list ruleset", "firewalld-denied-nft-ruleset")
    host.answer("firewall-cmd --get-active-zones", f"internal\n  interfaces: {RAILS[0]}\n")


def table_beside_firewalld(host: RecordedHost) -> None:
    firewalld(host)
    chain = {"family": "inet", "table": "mine", "name": "in", "hook": "input", "policy": "drop"}
    host.answer("nft -j list ruleset", json.dumps({"nftables": [{"chain": chain}]}))


OPT_IN = ", or set lium_manage_firewall: true and run onboard. Why: "
BY_UFW = [f"`ufw allow in on {netdev} proto tcp to any port 18515`" for netdev in RAILS]
BY_FIREWALLD = (
    "Run `firewall-cmd --permanent --zone=public --add-port=18515/tcp` and"
    f" `firewall-cmd --zone=public --add-port=18515/tcp`{OPT_IN}"
)


@pytest.mark.parametrize(
    ("set_up", "status", "seen", "fix"),
    [
        (ufw, "MUST_FIX", "INPUT: policy DROP and no rule", f"Run {' and '.join(BY_UFW)}{OPT_IN}"),
        (ufw_that_rejects, "MUST_FIX", "ufw-reject-input", f"Run {' and '.join(BY_UFW)}{OPT_IN}"),
        (ufw_with_one_rail_open, "MUST_FIX", f"TCP 18515, on {RAILS[1]}", f"Run {BY_UFW[1]}{OPT_IN}"),
        (ufw_with_a_rule_against_it, "MUST_FIX", "--dport 18515 -j DROP", "Take that rule out of ufw"),
        (ufw_with_a_limit, "WARN", "limits some traffic", "Run verify_roce"),
        (ufw_beside_a_chain_of_theirs, "MUST_FIX", "MYFW", "iptables -I MYFW -p tcp --dport 18515 -j ACCEPT"),
        (firewalld, "MUST_FIX", "(in inet firewalld filter_IN_public)", BY_FIREWALLD),
        (
            firewalld_with_a_rule_against_it,
            "MUST_FIX",
            f"_IN_internal_deny), on {RAILS[0]}",
            "--remove-rich-rule",
        ),
        (table_beside_firewalld, "MUST_FIX", "inet mine in: policy drop", "Add `tcp dport 18515 accept`"),
    ],
)
def test_what_is_in_the_way_is_named_with_how_to_open_it(
    set_up: Callable[[RecordedHost], None], status: str, seen: str, fix: str, tmp_path: Path
) -> None:
    host = two_rails()
    set_up(host)
    record = port(host, tmp_path)
    assert (record.status, seen in record.observed, fix in record.remediation) == (status, True, True), record


def test_each_rail_may_have_its_own_rule(tmp_path: Path) -> None:
    """As ufw and firewalld write them: each seems to be about a part of the traffic, all together let everything in."""
    host = two_rails()
    rules = "".join(f"-A INPUT -i {netdev} -p tcp -m tcp --dport 18515 -j ACCEPT\n" for netdev in RAILS)
    host.answer("iptables -S", f"-P INPUT DROP\n{rules}")
    assert port(host, tmp_path).status == "OK"


# What the role adds where it is asked to.


def rules(host: RecordedHost, folder: Path) -> object:
    found = look_at_wireguard(open_probe(str(host.write(folder)), {}), {"ports": [51820]})
    return found.facts["wireguard"]["firewall_rules"]


@pytest.mark.parametrize(("kind", "netdevs"), [("roce", RAILS), ("infiniband", ())])
def test_ufw_is_asked_for_the_fabric_netdevs_alone(kind: str, netdevs: tuple[str, ...], tmp_path: Path) -> None:
    host = two_rails(kind)
    ufw(host)
    assert rules(host, tmp_path / "active") == [
        {"tool": "ufw", "port": 51820},
        *({"tool": "ufw", "port": 18515, "protocol": "tcp", "netdev": netdev} for netdev in netdevs),
    ]
    host.answer_as_recorded("ufw status verbose", "ufw-status-inactive")
    assert rules(host, tmp_path / "inactive") == []


@pytest.mark.parametrize(
    ("zones", "inside"),
    [
        ("", ["public"]),
        (f"internal\n  interfaces: {' '.join(RAILS)}\n", ["internal"]),
        (f"internal\n  interfaces: {RAILS[0]}\n", ["internal", "public"]),
        (f"home\n  sources: 10.20.0.0/16\ninternal\n  interfaces: {RAILS[0]}\n", ["home"]),
        ("home\n  sources: 10.20.30.7 00:11:22:33:44:55 ipset:peers fd00::/8\n", ["public"]),
    ],
)
def test_firewalld_is_asked_for_the_zone_that_a_peer_comes_to(zones: str, inside: list[str], tmp_path: Path) -> None:
    host = two_rails()
    firewalld(host)
    host.answer("firewall-cmd --get-active-zones", zones)
    assert rules(host, tmp_path) == [
        *({"tool": "firewalld", "port": 51820, "zone": zone} for zone in inside),
        *({"tool": "firewalld", "port": 18515, "protocol": "tcp", "zone": zone} for zone in inside),
    ]


def test_infiniband_has_no_such_port(tmp_path: Path) -> None:
    host = two_rails("infiniband")
    firewalld(host)
    assert rules(host, tmp_path) == [{"tool": "firewalld", "port": 51820, "zone": "public"}]


def test_the_active_tool_is_known_before_a_reader_of_rules_is_there(tmp_path: Path) -> None:
    """The role's packages come after its first look, and its second run shall have nothing left to add."""
    host = two_rails()
    ufw(host)
    there = rules(host, tmp_path / "there")
    del host.commands["nft -j list ruleset"], host.commands["iptables -S"]
    assert rules(host, tmp_path / "bare") == there != []


def test_no_tool_no_rules(tmp_path: Path) -> None:
    host = two_rails()
    assert rules(host, tmp_path / "none") == []
    host.answer("firewall-cmd --get-active-zones", rc=252, stderr="FirewallD is not running\n")
    assert rules(host, tmp_path / "stopped") == []
