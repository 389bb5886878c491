# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The packet filters of a host: what is in the way of a peer's packet, and the rules that would let it through.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    Packet,
    firewalld_strict,
    firewalld_zones,
    ufw_active,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.iptables import iptables_blocks
from ansible_collections.lium.cluster.plugins.module_utils._parsers.nft import nft_blocks
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, ProbeError, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: The port inside every cluster pod, which is what a rule sees after Docker's DNAT.
CONTAINER_PORT = 51820


def forward_state(host: Host, ports: Sequence[int]) -> tuple[list[str], list[Block]]:
    """The packet filters that were read, and what is in the way of UDP to any of the ports that pods publish."""
    try:
        own = frozenset(row.address for row in host.addresses)
    except (ProbeError, ParseError):
        own = None
    tools, blocks = _rules_met(host, [Packet("udp", port, CONTAINER_PORT, own=own) for port in ports])
    if "firewalld" in tools:
        blocks += _firewalld_blocks(host)
    return tools, blocks


def input_state(host: Host, protocol: str, port: int) -> tuple[list[str], list[Block]]:
    """The packet filters that were read, and what is in the way of a fabric peer's packet to this host itself."""
    own = frozenset(host.view.addresses)
    segments = tuple(ipaddress.IPv4Network(segment) for segment in host.view.segments)
    netdevs = host.fabric_netdevs
    packet = Packet(protocol, port, None, frozenset(netdevs), segments, own)
    tools, blocks = _rules_met(host, [packet])
    fix = ""
    if "ufw" in tools:
        fix = "; ".join(f"Run `ufw allow in on {name} to any port {port} proto {protocol}`" for name in netdevs)
    elif "firewalld" in tools:
        fix = f"Run `firewall-cmd --permanent --zone=ZONE --add-port={port}/{protocol}` for the zone of each of"
        fix += f" {', '.join(netdevs)}, then `firewall-cmd --reload`"
    return tools, [dataclasses.replace(block, fix=fix) if fix and not block.partial else block for block in blocks]


def blocked(check: Check, blocks: Sequence[Block], tools: Sequence[str]) -> Record:
    """The verdict on what is in the way. What stops some traffic only may be meant, so a test has to tell."""
    certain = [block for block in blocks if not block.partial]
    answer = check.must_fix if certain else check.warn
    return answer(
        "; ".join(dict.fromkeys(block.what for block in blocks)),
        "; ".join(dict.fromkeys(block.fix for block in certain or blocks)),
        source=", ".join(tools),
    )


def _rules_met(host: Host, packets: Sequence[Packet]) -> tuple[list[str], list[Block]]:
    probe, tools = host.probe, []
    blocks: list[Block] = []
    filtering = False
    for tool, has_rules, argv in (
        ("iptables", _has_iptables(host), ("iptables", "-S")),
        ("nftables", _in_kernel(host, "nf_tables"), ("nft", "-j", "list", "ruleset")),
    ):
        if not has_rules:  # asking would load what is not there
            continue
        filtering = True
        try:
            text = probe.output(*argv)
        except ToolMissing:
            continue
        for packet in packets:
            blocks += (
                iptables_blocks(text, packet) if tool == "iptables" else nft_blocks(text, packet, "iptables" in tools)
            )
        tools.append(tool)
    if filtering and not tools:
        raise CommandError(
            ("nft", "-j", "list", "ruleset"), "the kernel filters packets, but neither nft nor iptables is there"
        )
    if probe.which("ufw") and ufw_active(probe.output("ufw", "status", "verbose")):
        tools.append("ufw")
    if probe.which("firewall-cmd") and probe.run("firewall-cmd", "--state").stdout.strip() == "running":
        tools.append("firewalld")
    return tools, blocks


def _has_iptables(host: Host) -> bool:
    """Whether iptables may have rules: through nftables, or in a table of its own, which is made at its first rule."""
    if host.probe.exists("/sys/module/nft_compat"):
        return True
    return "filter" in (host.probe.read_or_none("/proc/net/ip_tables_names") or "")


def _in_kernel(host: Host, name: str) -> bool:
    if host.probe.exists(f"/sys/module/{name}"):
        return True
    built_in = host.probe.read_or_none(f"/lib/modules/{host.kernel}/modules.builtin") or ""
    return f"/{name}.ko" in built_in


def _firewalld_blocks(host: Host) -> list[Block]:
    probe = host.probe
    blocks = []
    if firewalld_strict(probe.read_or_none("/etc/firewalld/firewalld.conf") or ""):
        fix = "Set StrictForwardPorts=no in /etc/firewalld/firewalld.conf and reload firewalld"
        blocks.append(Block("firewalld", "StrictForwardPorts=yes blocks ports that Docker publishes", fix))
    zones = firewalld_zones(probe.output("firewall-cmd", "--get-active-zones"))
    for netdev in host.fabric_netdevs:
        zone = zones.get(netdev, "")
        if zone in ("drop", "block"):
            fix = (
                f"Move {netdev} to another zone (`firewall-cmd --zone=public --change-interface={netdev} --permanent`)"
            )
            blocks.append(Block("firewalld", f"{netdev} is in zone {zone}", fix))
    return blocks


def allow_rules(host: Host, ports: Sequence[int], tools: list[str]) -> list[dict[str, Any]]:
    """Rules that the role may add where it is asked to: through the tool that is active, in the fabric's zone."""
    rules: list[dict[str, Any]] = []
    if "ufw" in tools:
        rules += [{"tool": "ufw", "port": port} for port in ports]
    if "firewalld" in tools:
        zones = firewalld_zones(host.probe.output("firewall-cmd", "--get-active-zones"))
        wanted = sorted({zones[netdev] for netdev in host.fabric_netdevs if netdev in zones}) or [""]
        rules += [{"tool": "firewalld", "port": port, "zone": zone} for zone in wanted for port in ports]
    return rules
