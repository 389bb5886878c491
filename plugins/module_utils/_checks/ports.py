# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section C of the host contract: ports, addresses and GIDs, judged by the platform's own rules P1 to P11.

The refusal that the platform will show (host-contract 3.4) stands in front of what was observed.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_arping
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import Port
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import GID_WINDOW, INFINIBAND, NONE, ROCE
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

_SYSFS = "/sys/class/infiniband/*/ports/*"

PORT_ACTIVE = Check(
    id="rdma.port_active",
    title="An RDMA port is active",
    severity="blocker",
    expected="at least one port with state 4: ACTIVE",
    why="a cluster pod that starts without an active RDMA port stops itself before the workload",
    source=f"{_SYSFS}/state",
)
KIND = Check(
    id="fabric.kind",
    title="Kind of fabric that the platform will see",
    severity="info",
    expected="infiniband or roce",
    why="it decides by which rules the host is grouped and measured",
    source=f"{_SYSFS}/link_layer",
)
MIXED = Check(
    id="fabric.mixed",
    title="Ports of one kind",
    severity="degraded",
    expected="all active ports InfiniBand, or all Ethernet",
    why="one active InfiniBand port makes the host an InfiniBand host, and its RoCE side is never measured nor sold",
    source=f"{_SYSFS}/link_layer",
)
SINGLE_SEGMENT = Check(
    id="roce.single_segment",
    title="One address segment",
    severity="blocker",
    expected="the first IPv4 GIDs of all active RoCE ports in one /24",
    why="a host in no segment, or in two, is neither measured nor sold",
    source=f"{_SYSFS}/gids/0-3",
)
GID_WINDOW_CHECK = Check(
    id="roce.gid_window",
    title="The address is among the GID entries that the platform reads",
    severity="blocker",
    expected="the IPv4 GID at index 0 to 3",
    why="the platform reads four entries only, so the host has no address for it and is not sold",
    source=f"{_SYSFS}/gids, gid_attrs/types",
)
GID_UNIFORM = Check(
    id="roce.gid_index_uniform",
    title="All rails use one GID index",
    severity="blocker",
    expected="the RoCE v2 entry with the IPv4 address at the same index on every rail",
    why="with different indexes the pod names no rail, the measurement refuses to run, and the pair is never listed",
    source=f"{_SYSFS}/gids, gid_attrs/types",
)
UNIQUE = Check(
    id="roce.unique_address",
    title="Nobody else has the fabric address",
    severity="blocker",
    expected="each fabric address on one host and one port",
    why="the platform drops every host that claims an address that another one claims too",
    source="inventory, arping -D",
)
PREFIX = Check(
    id="roce.same_prefix_assumption",
    title="The real prefix is the /24 that the platform assumes",
    severity="degraded",
    expected="prefix length 24",
    why="the platform groups hosts by /24, so another prefix splits a fabric or joins two",
    source="ip -j addr show",
)
NO_SM = Check(
    id="ib.subnet_manager",
    title="A subnet manager runs the InfiniBand fabric",
    severity="blocker",
    expected="sm_lid other than 0 on every InfiniBand port that has a link",
    why="membership of an InfiniBand fabric is the subnet manager that both hosts report; without one there is none",
    source=f"{_SYSFS}/sm_lid",
)


def _port_text(port: Port) -> str:
    return f"{port.name} {port.state or 'state unreadable'} ({port.link_layer}, {port.phys_state})"


def port_active(host: Host) -> Record:
    if host.rdma.absence:
        return PORT_ACTIVE.must_fix(
            host.rdma.absence,
            "Fit an RDMA card, or load its driver (the role rdma does); where the card is there, see rdma.modules",
        )
    active = [port for port in host.rdma.ports if port.active]
    if active:
        return PORT_ACTIVE.ok(", ".join(f"{port.name} {port.link_layer} {port.rate}" for port in active))
    observed = "; ".join(_port_text(port) for port in host.rdma.ports)
    fixes = []
    if any("INIT" in port.state and not port.ethernet for port in host.rdma.ports):
        fixes.append("start a subnet manager (opensm, or the switch's)")
    if any(port.ethernet for port in host.rdma.ports):
        fixes.append("set the netdev up (`ip link set NETDEV up`; the role rdma does)")
    fixes.append("check cable and transceiver")
    return PORT_ACTIVE.must_fix(observed, "; ".join(fixes).capitalize())


def kind(host: Host) -> Record:
    view = host.view
    if view.kind == NONE:
        return KIND.skipped("no active RDMA port")
    if view.kind == INFINIBAND:
        names = ", ".join(port.name for port in view.infiniband_ports)
        return KIND.ok(f"this host will be seen as InfiniBand because {names} is active with that link layer")
    index = "unset" if view.nccl_ib_gid_index is None else view.nccl_ib_gid_index
    return KIND.ok(
        "this host will be seen as RoCE because all its active ports are Ethernet; in the pod "
        f"NCCL_IB_HCA={view.nccl_ib_hca or 'unset'} NCCL_IB_GID_INDEX={index};"
        f" measured rail {view.rails[0].name if view.rails else 'none'}"
    )


def mixed(host: Host) -> Record:
    view = host.view
    if view.kind == NONE:
        return MIXED.skipped("no active RDMA port")
    if view.infiniband_ports and view.roce_ports:
        stray = ", ".join(port.name for port in view.infiniband_ports)
        ethernet = ", ".join(item.port.name for item in view.roce_ports)
        return MIXED.warn(
            f"InfiniBand: {stray}; Ethernet: {ethernet}",
            f"Where RoCE is what you sell, take {stray} down; where it is InfiniBand, take the address off {ethernet}",
        )
    return MIXED.ok(view.kind)


def _not_roce(host: Host) -> str:
    return "" if host.view.kind == ROCE else f"no RoCE host (fabric kind {host.view.kind})"


def single_segment(host: Host) -> Record:
    if _not_roce(host):
        return SINGLE_SEGMENT.skipped(_not_roce(host))
    view = host.view
    if len(view.segments) == 1:
        return SINGLE_SEGMENT.ok(f"{view.segments[0]} ({', '.join(view.addresses)})")
    if len(view.segments) > 1:
        claims = ", ".join(f"{item.seen.ipv4} on {item.port.name}" for item in view.roce_ports if item.seen)
        return SINGLE_SEGMENT.must_fix(
            f"roce.two_segments: {', '.join(view.segments)} ({claims})",
            "Take RDMA off the card that is not of the fabric (`devlink dev param set pci/BDF name enable_rdma value"
            " false cmode driverinit && devlink dev reload pci/BDF`, never on the card of the Ansible connection), or"
            " give all rails addresses of one /24",
        )
    local = [gid for item in view.roce_ports for gid in item.port.gids if gid.ipv4 and gid.ipv4.is_link_local]
    ports = ", ".join(item.port.name for item in view.roce_ports)
    if local and not any(item.hidden for item in view.roce_ports):
        return SINGLE_SEGMENT.must_fix(
            f"roce.link_local_only: {', '.join(sorted({str(gid.ipv4) for gid in local}))} on {ports}",
            "Give the fabric netdev a static IPv4 address; 169.254.0.0/16 is ignored",
        )
    hidden = ", ".join(f"{item.port.name} at GID index {item.hidden.index}" for item in view.roce_ports if item.hidden)
    if hidden:
        return SINGLE_SEGMENT.must_fix(f"roce.no_address: hidden, {hidden}", "See roce.gid_window")
    return SINGLE_SEGMENT.must_fix(
        f"roce.no_address: no IPv4 GID on {ports}",
        "Give the fabric netdev a static IPv4 address, the same /24 on all hosts",
    )


def gid_window(host: Host) -> Record:
    if _not_roce(host):
        return GID_WINDOW_CHECK.skipped(_not_roce(host))
    hidden = [item for item in host.view.roce_ports if item.hidden]
    if hidden:
        netdev = next((item.hidden.netdev for item in hidden if item.hidden and item.hidden.netdev), "NETDEV")
        return GID_WINDOW_CHECK.must_fix(
            "; ".join(
                f"hidden: {item.port.name} has {item.hidden.ipv4} at GID index {item.hidden.index}"
                for item in hidden
                if item.hidden
            ),
            f"Set net.ipv6.conf.{netdev}.accept_ra=0 and autoconf=0, take global IPv6 addresses and VLANs off it, set"
            f" it down and up so that the IPv4 address comes first (entries 0 to {GID_WINDOW - 1})",
        )
    seen = [f"{item.port.name} index {item.seen.index}" for item in host.view.roce_ports if item.seen]
    return GID_WINDOW_CHECK.ok(", ".join(seen)) if seen else GID_WINDOW_CHECK.skipped("no port has an IPv4 GID")


def gid_index_uniform(host: Host) -> Record:
    if _not_roce(host):
        return GID_UNIFORM.skipped(_not_roce(host))
    rails = host.view.rails
    observed = ", ".join(f"{rail.name} index {rail.gid_index}" for rail in rails)
    if not rails:
        if not any(item.seen or item.hidden for item in host.view.roce_ports):
            return GID_UNIFORM.skipped("no port has an IPv4 GID")
        return GID_UNIFORM.must_fix(
            "no RoCE v2 entry with an IPv4 address",
            "Turn RoCE v2 on (`mstconfig` ROCE_VERSION, or the driver's default type); v1 entries name no rail",
        )
    if host.view.nccl_ib_gid_index is None:
        return GID_UNIFORM.must_fix(
            f"roce.gid_index_mixed: {observed}",
            "Make the GID tables of all rails alike: same IPv6 and VLAN set-up on each, then set the links down and up",
        )
    return GID_UNIFORM.ok(observed)


def unique_address(host: Host) -> Record:
    """What one host can know: its own ports, and whoever answers for its address. The report compares the hosts."""
    if _not_roce(host):
        return UNIQUE.skipped(_not_roce(host))
    if not host.view.addresses:
        return UNIQUE.skipped("no fabric address")
    claims: dict[str, list[str]] = {}
    for item in host.view.roce_ports:
        if item.seen:
            claims.setdefault(str(item.seen.ipv4), []).append(item.port.name)
    twice = {address: names for address, names in claims.items() if len(names) > 1}
    if twice:
        observed = "; ".join(
            f"roce.duplicate_address: {address} on {', '.join(names)}" for address, names in twice.items()
        )
        return UNIQUE.must_fix(observed, "Give every port an address of its own")
    addresses = ", ".join(host.view.addresses)
    rails = [(item.seen.netdev, str(item.seen.ipv4)) for item in host.view.roce_ports if item.seen and item.seen.netdev]
    if not rails or not _has_iputils_arping(host):
        return UNIQUE.ok(f"{addresses}; the link was not asked, which takes arping of iputils")
    # Each question takes two seconds, so all rails ask at once.
    with ThreadPoolExecutor(len(rails)) as pool:
        answers = list(pool.map(lambda rail: _who_answers(host, *rail), rails))
    own = _own_macs(host) if any(answer.macs for answer in answers) else set()
    foreign = [
        f"roce.duplicate_address: {answer.address} of {answer.netdev} is that of {mac} too"
        for answer in answers
        for mac in answer.macs
        if mac not in own
    ]
    if foreign:
        return UNIQUE.must_fix("; ".join(foreign), "Change one of the two addresses")
    failed = [answer.error for answer in answers if answer.error]
    if failed:
        return UNIQUE.unknown("; ".join(failed))
    own_rail = [answer.address for answer in answers if answer.macs]
    if own_rail:  # arping ends at the first answer, so another host's would not be heard
        return UNIQUE.ok(f"{addresses}; for {', '.join(own_rail)} answered a rail of this host: see net.arp_multirail")
    return UNIQUE.ok(addresses)


class _Answer(NamedTuple):
    """Who answers for an own address. ``error`` says why that could not be found out."""

    netdev: str
    address: str
    macs: list[str]
    error: str


def _has_iputils_arping(host: Host) -> bool:
    """Of two programs with this name only that of iputils can ask: the other takes ``-D`` for something else."""
    try:
        return "iputils" in host.probe.run("arping", "-V").stdout
    except ToolMissing:
        return False


def _who_answers(host: Host, netdev: str, address: str) -> _Answer:
    try:
        done = host.probe.run("arping", "-D", "-c", "2", "-w", "3", "-I", netdev, address, timeout=10)
    except ProbeError as exc:
        return _Answer(netdev, address, [], str(exc))
    macs = parse_arping(done.stdout)
    understood = done.rc == (1 if macs else 0)
    return _Answer(netdev, address, macs, "" if understood else f"{' '.join(done.argv)}: {done.first_error}")


def _own_macs(host: Host) -> set[str]:
    folder = "/sys/class/net"
    found = [host.probe.read_or_none(f"{folder}/{netdev}/address") for netdev in host.probe.entries(folder)]
    return {mac.lower() for mac in found if mac}


def same_prefix(host: Host) -> Record:
    if _not_roce(host):
        return PREFIX.skipped(_not_roce(host))
    lengths = fabric_prefixes(host)
    if not lengths:
        return PREFIX.skipped("no fabric address on a netdev of this host")
    observed = ", ".join(f"{address}/{length}" for address, length in sorted(lengths.items()))
    if any(length > 24 for length in lengths.values()):
        return PREFIX.warn(
            observed, "Use a /24 for the fabric: hosts that cannot reach each other count as one segment"
        )
    return PREFIX.ok(observed)


def fabric_prefixes(host: Host) -> dict[str, int]:
    """Fabric address -> real prefix length."""
    wanted = set(host.view.addresses)
    return {row.address: row.prefix_length for row in host.addresses if row.address in wanted}


def subnet_manager(host: Host) -> Record:
    ports = [port for port in host.rdma.ports if not port.ethernet and port.phys_state.endswith("LinkUp")]
    if not ports:
        return NO_SM.skipped("no InfiniBand port with a link")
    without = [
        port for port in ports if port.state.endswith("INIT") or parse_int("sm_lid", port.sm_lid or "0x0", 16) == 0
    ]
    if without:
        return NO_SM.must_fix(
            f"ib.no_sm: {', '.join(_port_text(port) for port in without)}",
            "Start opensm on one host, or turn the switch's subnet manager on",
        )
    return NO_SM.ok(", ".join(f"{port.name} sm_lid {port.sm_lid}" for port in ports))


def network_of(address: str, length: int) -> str:
    return str(ipaddress.IPv4Network(f"{address}/{length}", strict=False))


CHECKS = (
    BoundCheck(PORT_ACTIVE, port_active),
    BoundCheck(KIND, kind),
    BoundCheck(MIXED, mixed),
    BoundCheck(SINGLE_SEGMENT, single_segment),
    BoundCheck(GID_WINDOW_CHECK, gid_window),
    BoundCheck(GID_UNIFORM, gid_index_uniform),
    BoundCheck(UNIQUE, unique_address),
    BoundCheck(PREFIX, same_prefix),
    BoundCheck(NO_SM, subnet_manager),
)
