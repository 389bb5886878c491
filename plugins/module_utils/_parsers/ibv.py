# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``ibv_devinfo`` of rdma-core (host-contract 3.1), and why it may show nothing though the card is there.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int

TOOL = "ibv_devinfo"

_ABI = re.compile(
    r"Driver (?P<driver>\S+) does not support the kernel ABI of (?P<needs>\d+) \(supports \d+ to (?P<has>\d+)\)"
)
_NO_PROVIDER = ("no userspace device-specific driver found", "couldn't open config directory", "couldn't load driver")


@dataclasses.dataclass(frozen=True)
class VerbsPort:
    """What a port says to verbs. MTU in bytes; state as printed, for example ``PORT_ACTIVE (4)``."""

    device: str
    number: int
    state: str
    link_layer: str
    active_mtu: int | None


@dataclasses.dataclass(frozen=True)
class Verbs:
    """The answer of user space. ``problem`` says why devices of the kernel may be missing in it, else it is empty."""

    devices: tuple[str, ...]
    ports: tuple[VerbsPort, ...]
    problem: str


def parse_ibv_devinfo(stdout: str, stderr: str = "") -> Verbs:
    """Parses ``ibv_devinfo [-v]``; warnings of the library may stand in either stream and are never devices."""
    devices: list[str] = []
    ports: list[dict[str, str]] = []
    for line in stdout.splitlines():
        key, found, value = line.strip().partition(":")
        value = value.strip()
        if line.startswith("hca_id:"):
            if not value:
                raise ParseError(TOOL, "a device without a name", line)
            devices.append(value)
        elif key == "port" and found:
            if not devices:
                raise ParseError(TOOL, "a port before any device", line)
            ports.append({"device": devices[-1], "port": value})
        elif found and ports and ports[-1]["device"] == devices[-1] and key in ("state", "link_layer", "active_mtu"):
            ports[-1].setdefault(key, value)
    return Verbs(tuple(devices), tuple(_port(fields) for fields in ports), verbs_problem(stdout + "\n" + stderr))


def _port(fields: dict[str, str]) -> VerbsPort:
    mtu = fields.get("active_mtu", "")
    return VerbsPort(
        device=fields["device"],
        number=parse_int(TOOL, fields["port"]),
        state=fields.get("state", ""),
        link_layer=fields.get("link_layer", ""),
        active_mtu=parse_int(TOOL, mtu.split()[0]) if mtu and mtu.split()[0].isdecimal() else None,
    )


def verbs_problem(text: str) -> str:
    """Why verbs sees less than the kernel: the library's age, a missing package, or missing rights; empty if none."""
    match = _ABI.search(text)
    if match:
        return (
            f"provider library too old for this kernel (needs {match['needs']}, has {match['has']}; {match['driver']})"
        )
    if any(mark in text for mark in _NO_PROVIDER):
        return "provider package missing"
    if "Failed to open device" in text:
        return "no permission to open the device"
    return ""
