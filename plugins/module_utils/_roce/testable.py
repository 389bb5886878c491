# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Whether RDMA tests may run on a host, and what its rails are: the refusals of host-contract 5.7.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, HostProbe, Missing, ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import INFINIBAND, ROCE
from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, SKIPPED, UNKNOWN, Record
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import parse_rate, parse_slot
from ansible_collections.lium.cluster.plugins.module_utils._ssh_route import connection_address, netdevs_below

TESTABLE = Check(
    id="roce.testable",
    title="RDMA tests may run on the host",
    severity="blocker",
    expected="no rental, no measurement of the platform, and rails that the platform would measure",
    why="a pair without a test is a pair that is not sold",
    source="docker ps, /sys/class/infiniband, ip -j addr show, rdma resource show qp",
)
UPLINK = Check(
    id="roce.test_uplink",
    title="The Ansible connection does not run over a rail",
    severity="degraded",
    expected="another netdev than the rails' carries the connection",
    why="tests fill the rail, and a rail that fails takes the connection with it",
    source="SSH_CONNECTION, ip -j addr show",
)


def look(probe: HostProbe, params: Mapping[str, Any]) -> Look:
    """The records, and under ``roce`` the rails in the platform's order and the refusal (empty: none)."""
    host = Host(probe)
    try:
        record = _testable(host, allow_busy=bool(params.get("allow_busy")))
    except (ProbeError, ParseError) as exc:
        record = TESTABLE.unknown(str(exc))
    refused = record.observed if record.status in (MUST_FIX, SKIPPED, UNKNOWN) else ""
    facts: dict[str, Any] = {"refused": refused, "rails": rails(host) if not refused else []}
    return Look([record, _uplink(host)] if not refused else [record], {"roce": facts})


def _testable(host: Host, *, allow_busy: bool) -> Record:
    kept_out = confidential_vm_host(host.probe) or host.occupancy.busy_for_tests
    if kept_out:
        return TESTABLE.skipped(kept_out)
    for refusal in (_hidden, _not_ours):
        told = refusal(host)
        if told is not None:
            return TESTABLE.must_fix(*told)
    users, unread = ([], "") if allow_busy else _users(host)
    if users:
        return TESTABLE.must_fix(f"in use by {', '.join(users)}", "Wait for it to end, or set roce_verify_allow_busy")
    names = ", ".join(f"{rail.name} {rail.address} (GID {rail.gid_index})" for rail in host.view.rails)
    if unread:
        return TESTABLE.warn(
            f"{names}; not known whether other programs use them: {unread}",
            "Make `rdma resource show qp` work (iproute2), or set roce_verify_allow_busy",
        )
    return TESTABLE.ok(names)


def _hidden(host: Host) -> tuple[str, str] | None:
    """What keeps the platform from measuring the host (host-contract 3.4)."""
    view = host.view
    if view.kind == INFINIBAND:
        return "fabric.mixed: an InfiniBand port is active", "Down the InfiniBand port; its fabric needs no RoCE test"
    if view.kind != ROCE:
        return "no active RoCE port", "See rdma.port_active"
    blind = [one.port.name for one in view.roce_ports if one.seen is None]
    if not view.rails or len(blind) == len(view.roce_ports):
        return "roce.no_address: no active port has an IPv4 GID at index 0 to 3", "Give each rail an IPv4 address"
    if len(view.segments) > 1:
        return f"roce.two_segments: {', '.join(view.segments)}", "Put all rails into one /24"
    if view.nccl_ib_gid_index is None:
        shown = ", ".join(f"{rail.name} {rail.gid_index}" for rail in view.rails)
        return f"roce.gid_index_mixed: {shown}", "Make the GID tables of the rails alike"
    return None


def _not_ours(host: Host) -> tuple[str, str] | None:
    """A GID whose address is on no netdev here belongs to another network namespace: no byte would cross."""
    own = {row.address for row in host.addresses}
    foreign = [f"{rail.name} {rail.address}" for rail in host.view.rails if rail.address not in own]
    if not foreign:
        return None
    return (
        f"no GID of an address in this network namespace: {', '.join(foreign)}",
        "Run in the host's network, or give this namespace an RDMA function of its own",
    )


def _users(host: Host) -> tuple[list[str], str]:
    """Programs that hold queue pairs on a rail, and why it is not known of some rail (empty: all are known).

    Kernel users stand in brackets and do not count. An rdma tool without this command, or none, is no reason to refuse.
    """
    users: set[str] = set()
    unread = ""
    for rail in host.view.rails:
        try:
            text = host.probe.output("rdma", "resource", "show", "qp", "link", f"{rail.device}/{rail.port}")
        except CommandError as exc:
            unread = unread or str(exc)
            continue
        found = re.findall(r"\bpid (\d+) comm ([^\s\[]\S*)", text)
        users |= {f"{rail.name} {name} (pid {pid})" for pid, name in found}
    return sorted(users), unread


def rails(host: Host) -> list[dict[str, Any]]:
    """Device, port, GID index and address of each rail, and what it can carry; unreadable stays ``None``."""
    found = []
    for rail in host.view.rails:
        device = host.rdma.device(rail.device)
        port = next(port for port in device.ports if port.number == rail.port)
        folder = f"/sys/class/infiniband/{rail.device}/device"
        speed, width = (_or_empty(host.probe, f"{folder}/current_link_{what}") for what in ("speed", "width"))
        slot = parse_slot(speed, width)
        found.append(
            {
                "device": rail.device,
                "port": rail.port,
                "gid_index": rail.gid_index,
                "address": rail.address,
                # A soft device has no driver and no line rate worth the name (host-contract 5.4).
                "link_gbps": parse_rate(port.rate) if device.driver else None,
                "slot": list(slot) if slot else None,
                "numa": device.numa_node,
                "netdevs": _netdevs(host.probe, folder),
            }
        )
    return found


def _netdevs(probe: HostProbe, folder: str) -> list[str]:
    """The netdevs of the card itself, whose counters tell of drops; none for a soft device."""
    try:
        return sorted(probe.entries_or_none(f"{folder}/net") or ())
    except ProbeError:
        return []


def _or_empty(probe: HostProbe, path: str) -> str:
    try:
        return probe.read_or_none(path) or ""
    except ProbeError:
        return ""


def _uplink(host: Host) -> Record:
    try:
        address = connection_address(host.probe, os.getpid())
        if address is None:
            return UPLINK.skipped("no SSH connection")
        carriers = {row.netdev for row in host.addresses if row.address == address}
        lower = {name for netdev in carriers for name in netdevs_below(host.probe, netdev)}
        shared = sorted(lower.intersection(host.fabric_netdevs))
    except Missing:
        return UPLINK.skipped("not this host's own process table: a recorded host")
    except (ProbeError, ParseError) as exc:
        return UPLINK.unknown(str(exc))
    if shared:
        return UPLINK.warn(
            f"{', '.join(shared)} carries the connection to {address}", "Reach the host over another network"
        )
    return UPLINK.ok(f"{', '.join(sorted(carriers)) or address}")
