# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""How fast a pair has to be, from what its links can carry, and the status of each result (host-contract 5.4, 5.6).

No table of models: the ceiling comes from link rate, path MTU and PCIe slot; the marks are shares of that ceiling.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

OK = "OK"
WARN = "WARN"
FAIL = "FAIL"
SKIPPED = "SKIPPED"
NOT_MEASURED = "NOT_MEASURED"

#: Bytes on the wire around each payload: preamble 8, Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4, gap 12.
_PACKET_OVERHEAD = 82
#: Header bytes around each PCIe payload of at most 256 bytes.
_TLP_PAYLOAD, _TLP_OVERHEAD = 256, 26
#: Lane rate in GT/s → share of the bits that carry data.
_ENCODING = {2.5: 0.8, 5.0: 0.8}
_NEW_ENCODING = 128 / 130

#: The contract's 88 % and 50 % of the line are meant at path MTU 4096, where the ceiling is 98 % of the line.
_REFERENCE = 4096 / (4096 + _PACKET_OVERHEAD)
PASS_SHARE = 0.88 / _REFERENCE
FAIL_SHARE = 0.50 / _REFERENCE


class Slot(NamedTuple):
    """A NIC's PCIe link: GT/s per lane and number of lanes, as in ``current_link_speed`` and ``current_link_width``."""

    gigatransfers: float
    lanes: int


class Rail(NamedTuple):
    """What one end of a test can carry. ``None`` is what could not be read, or what soft-RoCE does not have."""

    link_gbps: float | None = None
    slot: Slot | None = None


class Ceiling(NamedTuple):
    """The most that a pair can carry, in Gb/s of payload, and what limits it: ``link`` or ``pcie``."""

    gigabits_per_second: float
    limit: str


class Mark(NamedTuple):
    """A status with its reason; ``share`` is the rate as a share of the ceiling, ``None`` without one."""

    status: str
    share: float | None
    hint: str


def parse_rate(text: str) -> float | None:
    """``400 Gb/sec (4X NDR)`` (sysfs) as Gb/s, ``None`` where no rate stands."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec", text)
    return float(found.group(1)) if found else None


def parse_slot(speed: str, width: str) -> Slot | None:
    """``16.0 GT/s PCIe`` and ``16`` (sysfs) as a slot, ``None`` where either is unknown."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*GT/s", speed)
    lanes = width.strip()
    if found is None or not lanes.isdigit() or int(lanes) == 0:
        return None
    return Slot(float(found.group(1)), int(lanes))


def slot_gbps(slot: Slot) -> float:
    """What a PCIe slot carries of payload, in Gb/s: Gen4 x16 about 229, so a 400G NIC in it is halved."""
    raw = slot.gigatransfers * slot.lanes * _ENCODING.get(slot.gigatransfers, _NEW_ENCODING)
    return raw * _TLP_PAYLOAD / (_TLP_PAYLOAD + _TLP_OVERHEAD)


@functools.lru_cache(maxsize=1024)
def ceiling(server: Rail, client: Rail, mtu: int | None) -> Ceiling | None:
    """The most a pair can carry; ``None`` where no link rate is known, as on soft-RoCE.

    ``mtu`` is the path MTU in bytes that perftest printed; unknown counts as 1024, the smallest that RoCE NICs use by
    default, so that a guess never fails a pair.
    """
    links = [rail.link_gbps for rail in (server, client) if rail.link_gbps]
    if not links:
        return None
    payload = mtu or 1024
    best = Ceiling(min(links) * payload / (payload + _PACKET_OVERHEAD), "link")
    for rail in (server, client):
        if rail.slot and slot_gbps(rail.slot) < best.gigabits_per_second:
            best = Ceiling(slot_gbps(rail.slot), "pcie")
    return best


def mark(rate: float | None, top: Ceiling | None) -> Mark:
    """The status of one result against its ceiling.

    A rate without a ceiling is ``OK``: soft-RoCE never fails on rate.
    """
    if rate is None or rate <= 0:
        return Mark(FAIL, None, "")
    if top is None:
        return Mark(OK, None, "")
    share = rate / top.gigabits_per_second
    if share >= PASS_SHARE:
        return Mark(OK, share, "the PCIe slot is the limit, not the link" if top.limit == "pcie" else "")
    return Mark(FAIL if share < FAIL_SHARE else WARN, share, _hint(share))


def _hint(share: float) -> str:
    if share < 0.12:
        return "loss with retransmission: no lossless queue, or a bad cable or optic"
    if 0.2 <= share <= 0.3:
        return "about a quarter: PCIe x4 or x8 where x16 is needed"
    if 0.4 <= share <= 0.6:
        return "about a half: wrong card or GID, one leg of a LAG, or a Gen4 slot for a 400G NIC"
    return "below the mark: PCIe, CPU governor, NUMA, or a shared link"
