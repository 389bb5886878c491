# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""RDMA devices, ports and GIDs as the kernel shows them below /sys (host-contract 3.1).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import re

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, Missing, Unreadable

CLASS = "/sys/class/infiniband"
ROCE_V2 = "RoCE v2"

_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")


@dataclasses.dataclass(frozen=True)
class Gid:
    """One filled entry of a port's GID table. ``type`` is ``RoCE v2``, ``IB/RoCE v1`` or None when it has none."""

    index: int
    value: str
    type: str | None
    netdev: str | None

    @property
    def ipv4(self) -> ipaddress.IPv4Address | None:
        """The address of an IPv4-mapped GID: ``…:ffff:0a14:1e0b`` is 10.20.30.11."""
        return ipaddress.IPv6Address(self.value).ipv4_mapped

    @property
    def usable_ipv4(self) -> ipaddress.IPv4Address | None:
        """The mapped address, unless it is link-local, loopback or unspecified: the platform ignores those (P3, P8)."""
        address = self.ipv4
        if address is None or address.is_link_local or address.is_loopback or address.is_unspecified:
            return None
        return address


@dataclasses.dataclass(frozen=True)
class Port:
    """One port of an RDMA device, with the texts of the kernel: state ``4: ACTIVE``, rate ``400 Gb/sec (4X NDR)``."""

    device: str
    number: int
    state: str
    phys_state: str
    link_layer: str
    rate: str
    lid: str
    sm_lid: str
    pkey: str
    gids: tuple[Gid, ...]

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"

    @property
    def active(self) -> bool:
        """P1: the text behind the colon equals ACTIVE, so ACTIVE_DEFER does not count."""
        return self.state.partition(":")[2].strip() == "ACTIVE"

    @property
    def ethernet(self) -> bool:
        """P2: anything else that is active makes the host an InfiniBand host."""
        return self.link_layer.lower() == "ethernet"

    @property
    def rail_gid(self) -> Gid | None:
        """The GID that the pod uses: the first RoCE v2 entry with a usable IPv4 address (host-contract 3.2)."""
        return next((gid for gid in self.gids if gid.type == ROCE_V2 and gid.usable_ipv4 is not None), None)


@dataclasses.dataclass(frozen=True)
class Device:
    """One RDMA device. ``pci`` and ``driver`` are None for a soft device (rxe, siw)."""

    name: str
    node_guid: str
    firmware: str
    driver: str | None
    pci: str | None
    numa_node: int | None
    virtual_function: bool
    netdevs: tuple[str, ...]
    ports: tuple[Port, ...]


@dataclasses.dataclass(frozen=True)
class Tree:
    """All RDMA devices, sorted by name. ``absence`` keeps the three kinds of "nothing" apart, as the platform does."""

    devices: tuple[Device, ...]
    absence: str

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for device in self.devices for port in device.ports)

    def device(self, name: str) -> Device:
        return next(device for device in self.devices if device.name == name)


def read_tree(probe: HostProbe) -> Tree:
    """Reads the whole tree. Raises ProbeError where it cannot be read, ParseError where it is not understood."""
    names = probe.entries_or_none(CLASS)
    if names is None:
        return Tree((), f"{CLASS} does not exist")
    devices = tuple(_read_device(probe, name) for name in names)
    if not devices:
        return Tree((), f"{CLASS} lists no devices")
    if not any(device.ports for device in devices):
        return Tree(devices, f"{len(devices)} device(s) present, none exposing a port")
    return Tree(devices, "")


def _attribute(probe: HostProbe, path: str) -> str | None:
    """A file of the kernel that may be missing; reading an empty slot fails with EINVAL, which is no error."""
    try:
        return probe.read(path)
    except Missing:
        return None
    except Unreadable as exc:
        if exc.errno == errno.EINVAL:
            return None
        raise


def _numbers(probe: HostProbe, folder: str) -> list[int]:
    return sorted(int(name) for name in probe.entries_or_none(folder) or [] if name.isdecimal())


def _read_device(probe: HostProbe, name: str) -> Device:
    folder = f"{CLASS}/{name}"
    ports = tuple(_read_port(probe, name, number) for number in _numbers(probe, f"{folder}/ports"))
    netdevs = set(probe.entries_or_none(f"{folder}/device/net") or [])
    netdevs.update(gid.netdev for port in ports for gid in port.gids if gid.netdev)
    parent = _attribute(probe, f"{folder}/parent")  # rxe and siw have no device, they name the netdev here
    if parent:
        netdevs.add(parent)
    numa = _attribute(probe, f"{folder}/device/numa_node")
    return Device(
        name=name,
        node_guid=_attribute(probe, f"{folder}/node_guid") or "",
        firmware=_attribute(probe, f"{folder}/fw_ver") or "",
        driver=probe.link_target(f"{folder}/device/driver"),
        pci=probe.link_target(f"{folder}/device"),
        numa_node=int(numa) if numa and re.fullmatch(r"-?\d{1,6}", numa) else None,
        virtual_function=probe.exists(f"{folder}/device/physfn"),
        netdevs=tuple(sorted(netdevs)),
        ports=ports,
    )


def _read_port(probe: HostProbe, device: str, number: int) -> Port:
    folder = f"{CLASS}/{device}/ports/{number}"
    text = {
        key: _attribute(probe, f"{folder}/{key}") or ""
        for key in ("state", "phys_state", "link_layer", "rate", "lid", "sm_lid", "pkeys/0")
    }
    gids = []
    for index in _numbers(probe, f"{folder}/gids"):
        value = (_attribute(probe, f"{folder}/gids/{index}") or _EMPTY_GID).lower()
        if value == _EMPTY_GID:
            continue
        if not _GID.fullmatch(value):
            raise ParseError(f"{folder}/gids/{index}", "not a GID", value)
        kind = _attribute(probe, f"{folder}/gid_attrs/types/{index}")
        netdev = _attribute(probe, f"{folder}/gid_attrs/ndevs/{index}")
        gids.append(Gid(index, value, kind, netdev))
    return Port(
        device=device,
        number=number,
        state=text["state"],
        phys_state=text["phys_state"],
        link_layer=text["link_layer"],
        rate=text["rate"],
        lid=text["lid"],
        sm_lid=text["sm_lid"],
        pkey=text["pkeys/0"],
        gids=tuple(gids),
    )
