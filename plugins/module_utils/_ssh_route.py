# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Over which card the Ansible connection comes in: its driver must never be reloaded under it (decision 9).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re

from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ip_route
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ProbeError

_MAX_DEPTH = 16


def connection_address(probe: HostProbe, pid: int) -> str | None:
    """This host's address in the SSH connection that process ``pid`` runs under; None when there is none.

    ``sudo`` takes SSH_CONNECTION out of the environment, so the parents are asked as well.
    """
    for _step in range(_MAX_DEPTH):
        if pid <= 1:
            return None
        environ = probe.read_bytes(f"/proc/{pid}/environ")
        for variable in environ.split(b"\0"):
            if variable.startswith(b"SSH_CONNECTION="):
                words = variable.split(b"=", 1)[1].decode("ascii", "replace").split()
                return words[2] if len(words) == 4 else None
        match = re.search(r"^PPid:\s*(\d{1,10})$", probe.read(f"/proc/{pid}/status"), re.MULTILINE)
        if match is None:
            return None
        pid = int(match.group(1))
    return None


def netdevs_below(probe: HostProbe, netdev: str) -> list[str]:
    """The netdev itself and those that it stands on: a VLAN's parent, the legs of a bond, the ports of a bridge."""
    found, queue = [], [netdev]
    while queue:
        name = queue.pop(0)
        if name in found:
            continue
        found.append(name)
        entries = probe.entries_or_none(f"/sys/class/net/{name}") or []
        queue += [entry[len("lower_") :] for entry in entries if entry.startswith("lower_")]
    return found


def route_netdevs(host: Host, address: str | None) -> set[str]:
    """Netdevs that carry the address or the default route, which the way to the host may depend on, with all below."""
    netdevs = {row.netdev for row in host.addresses if row.address == address}
    routes = parse_ip_route(host.probe.output("ip", "-j", "route", "show"))
    netdevs |= {route.netdev for route in routes if route.destination == "default"}
    return {lower for netdev in netdevs for lower in netdevs_below(host.probe, netdev)}


def route_drivers(host: Host, address: str | None) -> set[str]:
    """Drivers of these netdevs."""
    drivers = {
        host.probe.link_target(f"/sys/class/net/{netdev}/device/driver") for netdev in route_netdevs(host, address)
    }
    return {driver for driver in drivers if driver}


def netdev_refusal(host: Host, netdev: str, pid: int) -> str:
    """Why the link of ``netdev`` must not be made to bounce; empty when it may. What cannot be read refuses."""
    try:
        if netdev in route_netdevs(host, connection_address(host.probe, pid)):
            return f"{netdev} carries the Ansible connection or the default route of this host"
    except (ProbeError, ParseError) as exc:
        return f"cannot tell which netdev carries the Ansible connection: {exc}"
    return ""


def reload_refusal(host: Host, driver: str, pid: int) -> str:
    """Why ``driver`` must not be reloaded now; empty when it may. What cannot be read refuses."""
    busy = host.occupancy.busy_for_drivers
    if busy:
        return busy
    try:
        if driver in route_drivers(host, connection_address(host.probe, pid)):
            return f"{driver} carries the Ansible connection or the default route of this host"
    except (ProbeError, ParseError) as exc:
        return f"cannot tell which card carries the Ansible connection: {exc}"
    return ""
