# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section F of the host contract: whether cluster pods can build their overlay on this host. Reads only.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check, Section, evaluate, skip_all
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._facts import Reader, host_facts
from ansible_collections.lium.cluster.plugins.module_utils._firewall import allow_rules, blocked, forward_state
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._kmod import explain_modprobe
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.conntrack import Flow, parse_conntrack
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ip_route
from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import parse_dump
from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    CommandError,
    HostProbe,
    ProbeError,
    ToolMissing,
)
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._sockets import UNSEEN, port_holders
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.holder import FOLDER as PROBE_FOLDER
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.holder import leftover, parse_start_time
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.mesh import interface_problems
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import CONTAINER, RECEIVER
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.renting import RANGE, probe_port, range_record

OVERLAY = ipaddress.IPv4Network("10.42.0.0/24")
OVERLAY_PORT = 51820
#: Bytes that WireGuard adds over IPv4 and over IPv6 (host-contract 2.7).
OVERHEAD_V4, OVERHEAD_V6 = 60, 80
#: The bridge that the platform makes for rentals; Docker's own where there is none yet.
BRIDGES = ("lium-rentals", "docker0")

MODULE = Check(
    id="wg.module",
    title="WireGuard in the kernel",
    severity="blocker",
    expected="module wireguard loaded, or built in",
    why="the pod brings no WireGuard of its own, so without the host's it cannot raise wg0 and exits",
    source="/sys/module/wireguard, modinfo wireguard",
)
PORT_FREE = Check(
    id="wg.port_free",
    title="UDP port of the overlay is free",
    severity="blocker",
    expected="nothing listens on it, or a cluster pod does",
    why="Docker cannot publish the port a second time, and the pod is not created",
    source="/proc/net/udp, docker ps",
)
SUBNET = Check(
    id="wg.subnet_conflict",
    title="Nothing else uses the overlay's network",
    severity="blocker",
    expected=f"no route and no Docker network overlaps {OVERLAY}",
    why="a pod's packets to its peers would go to that network instead",
    source="ip -j route show, docker network inspect",
)
FORWARD = Check(
    id="wg.fw_forward",
    title="The firewall lets the published UDP port through",
    severity="blocker",
    expected="no rule or policy on the FORWARD path that stops it",
    why="a provider whose port is closed does not appear in the Clusters tab",
    source="nft -j list ruleset, iptables -S, ufw, firewall-cmd",
)
CONNTRACK = Check(
    id="wg.conntrack",
    title="No stale connection tracking for the overlay's port",
    severity="degraded",
    expected="no entry that bypasses Docker's DNAT; UDP stream timeout of 60 s or more",
    why="after a pod's restart one direction would never shake hands until its peer falls silent for two minutes",
    source="/proc/net/nf_conntrack, nf_conntrack_udp_timeout_stream",
)
PATH_MTU = Check(
    id="wg.mtu",
    title="Room for WireGuard's packets",
    severity="degraded",
    expected="the bridge's MTU not above that of the netdev below it",
    why="handshakes and pings pass but long transfers hang",
    source="/sys/class/net/*/mtu",
)

MESH = Check(
    id="wg.mesh",
    title="The provider's own mesh",
    severity="degraded",
    expected="the interface up with its key, a fresh handshake with every peer, an MTU that fits the path",
    why="what the provider runs over its mesh does not reach every host",
    source="wg show, /sys/class/net/*/mtu",
)


@dataclasses.dataclass(frozen=True)
class OverlayHost:
    """A host, and the host ports that overlays may be given. ``renting_range`` is what was given for the executor's."""

    host: Host
    ports: tuple[int, ...] = (OVERLAY_PORT,)
    mesh_interface: str | None = None
    renting_range: str = ""


def module(subject: OverlayHost) -> Record:
    probe = subject.host.probe
    if probe.exists("/sys/module/wireguard"):
        return MODULE.ok("loaded")
    try:
        path = probe.output("modinfo", "-F", "filename", "wireguard").strip()
    except ToolMissing:
        raise
    except CommandError:
        text = f"modprobe: FATAL: Module wireguard not found in directory /lib/modules/{subject.host.kernel}"
        return MODULE.must_fix("not there", explain_modprobe("wireguard", text).rsplit(" (", 1)[0])
    if path == "(builtin)":
        return MODULE.ok("built in")
    return MODULE.must_fix(
        f"not loaded ({path})",
        "Run `modprobe wireguard` and list it in /etc/modules-load.d (the role wireguard does both): a container's"
        " network namespace cannot be relied on to load it",
    )


def port_free(subject: OverlayHost) -> Record:
    wrong = [port for port in subject.ports if not 0 < port < 65536]
    if wrong or not subject.ports:
        return PORT_FREE.must_fix(
            f"lium_overlay_udp_ports: {', '.join(map(str, wrong)) or 'no port'}", "Set it to ports from 1 to 65535"
        )
    probe, held, own, pods = subject.host.probe, [], [], []
    for port in subject.ports:
        names = _publishers(probe, port)
        pods += [name for name in names if name.startswith("pod_")]
        if names:
            own += [port for name in names if name == CONTAINER]
            held += [f"UDP {port}: container {name}" for name in names if not name.startswith(("pod_", CONTAINER))]
            continue
        for holder in port_holders(probe, "udp", port):
            name = holder or _kernel_holder(subject.host, port)
            if f" {RECEIVER}" in name:
                own.append(port)
            else:
                held.append(f"UDP {port}: {name}")
    if own and not held:
        return _own_probe(probe, own)
    if held:
        return PORT_FREE.must_fix(
            "; ".join(held),
            "Stop what holds the port or give it another one; it is never ended by this collection",
        )
    numbers = ", ".join(map(str, subject.ports))
    return PORT_FREE.ok(f"cluster pod running ({', '.join(pods)})" if pods else f"UDP {numbers} free")


def _publishers(probe: HostProbe, port: int) -> list[str]:
    try:
        return probe.output("docker", "ps", "--filter", f"publish={port}/udp", "--format", "{{.Names}}").split()
    except ToolMissing:
        return []


def udp_range(subject: OverlayHost) -> Record:
    return range_record(subject.host, subject.renting_range, subject.ports, lambda port: _is_free(subject.host, port))


def _is_free(host: Host, port: int) -> bool:
    return not (_publishers(host.probe, port) or port_holders(host.probe, "udp", port))


def _own_probe(probe: HostProbe, ports: Sequence[int]) -> Record:
    """The port is held by this collection's own test, which no pod can share it with either."""
    text = probe.read_or_none(f"{PROBE_FOLDER}/state.json")
    state = load_json(f"{PROBE_FOLDER}/state.json", text) if text else None
    found = leftover(state, lambda pid: parse_start_time(probe.read_or_none(f"/proc/{pid}/stat") or ""))
    observed = f"UDP {', '.join(map(str, ports))}: {found.what}"
    return PORT_FREE.must_fix(observed, found.fix) if found.alive else PORT_FREE.warn(observed, found.fix)


def _kernel_holder(host: Host, port: int) -> str:
    """A socket without a process belongs to the kernel: a WireGuard interface of the host, most of the time."""
    if not host.probe.exists("/sys/module/wireguard"):  # asking `wg` would load it
        return UNSEEN
    try:
        interfaces = parse_dump(host.probe.output("wg", "show", "all", "dump"))
    except CommandError:
        return f"{UNSEEN} (a WireGuard interface of this host?)"
    names = [interface.name for interface in interfaces if interface.listen_port == port]
    return f"WireGuard interface {', '.join(names)} of this host" if names else UNSEEN


def subnet_conflict(subject: OverlayHost) -> Record:
    probe = subject.host.probe
    routes = parse_ip_route(probe.output("ip", "-j", "route", "show"))
    clashes = [f"route {row.destination} on {row.netdev}" for row in routes if _overlaps(row.destination)]
    try:
        names = probe.output("docker", "network", "ls", "--format", "{{.Name}}").split()
    except ToolMissing:
        names = []
    if names:
        form = "{{.Name}} {{range .IPAM.Config}}{{.Subnet}} {{end}}"
        for line in probe.output("docker", "network", "inspect", "--format", form, *names).splitlines():
            name, *subnets = line.split() or [""]
            clashes += [f"Docker network {name} {subnet}" for subnet in subnets if _overlaps(subnet)]
    if clashes:
        return SUBNET.must_fix("; ".join(clashes), f"Give that network addresses outside {OVERLAY}, or take it away")
    return SUBNET.ok(f"{len(routes)} routes, {len(names)} Docker networks")


def _overlaps(destination: str) -> bool:
    try:
        network = ipaddress.ip_network(destination, strict=False)
    except ValueError:
        return False  # "default", or the name of a table
    return network.version == 4 and network.overlaps(OVERLAY) and network.prefixlen > 0


def forward_path(subject: OverlayHost) -> Record:
    tools, blocks = forward_state(subject.host, subject.ports)
    if blocks:
        return blocked(FORWARD, blocks, tools)
    note = ", ".join(tools) or "no packet filter in the kernel"
    return FORWARD.ok(f"nothing in the way ({note}); what an edge or a switch does is seen by verify_wireguard only")


def conntrack(subject: OverlayHost) -> Record:
    probe = subject.host.probe
    timeout = probe.read_or_none("/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream")
    if timeout is None:
        return CONNTRACK.skipped("no connection tracking in the kernel")
    if parse_int("nf_conntrack_udp_timeout_stream", timeout) < 60:
        return CONNTRACK.warn(
            f"nf_conntrack_udp_timeout_stream = {timeout}",
            "Set net.netfilter.nf_conntrack_udp_timeout_stream to 120, which is the kernel's default",
        )
    flows = _flows(subject.host)
    if flows is None:
        return CONNTRACK.skipped("this kernel shows its tracked flows to the program conntrack only")
    # What comes to this host must be answered by the container that has the port now: a reply of the host itself, or of
    # a container that is gone, goes past Docker's DNAT.
    own = {row.address for row in subject.host.addresses}
    stale = []
    for port in subject.ports:
        incoming = [row for row in flows if (row.protocol, row.destination_port) == ("udp", port)]
        incoming = [row for row in incoming if row.destination in own]
        now = _container_addresses(probe, port) if incoming else set()
        stale += [
            f"UDP {port} from {row.source}, answered by {row.reply_source}"
            for row in incoming
            if row.reply_source not in now
        ]
    if stale and subject.host.occupancy.rentals:
        return CONNTRACK.warn(
            "; ".join(stale),
            "; ".join(f"Run `conntrack -D -p udp --orig-port-dst {port}`" for port in subject.ports)
            + " (package conntrack, or conntrack-tools)",
        )
    return CONNTRACK.ok(f"{len(stale)} old entries and no pod that they could harm" if stale else "no stale entry")


def _container_addresses(probe: HostProbe, port: int) -> set[str]:
    """IPv4 addresses of the containers that have published the port now."""
    names = _publishers(probe, port)
    if not names:
        return set()
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    return set(probe.output("docker", "inspect", "--format", form, *names).split())


def _flows(host: Host) -> list[Flow] | None:
    text = host.probe.read_or_none("/proc/net/nf_conntrack")
    if text is None and host.probe.exists("/sys/module/nf_conntrack_netlink"):  # asking would load it otherwise
        try:
            text = host.probe.output("conntrack", "-L", "-p", "udp")
        except ToolMissing:
            return None
    return None if text is None else parse_conntrack(text)


def path_mtu(subject: OverlayHost) -> Record:
    host = subject.host
    routes = parse_ip_route(host.probe.output("ip", "-j", "route", "show"))
    below = sorted({route.netdev for route in routes if route.destination == "default"} | set(host.fabric_netdevs))
    bridges = [name for name in BRIDGES if host.probe.exists(f"/sys/class/net/{name}")][:1]
    if not below:
        return PATH_MTU.skipped("neither a fabric netdev nor a default route")
    outer = {name: host.netdev_mtu(name) for name in below}
    observed = ", ".join(f"{name} {mtu}" for name, mtu in outer.items())
    bridge_mtu = host.netdev_mtu(bridges[0]) if bridges else 1500
    narrow = {name: mtu for name, mtu in outer.items() if mtu < bridge_mtu}
    if narrow:
        smallest = min(narrow.values())
        return PATH_MTU.warn(
            f"{bridges[0] if bridges else 'Docker bridge'} {bridge_mtu} over {observed}",
            f'Lower the bridge\'s MTU to {smallest} (daemon.json "mtu" for docker0, the option'
            f" com.docker.network.driver.mtu for others); wg0 then takes {largest_inner_mtu(smallest)}",
        )
    return PATH_MTU.ok(f"{observed}; wg0 takes {largest_inner_mtu(bridge_mtu)}")


def mesh_up(subject: OverlayHost) -> Record:
    name, probe = str(subject.mesh_interface), subject.host.probe
    live = None
    if probe.exists(f"/sys/class/net/{name}"):
        live = parse_dump(probe.output("wg", "show", name, "dump"), name)[0]
    problems = interface_problems(live, name, datetime.datetime.now(datetime.timezone.utc))
    if live is not None:
        inner = subject.host.netdev_mtu(name)
        routes = parse_ip_route(probe.output("ip", "-j", "route", "show"))
        outer = [subject.host.netdev_mtu(route.netdev) for route in routes if route.destination == "default"]
        problems += [
            f"MTU {inner} does not fit into {mtu}: at most {largest_inner_mtu(mtu)}"
            for mtu in outer
            if not fits(inner, mtu)
        ]
    if problems:
        return MESH.must_fix(
            "; ".join(problems),
            f"See `wg show {name}` at both ends; open the mesh's UDP port between the hosts, and lower"
            " wireguard_mesh_mtu where it does not fit",
        )
    return MESH.ok(f"{name}: {len(live.peers) if live else 0} peers")


def largest_inner_mtu(outer: int, ipv4_only: bool = False) -> int:
    """The MTU that a WireGuard interface may have over a path of ``outer`` bytes (host-contract 2.7)."""
    return outer - (OVERHEAD_V4 if ipv4_only else OVERHEAD_V6)


def fits(inner: int, outer: int, ipv4_only: bool = False) -> bool:
    """Whether a full packet of the overlay fits into one of the path. A small ping would never tell."""
    return inner <= largest_inner_mtu(outer, ipv4_only)


def look_at_wireguard(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Records of section F that one host can answer, and the facts that the role needs."""
    name = options.get("mesh_interface")
    section = Section("wireguard", (*CHECKS, BoundCheck(MESH, mesh_up)) if name else CHECKS)
    confidential = confidential_vm_host(probe)
    if confidential:
        return Look(skip_all((section,), confidential), {"kept_out": confidential})
    subject = OverlayHost(Host(probe), tuple(options["ports"]), name, options.get("range") or "")
    readers: dict[str, Reader] = {
        "wireguard": lambda _host: _setup(subject, options),
        "wireguard_range_port": lambda host: probe_port(
            host, subject.renting_range, subject.ports, lambda port: _is_free(host, port)
        ),
    }
    facts = host_facts(subject.host, readers)
    return Look(evaluate((section,), subject), facts)


def _setup(subject: OverlayHost, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the role has to know before it changes anything."""
    host = subject.host
    try:
        rules = allow_rules(host, subject.ports)
    except (ProbeError, ParseError):
        rules = []  # wg.fw_forward says that it could not be read
    return {
        "family": "debian" if host.debian_like else "redhat",
        "packages_installed": host.installed_packages(options.get("packages") or ()),
        "firewall_rules": rules,
    }


CHECKS = (
    BoundCheck(MODULE, module),
    BoundCheck(PORT_FREE, port_free),
    BoundCheck(RANGE, udp_range),
    BoundCheck(SUBNET, subnet_conflict),
    BoundCheck(FORWARD, forward_path),
    BoundCheck(CONNTRACK, conntrack),
    BoundCheck(PATH_MTU, path_mtu),
)
