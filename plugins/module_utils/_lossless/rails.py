# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which netdevs the lossless check looks at: the physical legs below each RoCE rail of a host.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import CLASS, Port
from ansible_collections.lium.cluster.plugins.module_utils._ssh_route import netdevs_below

MLX5, BNXT, ICE = "mlx5_core", "bnxt_en", "ice"

#: ``node_type`` of an iWARP card, which has no RoCE and is no fabric.
_IWARP = "4: RNIC"


@dataclasses.dataclass(frozen=True)
class Leg:
    """One physical netdev below a rail; a bond has several, a VLAN has its parent. Queues belong to the leg.

    ``driver`` and ``pci`` are None where nobody shows them; ``soft`` is a device of software. ``vlan_priorities`` holds
    the priorities that a VLAN netdev on top gives its packets (egress-qos-map); it is empty without a VLAN.
    """

    device: str
    port: int
    netdev: str
    driver: str | None
    pci: str | None
    soft: bool = False
    vlan_priorities: frozenset[int] = frozenset()

    @property
    def rail(self) -> str:
        return f"{self.device}:{self.port}"

    @property
    def name(self) -> str:
        return f"{self.rail} ({self.netdev})"


@dataclasses.dataclass(frozen=True)
class Rails:
    """The legs to look at, and ports that are none of this check's business, each with the reason."""

    legs: tuple[Leg, ...]
    not_applicable: tuple[str, ...]


def find_rails(host: Host) -> Rails:
    """Ports of Ethernet that are active, or whose state nobody shows. Those with an address go before those without.

    InfiniBand has flow control of its own: none of this applies to such a port. Raises ProbeError where the tree cannot
    be read.
    """
    ports, others = [], []
    for port in host.rdma.ports:
        if port.link_layer and not port.ethernet:
            others.append(f"{port.name}: not applicable, {port.link_layer} has flow control of its own")
        elif host.probe.read_or_none(f"{CLASS}/{port.device}/node_type") == _IWARP:
            others.append(f"{port.name}: not applicable, iWARP runs over TCP")
        elif port.ethernet and (port.active or not port.state):
            ports.append(port)
    ports = [port for port in ports if port.rail_gid is not None] or ports
    return Rails(tuple(leg for port in ports for leg in _legs(host, port)), tuple(others))


def _legs(host: Host, port: Port) -> list[Leg]:
    device = host.rdma.device(port.device)
    gid = port.rail_gid
    netdev = gid.netdev if gid is not None and gid.netdev else next(iter(device.netdevs), "")
    below = netdevs_below(host.probe, netdev) if netdev else [""]
    physical = [name for name in below if not _lower(host.probe, name)]
    pcp = _egress_priorities(host.probe, netdev) if len(below) > 1 else frozenset()
    # rxe and siw stand on a netdev and name it here; nothing else has this file.
    soft = host.probe.exists(f"{CLASS}/{port.device}/parent")
    return [Leg(port.device, port.number, name, device.driver, device.pci, soft, pcp) for name in physical]


def _lower(probe: HostProbe, netdev: str) -> bool:
    entries = probe.entries_or_none(f"/sys/class/net/{netdev}") if netdev else None
    return any(entry.startswith("lower_") for entry in entries or [])


def _egress_priorities(probe: HostProbe, netdev: str) -> frozenset[int]:
    """Priorities in the tags that a VLAN netdev writes, from ``EGRESS priority mappings: 0:3 4:3``."""
    try:
        text = probe.read_or_none(f"/proc/net/vlan/{netdev}") or ""
    except ProbeError:
        return frozenset()
    line = next((line for line in text.splitlines() if "EGRESS priority mappings:" in line), "")
    values = [word.partition(":")[2] for word in line.partition("mappings:")[2].split()]
    return frozenset(int(value) for value in values if value.isdecimal())
