"""Parsers on what the tools really printed, and on what no tool ever printed."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.executor import renting_ports
from ansible_collections.lium.cluster.plugins.module_utils._checks.platform import kernel_version
from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import FirewallRule
from ansible_collections.lium.cluster.plugins.module_utils._host import parse_dkms_status
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values, load_json, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.conntrack import parse_conntrack
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Packet,
    firewalld_strict,
    firewalld_zones,
    ufw_active,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.ibv import parse_ibv_devinfo
from ansible_collections.lium.cluster.plugins.module_utils._parsers.iptables import iptables_blocks
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import (
    parse_arping,
    parse_ethtool_pause,
    parse_ip_address,
    parse_ip_route,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.nft import nft_blocks
from ansible_collections.lium.cluster.plugins.module_utils._parsers.pci import parse_lspci
from ansible_collections.lium.cluster.plugins.module_utils._parsers.rdma_tool import (
    parse_netns_mode,
    parse_rdma_link,
    parse_rdma_link_json,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import parse_dump
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed
from ansible_collections.lium.cluster.plugins.module_utils._sockets import parse_proc_net
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.mesh import parse_config
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collection.conftest import ROOT

RECORDED = ROOT / "tests" / "fixtures" / "recorded"
OVERLAY = Packet("udp", 51820, 51820)


def recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def done(name: str) -> Completed:
    row = recorded(name)
    return Completed(("recorded",), row["rc"], row["stdout"], row["stderr"])


def test_ibv_devinfo_of_soft_roce() -> None:
    for name in ("ibv-devinfo-v", "ibv-devinfo"):
        verbs = parse_ibv_devinfo(recorded(name)["stdout"])
        (port,) = verbs.ports
        assert verbs.devices == ("rxe0",)
        assert (port.device, port.number, port.link_layer, port.active_mtu) == ("rxe0", 1, "Ethernet", 1024)
        assert port.state == "PORT_ACTIVE (4)"
        assert verbs.problem == ""


def test_ibv_devinfo_without_a_device() -> None:
    row = recorded("ibv-devinfo-nodev")
    assert parse_ibv_devinfo(row["stdout"], row["stderr"]).devices == ()


def test_rdma_link_in_both_forms() -> None:
    text = parse_rdma_link(recorded("rdma-link")["stdout"])
    assert text == parse_rdma_link_json(recorded("rdma-link-json")["stdout"])
    assert text == parse_rdma_link_json(recorded("rdma-link-json-detail")["stdout"])
    (link,) = text
    assert (link.device, link.port, link.state, link.netdev) == ("rxe0", 1, "ACTIVE", "eth0")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp25s0 ", ("mlx5_0", "ACTIVE", "enp25s0")),
        (
            "link mlx5_2/1 subnet_prefix fe80:0000:0000:0000 lid 14 sm_lid 1 state ACTIVE physical_state LINK_UP ",
            ("mlx5_2", "ACTIVE", None),
        ),
        (
            "link rocep193s0f0/1 state ACTIVE_DEFER physical_state LINK_UP netdev enp1 ",
            ("rocep193s0f0", "ACTIVE_DEFER", "enp1"),
        ),
    ],
)
def test_rdma_link_of_other_cards(line: str, expected: tuple[str, str, str | None]) -> None:
    (link,) = parse_rdma_link(line)
    assert (link.device, link.state, link.netdev) == expected


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("netns shared copy-on-fork on\n", "shared"),
        ("netns shared privileged-qkey off monitor on copy-on-fork on\n", "shared"),
        ("netns exclusive copy-on-fork on\n", "exclusive"),
    ],
)
def test_netns_mode_of_every_version(text: str, mode: str) -> None:
    assert parse_netns_mode(Completed(("rdma",), 0, text, "")) == mode
    assert parse_netns_mode(done("rdma-system")) == "shared"


def test_addresses_and_routes() -> None:
    addresses = parse_ip_address(recorded("ip-addr-json")["stdout"])
    assert ("eth0", "172.16.5.1", 24, "global") in [(a.netdev, a.address, a.prefix_length, a.scope) for a in addresses]
    routes = parse_ip_route(recorded("ip-route-json")["stdout"])
    assert ("172.16.5.0/24", "eth0") in [(route.destination, route.netdev) for route in routes]


def test_pause_frames_that_a_driver_lacks() -> None:
    assert parse_ethtool_pause(done("ethtool-a-virtio")).supported is False
    with pytest.raises(ParseError):
        parse_ethtool_pause(done("ethtool-a-nodev"))


def test_wireguard_with_a_handshake() -> None:
    (interface,) = parse_dump(recorded("wg-show-all-dump")["stdout"])
    (peer,) = interface.peers
    assert (interface.name, interface.listen_port, peer.allowed_ips) == ("wg0", 51820, ("10.77.0.2/32",))
    assert peer.latest_handshake is not None
    fresh = peer.latest_handshake + datetime.timedelta(seconds=20)
    assert peer.problem(fresh) == ""
    assert "latest handshake 600 s ago" in peer.problem(peer.latest_handshake + datetime.timedelta(seconds=600))


@pytest.mark.parametrize("name", ["wg-dump-blocked", "wg-dump-wrong-key"])
def test_wireguard_without_a_handshake(name: str) -> None:
    row = recorded(name)
    form = None if "all" in row["command"] else "wg0"
    (interface,) = parse_dump(row["stdout"], form)
    now = datetime.datetime.now(datetime.timezone.utc)
    assert interface.peers[0].problem(now) == "never shook hands"


def test_wireguard_after_a_block_is_old_and_not_zero() -> None:
    row = recorded("wg-dump-blocked-after-handshake")
    (interface,) = parse_dump(row["stdout"], None if "all" in row["command"] else "wg0")
    assert interface.peers[0].latest_handshake is not None


def test_wireguard_without_peers_and_without_interfaces() -> None:
    assert parse_dump(recorded("wg-show-all-dump-nopeer")["stdout"])[0].peers == ()
    assert parse_dump(recorded("wg-show-none")["stdout"]) == []
    assert parse_dump(recorded("wg-show-dump-iface")["stdout"], "wg0")[0].name == "wg0"


def test_a_key_never_stands_in_an_error() -> None:
    secret = "kzZEL0ZXKyCb57Ysd95F1I4ziNrxksNALytFn6NiiIk="
    with pytest.raises(ParseError) as caught:
        parse_dump(f"{secret}\tbroken\n", "wg0")
    assert secret not in str(caught.value)
    assert secret not in caught.value.line


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "mlnx-ofed-kernel/24.10.OFED.24.10.3.2.5.1, 6.8.0-60-generic, x86_64: installed",
            ("mlnx-ofed-kernel", "6.8.0-60-generic", "installed"),
        ),
        ("mlnx-ofed-kernel/24.10: added", ("mlnx-ofed-kernel", "", "added")),
        ("mlnx-ofed-kernel, 24.10, 6.8.0-60-generic, x86_64: built", ("mlnx-ofed-kernel", "6.8.0-60-generic", "built")),
        (
            "nvidia/550.54, 6.8.0-60-generic, x86_64: installed (WARNING! Diff between built and installed module!)",
            ("nvidia", "6.8.0-60-generic", "installed"),
        ),
    ],
)
def test_dkms_status(line: str, row: tuple[str, str, str]) -> None:
    assert [tuple(found) for found in parse_dkms_status(line)] == [row]


@pytest.mark.parametrize(
    ("text", "ports"),
    [("9000-9002", {9000, 9001, 9002}), ("9001,9005", {9001, 9005}), ("[[9001, 19001], [9002, 19002]]", {9001, 9002})],
)
def test_renting_ports(text: str, ports: set[int]) -> None:
    assert renting_ports(text) == ports


@pytest.mark.parametrize("text", ["9002-9000", "0-10", "70000", "a-b", "", '[["x"]]', "[1", "9000-"])
def test_renting_ports_that_are_none(text: str) -> None:
    with pytest.raises(ParseError):
        renting_ports(text)


def test_acs_of_bridges() -> None:
    functions = parse_lspci(
        "0000:16:01.0 PCI bridge: Intel Corporation Device 352a (rev 04)\n"
        "\tCapabilities: [220 v1] Access Control Services\n"
        "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    )
    assert functions["0000:16:01.0"].bridge
    assert functions["0000:16:01.0"].redirects
    with pytest.raises(ParseError, match="root only"):
        parse_lspci("0000:16:01.0 PCI bridge: x\n\tCapabilities: <access denied>\n")


def test_tracked_flows_of_both_sources() -> None:
    there = "udp 17 27 src=10.0.0.2 dst=10.0.0.1 sport=40000 dport=51820 [UNREPLIED]"
    tail = f"{there} src=172.17.0.2 dst=10.0.0.2 sport=51820 dport=40000"
    for line in (tail, f"ipv4     2 {tail} mark=0 use=1"):
        (flow,) = parse_conntrack(f"{line}\nconntrack v1.4.6: 1 flow entries have been shown.\n")
        assert tuple(flow) == ("udp", "10.0.0.2", "10.0.0.1", 51820, "172.17.0.2")


def as_completed(parse: Callable[[Completed], object]) -> Callable[[str], object]:
    return lambda text: parse(Completed(("tool",), len(text) % 2, text, text))


PARSERS: dict[str, Callable[[str], object]] = {
    "arping": parse_arping,
    "conntrack": parse_conntrack,
    "dkms": parse_dkms_status,
    "ethtool": as_completed(parse_ethtool_pause),
    "firewalld conf": firewalld_strict,
    "firewalld ports": lambda text: FirewallRule("firewalld", 51820).found(lambda _argv: (0, text)),
    "firewalld zones": firewalld_zones,
    "ibv_devinfo": parse_ibv_devinfo,
    "ip addr": parse_ip_address,
    "ip route": parse_ip_route,
    "iptables": lambda text: iptables_blocks(text, OVERLAY),
    "json": lambda text: load_json("tool", text),
    "kernel": kernel_version,
    "key=value": key_values,
    "lspci": parse_lspci,
    "netns": as_completed(parse_netns_mode),
    "nft": lambda text: nft_blocks(text, OVERLAY),
    "number": lambda text: parse_int("tool", text),
    "proc net": lambda text: parse_proc_net(text, "07"),
    "rdma link": parse_rdma_link,
    "rdma link json": parse_rdma_link_json,
    "renting ports": renting_ports,
    "ufw": ufw_active,
    "ufw rules": lambda text: FirewallRule("ufw", 51820).found(lambda _argv: (0, text)),
    "wg all": parse_dump,
    "wg one": lambda text: parse_dump(text, "wg0"),
    "wg-quick": parse_config,
}
NFT = json.dumps(
    {
        "nftables": [
            {"chain": {"family": "ip", "table": "t", "name": "f", "hook": "forward", "policy": "drop"}},
            {"set": {"family": "ip", "table": "t", "name": "s", "elem": [53, {"range": [60, 70]}]}},
            {
                "rule": {
                    "family": "ip",
                    "table": "t",
                    "chain": "f",
                    "expr": [
                        {
                            "match": {
                                "op": "!=",
                                "left": {"payload": {"protocol": "udp", "field": "dport"}},
                                "right": "@s",
                            }
                        },
                        {
                            "vmap": {
                                "key": {"ct": {"key": "state"}},
                                "data": {"set": [["new", {"jump": {"target": "g"}}]]},
                            }
                        },
                    ],
                }
            },
            {"rule": {"family": "ip", "table": "t", "chain": "g", "expr": [{"goto": {"target": "f"}}]}},
        ]
    }
)
SEEDS = sorted(
    {
        str(json.loads(path.read_text(encoding="utf-8")).get("stdout", ""))[:3000]
        for path in RECORDED.glob("*.json")
        if path.name.startswith(("arping", "wg", "rdma", "ibv", "ip-", "ethtool-a", "lsmod", "ufw", "firewalld"))
    }
    | {NFT, "-A FORWARD -p udp -m udp ! --dport 1 -g DOCKER-USER\n-A DOCKER-USER -j DROP", "[[9001, 1]]"}
)
#: Any text, a cut-off recording, a recording with one piece replaced, or JSON of any shape.
TEXTS = st.one_of(
    st.text(max_size=300),
    st.tuples(st.sampled_from(SEEDS), st.integers(0, 3000)).map(lambda pair: pair[0][: pair[1]]),
    st.tuples(st.sampled_from(SEEDS), st.integers(0, 3000), st.text(max_size=12) | st.just("9" * 5000)).map(
        lambda row: row[0][: row[1]] + row[2] + row[0][row[1] + len(row[2]) :]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["nftables", "chain", "rule", "expr", "match", "left", "payload", "ifname", "port", "addr_info"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(json.dumps),
)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_no_text_raises_anything_but_a_parse_error(name: str) -> None:
    parse = PARSERS[name]

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(TEXTS)
    def fuzz(text: str) -> None:
        with contextlib.suppress(ParseError):
            parse(text)

    fuzz()
