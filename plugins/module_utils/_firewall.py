# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The packet filters of a host: what is in the way of a peer's packet, and the rules that would let it through.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._docker import DAEMON_JSON_PATH
from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import rules_of
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    Packet,
    firewalld_strict,
)
from ansible_collections.lium.cluster.plugins.module_utils._parsers.iptables import iptables_blocks
from ansible_collections.lium.cluster.plugins.module_utils._parsers.nft import nft_blocks
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, ProbeError, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: The port inside every cluster pod, which is what a rule sees after Docker's DNAT.
CONTAINER_PORT = 51820
#: Where the platform's RDMA measurement shakes hands, in the host's own network.
PROBE_TCP_PORT = 18515
#: Where ufw and firewalld end what no rule of theirs has let through.
_DENIED_BY_DEFAULT = ("INPUT: policy", "ufw-reject-input:", "inet firewalld ")


def forward_state(host: Host, ports: Sequence[int]) -> tuple[list[str], list[Block]]:
    """The packet filters that were read, and what is in the way of UDP to any of the ports that pods publish."""
    try:
        own = frozenset(row.address for row in host.addresses)
    except (ProbeError, ParseError):
        own = None
    tools, met = _rules_met(host, [Packet("udp", port, CONTAINER_PORT, own=own) for port in ports])
    blocks = [block for _packet, block in met]
    if "iptables" in tools:
        blocks += _docker_blocks(host, tools)
    if "firewalld" in tools:
        blocks += _firewalld_blocks(host)
    return tools, blocks


def input_state(host: Host, protocol: str, port: int) -> tuple[list[str], list[Block]]:
    """The packet filters that were read, and what is in the way of a fabric peer's packet to this host itself."""
    own = frozenset(host.view.addresses)
    segments = tuple(ipaddress.IPv4Network(segment) for segment in host.view.segments)
    netdevs = host.fabric_netdevs
    # One packet a netdev: each of some rules, one a netdev, would seem to be about a part of the traffic only.
    comes_in = [frozenset({netdev}) for netdev in netdevs] or [None]
    tools, blocks = _rules_met(host, [Packet(protocol, port, None, names, segments, own) for names in comes_in])
    met: dict[Block, list[str]] = {}
    for packet, block in blocks:
        met.setdefault(block, []).extend(packet.netdevs or ())
    return tools, [
        dataclasses.replace(
            block,
            what=block.what if len(stopped) == len(netdevs) else f"{block.what}, on {', '.join(stopped)}",
            fix=_fix(block, _input_rules(host, protocol, port, stopped)) or block.fix,
        )
        for block, stopped in met.items()
    ]


def _fix(block: Block, openings: Sequence[Mapping[str, Any]]) -> str:
    """How the tool that has made the rule lets the packet through; empty where it is not known to be a tool's."""
    if block.what.startswith("ufw-user-input:"):
        return "Take that rule out of ufw: `ufw status numbered` has its number for `ufw delete`"
    if block.what.startswith("inet firewalld ") and block.what.endswith("_deny)"):
        return "Take that rule out of its zone: `firewall-cmd --list-all-zones` shows it, for `--remove-rich-rule`"
    if block.partial or not block.what.startswith(_DENIED_BY_DEFAULT):
        return ""
    tool = "firewalld" if block.tool == "nftables" else "ufw"
    rules = [rule for opening in openings if opening["tool"] == tool for rule in rules_of(opening)]
    commands = " and ".join(f"`{shlex.join(rule.add_command)}`" for rule in rules)
    return f"Run {commands}, or set lium_manage_firewall: true and run onboard" if commands else ""


def blocked(check: Check, blocks: Sequence[Block], tools: Sequence[str]) -> Record:
    """The verdict on what is in the way. What stops some traffic only may be meant, so a test has to tell."""
    certain = [block for block in blocks if not block.partial]
    answer = check.must_fix if certain else check.warn
    return answer(
        "; ".join(dict.fromkeys(block.what for block in blocks)),
        "; ".join(dict.fromkeys(block.fix for block in certain or blocks)),
        source=", ".join(tools),
    )


def _rules_met(host: Host, packets: Sequence[Packet]) -> tuple[list[str], list[tuple[Packet, Block]]]:
    tools: list[str] = []
    met: list[tuple[Packet, Block]] = []
    filtering = False
    for tool, has_rules in (("iptables", _has_iptables(host)), ("nftables", _in_kernel(host, "nf_tables"))):
        if not has_rules:  # asking would load what is not there
            continue
        filtering = True
        try:
            text = host.iptables_rules if tool == "iptables" else host.nft_ruleset
        except ToolMissing:
            continue
        for packet in packets:
            blocks = (
                iptables_blocks(text, packet) if tool == "iptables" else nft_blocks(text, packet, "iptables" in tools)
            )
            met += [(packet, block) for block in blocks]
        tools.append(tool)
    if filtering and not tools:
        raise CommandError(
            ("nft", "-j", "list", "ruleset"), "the kernel filters packets, but neither nft nor iptables is there"
        )
    tools += host.firewall_tools
    return tools, met


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
    blocks = []
    if firewalld_strict(host.probe.read_or_none("/etc/firewalld/firewalld.conf") or ""):
        fix = "Set StrictForwardPorts=no in /etc/firewalld/firewalld.conf and reload firewalld"
        blocks.append(Block("firewalld", "StrictForwardPorts=yes blocks ports that Docker publishes", fix))
    for netdev in host.fabric_netdevs:
        zone = (host.firewalld_zones or {}).get(netdev) or host.firewalld_default_zone
        if zone in ("drop", "block"):
            # firewalld 1.3 accepts what Docker has translated before it looks at any zone; not every one need do so.
            fix = "Run verify_wireguard: it shows whether published ports are concerned. If they are, run"
            fix += f" `firewall-cmd --permanent --zone=public --change-interface={netdev}` and reload firewalld"
            blocks.append(Block("firewalld", f"{netdev} is in zone {zone}", fix, partial=True))
    return blocks


def _docker_blocks(host: Host, tools: Sequence[str]) -> list[Block]:
    """Docker makes its chains when it starts. A firewalld that starts later takes them away, and Docker hears of that
    only if it had met a firewalld before: it then publishes no port, and no pod with one starts."""
    if not host.occupancy.docker or host.occupancy.unreadable or "DOCKER" in host.iptables_rules:
        return []
    if re.search(r'"iptables"\s*:\s*false', host.probe.read_or_none(DAEMON_JSON_PATH) or ""):
        return []
    if "nftables" in tools and '"docker-bridges"' in host.nft_ruleset:
        return []
    what = "the chains of Docker are gone, so that it can publish no port"
    fix = "Run `systemctl restart docker` when no rental runs: Docker makes them anew, and keeps them from then on"
    return [Block("iptables", what, fix)]


def allow_rules(host: Host, ports: Sequence[int]) -> list[dict[str, Any]]:
    """Rules that the role may add where it is asked to, through the tool that is active: UDP of the pods' ports, and
    from the fabric TCP of the platform's measurement."""
    rules: list[dict[str, Any]] = []
    if "ufw" in host.firewall_tools:
        rules += [{"tool": "ufw", "port": port} for port in ports]
    if "firewalld" in host.firewall_tools:
        zones = _fabric_zones(host, host.fabric_netdevs) or [host.firewalld_default_zone]
        rules += [{"tool": "firewalld", "port": port, "zone": zone} for zone in zones for port in ports]
    return rules + _input_rules(host, "tcp", PROBE_TCP_PORT, host.fabric_netdevs)


def _input_rules(host: Host, protocol: str, port: int, netdevs: Sequence[str]) -> list[dict[str, Any]]:
    """Rules that let through what fabric peers send to a port of this host itself, by some of its netdevs."""
    opening = {"port": port, "protocol": protocol}
    rules: list[dict[str, Any]] = []
    if "ufw" in host.firewall_tools:
        rules += [{"tool": "ufw", **opening, "netdev": netdev} for netdev in netdevs]
    if "firewalld" in host.firewall_tools:
        rules += [{"tool": "firewalld", **opening, "zone": zone} for zone in _fabric_zones(host, netdevs)]
    return rules


def _fabric_zones(host: Host, netdevs: Sequence[str]) -> list[str]:
    """The zones that a fabric peer's packet may come to: a source's goes before a netdev's, and that before the default
    one, which ``--get-active-zones`` does not list for what is bound to none."""
    bound = host.firewalld_zones or {}
    by_source = [_zone_of_source(bound, ipaddress.IPv4Network(segment)) for segment in host.view.segments]
    zones = {zone for zone in by_source if zone}
    if not all(by_source) or not by_source:
        zones |= {bound.get(netdev, "") for netdev in netdevs}
    if "" in zones:
        zones = zones - {""} | {host.firewalld_default_zone}
    return sorted(zones)


def _zone_of_source(bound: Mapping[str, str], segment: ipaddress.IPv4Network) -> str:
    for name, zone in bound.items():
        try:
            source = ipaddress.IPv4Network(name)
        except ValueError:
            continue  # a netdev, a MAC address, an ipset
        if segment.subnet_of(source):
            return zone
    return ""
