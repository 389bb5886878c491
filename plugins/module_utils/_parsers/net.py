# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses, routes and pause frames of netdevs, and who answers for an address (host-contract 1.C and 1.D).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed


@dataclasses.dataclass(frozen=True)
class Address:
    """One address of a netdev; ``scope`` is ``global``, ``link`` or ``host``."""

    netdev: str
    address: str
    prefix_length: int
    scope: str


def parse_ip_address(text: str, tool: str = "ip -j addr show") -> list[Address]:
    """IPv4 and IPv6 addresses from ``ip -j addr show``."""
    rows = load_json(tool, text)
    if not isinstance(rows, list):
        raise ParseError(tool, "not a list", text)
    found = []
    for row in rows:
        entries = row.get("addr_info", []) if isinstance(row, dict) else None
        if not isinstance(entries, list):
            raise ParseError(tool, "not a netdev", str(row))
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("prefixlen"), int) or "local" not in entry:
                raise ParseError(tool, "not an address", str(entry))
            found.append(
                Address(
                    str(row.get("ifname", "")), str(entry["local"]), entry["prefixlen"], str(entry.get("scope", ""))
                )
            )
    return found


@dataclasses.dataclass(frozen=True)
class Route:
    """One route; ``destination`` is a network, an address or ``default``."""

    destination: str
    netdev: str


def parse_ip_route(text: str, tool: str = "ip -j route show") -> list[Route]:
    """IPv4 routes from ``ip -j route show``."""
    rows = load_json(tool, text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError(tool, "not a list of routes", text)
    return [Route(str(row.get("dst", "")), str(row.get("dev", ""))) for row in rows]


def parse_arping(text: str) -> list[str]:
    """MAC addresses, in small letters, that answered ``arping`` of iputils (host-contract roce.unique_address)."""
    found = re.findall(r"reply from \S+ \[([0-9A-Fa-f:]+)\]", text)
    return list(dict.fromkeys(mac.lower() for mac in found))


@dataclasses.dataclass(frozen=True)
class Pause:
    """Link-level pause frames as configured. ``supported`` is False for a driver without them.

    What was negotiated with the link partner is None where the tool does not show it.
    """

    supported: bool
    rx: bool
    tx: bool
    autoneg: bool | None = None
    rx_negotiated: bool | None = None
    tx_negotiated: bool | None = None


def parse_ethtool_pause(done: Completed) -> Pause:
    """``ethtool -a``; it prints its head line even where the driver then answers "not supported"."""
    if done.rc != 0:
        if "Operation not supported" in done.stderr + done.stdout:
            return Pause(False, False, False)
        raise ParseError("ethtool -a", "failed", done.first_error)
    values = {}
    for line in done.stdout.splitlines():
        key, found, value = line.partition(":")
        if found and value.strip() in ("on", "off"):
            values[key.strip()] = value.strip() == "on"
    if "RX" not in values or "TX" not in values:
        raise ParseError("ethtool -a", "RX and TX are not both shown", done.stdout)
    return Pause(
        True,
        values["RX"],
        values["TX"],
        autoneg=values.get("Autonegotiate"),
        rx_negotiated=values.get("RX negotiated"),
        tx_negotiated=values.get("TX negotiated"),
    )
