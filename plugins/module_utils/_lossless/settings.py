# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of the lossless set-up of one netdev. Each source fills in what it can tell; the first that tells wins.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import Pause

PRIORITIES = range(8)
DSCPS = range(64)
#: A setting of the whole port, which holds for each priority.
ALL_PRIORITIES = frozenset(PRIORITIES)

#: Trust modes: which field of a packet chooses its priority.
DSCP = "dscp"
PCP = "pcp"

#: Who negotiates with the switch.
OS_CONTROLLED = "os"
FIRMWARE_CONTROLLED = "firmware"

#: The UDP port of RoCE v2, which DCBX peers announce a priority for.
ROCE_UDP_PORT = 4791


@dataclasses.dataclass(frozen=True)
class Peer:
    """What the switch port announces over LLDP. ``pfc`` is None when it announces no PFC at all."""

    system: str = ""
    port: str = ""
    pfc: frozenset[int] | None = None
    dscp_map: Mapping[int, int] = dataclasses.field(default_factory=dict)
    udp_map: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.system, self.port) if part) or "the switch"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Facts of one netdev (one leg of a rail). None means that nobody could tell; it is never the same as "off".

    ``dscp_map`` DSCP -> priority, ``tc_of`` priority -> traffic class, ``tsa`` and ``bandwidth`` (percent) by traffic
    class, ``buffer_of`` priority -> receive buffer, ``buffer_sizes`` bytes by buffer, ``cable_length`` metres.
    ``forced_class`` is the traffic class byte that the driver puts on every RDMA packet, 0 when it
    forces none; ``can_force`` says whether the driver has such a setting at all, ``firmware_class`` whether the card's
    firmware has taken it, and that of CNPs, for itself.
    ``ecn_np`` and ``ecn_rp`` hold the priorities whose notification and reaction point are on; ``ecn_firmware`` those
    that the firmware will have on after its next start, which is no proof for now.
    """

    pfc: frozenset[int] | None = None
    trust: str | None = None
    dscp_map: Mapping[int, int] | None = None
    tc_of: Mapping[int, int] | None = None
    tsa: Mapping[int, str] | None = None
    bandwidth: Mapping[int, int] | None = None
    buffer_of: Mapping[int, int] | None = None
    buffer_sizes: tuple[int, ...] | None = None
    cable_length: int | None = None
    forced_class: int | None = None
    can_force: bool | None = None
    firmware_class: bool | None = None
    ecn_np: frozenset[int] | None = None
    ecn_rp: frozenset[int] | None = None
    ecn_firmware: frozenset[int] | None = None
    cnp_dscp: int | None = None
    cnp_priority: int | None = None
    pause: Pause | None = None
    dcbx: str | None = None
    lldpad: bool | None = None
    lldpad_pfc: frozenset[int] | None = None
    peer: Peer | None = None


FIELDS = tuple(field.name for field in dataclasses.fields(Settings))


def told(settings: Settings) -> dict[str, object]:
    """The facts that a source could tell, by name."""
    return {name: value for name in FIELDS if (value := getattr(settings, name)) is not None}


def priority(tool: str, value: int | str) -> int:
    """A priority, 0 to 7. Whatever else stands there raises ParseError."""
    return _number(tool, value, PRIORITIES, "priority")


def dscp(tool: str, value: int | str) -> int:
    """A DSCP, 0 to 63."""
    return _number(tool, value, DSCPS, "DSCP")


def _number(tool: str, value: int | str, allowed: range, what: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()) or int(text) not in allowed:
        raise ParseError(tool, f"no {what}", text)
    return int(text)


def mapping(tool: str, pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Pairs as a mapping. A key with two values is an answer that says nothing."""
    found: dict[int, int] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ParseError(tool, f"{key} stands for both {found[key]} and {value}")
    return found
