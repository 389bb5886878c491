# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the platform will make of a host's RDMA ports: its own rules P1 to P11 of host-contract 0.2, as a prediction.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable

from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import Gid, Port

#: The scrape reads GID entries 0 to 3 only.
GID_WINDOW = 4

INFINIBAND = "infiniband"
ROCE = "roce"
NONE = "none"


@dataclasses.dataclass(frozen=True)
class Rail:
    """A port as the pod names it for NCCL (P8)."""

    device: str
    port: int
    gid_index: int
    address: str

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"


@dataclasses.dataclass(frozen=True)
class PortView:
    """One active RoCE port: the address that the platform takes (P3), and one that it does not see."""

    port: Port
    seen: Gid | None
    hidden: Gid | None

    @property
    def segment(self) -> str | None:
        """P4: an assumed /24, whatever the real prefix is."""
        return segment_of(str(self.seen.ipv4)) if self.seen else None


@dataclasses.dataclass(frozen=True)
class PlatformView:
    """The prediction for one host. ``rails[0]`` is the one that is measured (P10)."""

    kind: str
    infiniband_ports: tuple[Port, ...]
    roce_ports: tuple[PortView, ...]
    rails: tuple[Rail, ...]

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(sorted({view.segment for view in self.roce_ports if view.segment}))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(str(view.seen.ipv4) for view in self.roce_ports if view.seen)

    @property
    def nccl_ib_hca(self) -> str:
        """Value of NCCL_IB_HCA; its leading ``=`` asks NCCL for exact names. Empty without a rail."""
        return "=" + ",".join(rail.name for rail in self.rails) if self.rails else ""

    @property
    def nccl_ib_gid_index(self) -> int | None:
        """Value of NCCL_IB_GID_INDEX, set only when all rails share it (P8); without it nothing is measured (P9)."""
        indexes = {rail.gid_index for rail in self.rails}
        return indexes.pop() if len(indexes) == 1 else None


def segment_of(address: str) -> str:
    """``10.20.30.11`` -> ``10.20.30.0/24`` (P4)."""
    return str(ipaddress.IPv4Network(f"{address}/24", strict=False))


def predict(ports: Iterable[Port]) -> PlatformView:
    """Applies the rules to all ports of a host."""
    active = [port for port in ports if port.active]
    infiniband = tuple(port for port in active if not port.ethernet)
    roce = tuple(_port_view(port) for port in active if port.ethernet)
    rails = []
    for view in roce:
        gid = view.port.rail_gid
        if gid is not None:
            rails.append(Rail(view.port.device, view.port.number, gid.index, str(gid.ipv4)))
    kind = INFINIBAND if infiniband else ROCE if roce else NONE
    return PlatformView(kind, infiniband, roce, tuple(sorted(rails, key=lambda rail: (rail.device, rail.port))))


def _port_view(port: Port) -> PortView:
    usable = [gid for gid in port.gids if gid.usable_ipv4 is not None]
    seen = next((gid for gid in usable if gid.index < GID_WINDOW), None)
    hidden = None if seen else next(iter(usable), None)
    return PortView(port, seen, hidden)
