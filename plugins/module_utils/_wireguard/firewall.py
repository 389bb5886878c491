# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The packet filters of a host: what is in the way of the overlay's ports, and the rules that would let them through.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    firewalld_strict,
    firewalld_zones,
    iptables_blocks,
    nft_blocks,
    ufw_active,
)
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, ToolMissing


def firewall_state(host: Host, ports: Sequence[int]) -> tuple[list[str], list[Block]]:
    """The packet filters that were read, and what is in the way of any of the ports."""
    probe, tools = host.probe, []
    blocks: list[Block] = []
    filtering = False
    for tool, has_rules, argv, read in (
        ("nftables", _in_kernel(host, "nf_tables"), ("nft", "-j", "list", "ruleset"), nft_blocks),
        ("iptables", _has_iptables(host), ("iptables", "-S"), iptables_blocks),
    ):
        if not has_rules:  # asking would load what is not there
            continue
        filtering = True
        try:
            text = probe.output(*argv)
        except ToolMissing:
            continue
        tools.append(tool)
        for port in ports:
            blocks += read(text, port)
    if filtering and not tools:
        raise CommandError(
            ("nft", "-j", "list", "ruleset"), "the kernel filters packets, but neither nft nor iptables is there"
        )
    if probe.which("ufw") and ufw_active(probe.output("ufw", "status", "verbose")):
        tools.append("ufw")
    return tools, blocks + _firewalld_blocks(host, tools)


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


def _firewalld_blocks(host: Host, tools: list[str]) -> list[Block]:
    probe = host.probe
    if not probe.which("firewall-cmd") or probe.run("firewall-cmd", "--state").stdout.strip() != "running":
        return []
    tools.append("firewalld")
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
