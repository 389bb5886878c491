# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``wg show … dump``, the machine form of WireGuard's state (host-contract 2.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int

#: A handshake older than this, with keepalive on, is broken now (host-contract 2.6).
FRESH_SECONDS = 180


@dataclasses.dataclass(frozen=True)
class Peer:
    """One peer. ``latest_handshake`` is None when there never was one; ``allowed_ips`` is empty when another peer has
    taken them."""

    public_key: str
    endpoint: str | None
    allowed_ips: tuple[str, ...]
    latest_handshake: datetime.datetime | None
    rx_bytes: int
    tx_bytes: int
    keepalive: int | None

    def handshake_age(self, now: datetime.datetime) -> float | None:
        """Seconds since the latest handshake; None when there never was one. ``now`` is aware."""
        return None if self.latest_handshake is None else (now - self.latest_handshake).total_seconds()

    def problem(self, now: datetime.datetime) -> str:
        """Why nothing passes to this peer; empty when it is healthy. A handshake alone is no proof."""
        if not self.allowed_ips:
            return "no allowed IPs: another peer of this interface claims the same ones"
        age = self.handshake_age(now)
        if age is None:
            return "never shook hands"
        if age > FRESH_SECONDS:
            return f"latest handshake {age:.0f} s ago"
        return ""


@dataclasses.dataclass(frozen=True)
class Interface:
    """One WireGuard interface; ``public_key`` is None on one without a private key."""

    name: str
    public_key: str | None
    listen_port: int
    peers: tuple[Peer, ...]


def parse_dump(text: str, interface: str | None = None) -> list[Interface]:
    """``wg show all dump``, or with ``interface`` the form ``wg show IF dump`` without the name in each line.

    Private keys stand in that output; they are never kept nor shown.
    """
    found: list[Interface] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        columns = line.split("\t")
        if interface is not None:
            columns = [interface, *columns]
        if len(columns) == 5:
            found.append(_interface(columns, number))
        elif len(columns) == 9 and found and found[-1].name == columns[0]:
            found[-1] = dataclasses.replace(found[-1], peers=(*found[-1].peers, _peer(columns, number)))
        else:
            # Never the line itself: it may hold a key.
            raise ParseError("wg show dump", f"line {number} has {len(columns)} columns, not an interface nor its peer")
    return found


def _interface(columns: list[str], number: int) -> Interface:
    port = columns[3]
    if not port.isdecimal():
        raise ParseError("wg show dump", f"line {number}: no listening port")
    return Interface(columns[0], _key_or_none(columns[2], number), parse_int("wg show dump", port), ())


def _key_or_none(text: str, number: int) -> str | None:
    if text == "(none)":
        return None
    if not is_key(text):
        raise ParseError("wg show dump", f"line {number}: not a key where one belongs")
    return text


def is_key(text: str) -> bool:
    """Whether a text is a WireGuard key: 32 bytes in base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except (binascii.Error, ValueError):
        return False


def _peer(columns: list[str], number: int) -> Peer:
    _name, key, _preshared, endpoint, allowed, handshake, rx, tx, keepalive = columns
    public_key = _key_or_none(key, number)
    if public_key is None:
        raise ParseError("wg show dump", f"line {number}: a peer without a key")
    seconds = parse_int("wg show dump", handshake)
    try:
        at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc) if seconds else None
    except (OverflowError, OSError, ValueError) as exc:
        raise ParseError("wg show dump", f"line {number}: not a time", handshake) from exc
    return Peer(
        public_key=public_key,
        endpoint=None if endpoint == "(none)" else endpoint,
        allowed_ips=() if allowed == "(none)" else tuple(allowed.split(",")),
        latest_handshake=at,
        rx_bytes=parse_int("wg show dump", rx),
        tx_bytes=parse_int("wg show dump", tx),
        keepalive=None if keepalive == "off" else parse_int("wg show dump", keepalive),
    )
