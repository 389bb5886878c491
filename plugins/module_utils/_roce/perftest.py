# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What perftest printed, in all its shapes, as one number or one cause (host-contract 5.3).

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End, Failure, classify, failure

#: perftest divides bytes by 2**20 for what it prints as MB/sec (and, in other versions, as MiB/sec): 11264.30 MB/sec
#: are 94.49 Gb/s.
_GBITS = {"Gb/sec": 1.0, "Gbps": 1.0, "MB/sec": 8 * 2**20 / 1e9, "MiB/sec": 8 * 2**20 / 1e9}
_HEAD = re.compile(r"BW average\[([^\]]+)\]")
_JSON_AVERAGE = re.compile(r'"?BW_average"?\s*:\s*"?([-+0-9.eE]+)')


#: A closed port refuses at once, a filtered one lets the client wait much longer than this.
QUICK_S = 5.0


class Row(NamedTuple):
    """A result row. Both rates in Gb/s (10**9 bits a second); the peak is 0 in a duration run. ``unit`` as printed."""

    size: int
    iterations: int
    peak: float
    average: float
    unit: str


class Reading(NamedTuple):
    """A test's outcome: a rate in Gb/s, or why there is none. ``mtu`` in bytes, as the queue pair used it."""

    gigabits_per_second: float | None
    failure: Failure | None
    mtu: int | None = None
    gid_index: int | None = None
    link_type: str | None = None


def read_row(text: str) -> Row | None:
    """The first result row under the last column head; ``None`` where there is none.

    Lines between head and row (a warning about CPU frequency) are passed over, since a row has one number per column.
    """
    head = None
    for found in _HEAD.finditer(text):
        head = found
    if head is None:
        return None
    head_end = text.find("\n", head.end())
    if head_end < 0:
        return None
    columns = 6 if "CPU_Util" in text[head.start() : head_end] else 5
    for line in text[head_end:].splitlines():
        fields = line.split()
        if len(fields) != columns:
            continue
        try:
            numbers = [float(field) for field in fields]
        except ValueError:
            continue
        unit = head.group(1)
        factor = _GBITS.get(unit)
        if factor is None or not all(map(math.isfinite, numbers)):
            return None
        return Row(int(numbers[0]), int(numbers[1]), numbers[2] * factor, numbers[3] * factor, unit)
    return None


def read_json(text: str) -> float | None:
    """The average in Gb/s out of ``--out_json``; ``None`` where there is none.

    Some versions write bare words and trailing commas, which no JSON parser takes; the one number is found all the
    same. Assumes that ``--report_gbits`` was passed, for the file names no unit.
    """
    try:
        value = json.loads(text)["results"]["BW_average"]
    except (ValueError, RecursionError, KeyError, TypeError):
        found = _JSON_AVERAGE.search(text)
        value = found.group(1) if found else None
    try:
        average = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return None
    return average if math.isfinite(average) else None


def read(
    client: End,
    server: End | None = None,
    *,
    gid_index: int | None = None,
    seconds: float | None = None,
    out_json: str | None = None,
) -> Reading:
    """The outcome of a test from the client's output, and the server's where it explains a failure.

    A row counts only when perftest ended with 0, for it prints partial tables before it fails; a rate of 0.00 is a
    failure; so are another link type than Ethernet and another GID index than ``gid_index``. The average counts,
    never the peak. ``out_json`` is the text of perftest's JSON file and is asked only where the text has no row.
    """
    mtu = _number(r"^\s*Mtu\s*:\s*(\d+)\s*\[B\]", client.stdout)
    used_gid = _number(r"^\s*G[iI][dD] index\s*:\s*(\d+)", client.stdout)
    link = re.search(r"^\s*Link type\s*:\s*(\S+)", client.stdout, re.M)
    seen = Reading(None, None, mtu, used_gid, link.group(1) if link else None)
    if client.rc != 0 or client.timed_out:
        told = classify(client, server)
        if told.name == "connect" and told.end == "client" and not client.cut and (seconds or 0.0) < QUICK_S:
            told = failure("connect_refused", told.quote)
        return seen._replace(failure=told)
    row = read_row(client.stdout)
    average = row.average if row else read_json(out_json or "")
    if average is None:
        told = classify(client, server)
        return seen._replace(failure=told if told.name not in ("failed", "image") else failure("no_row"))
    shown = f"{average:.2f} Gb/s"
    if row and row.unit == "MiB/sec":
        return seen._replace(failure=failure("unit_mismatch", f"BW average[MiB/sec], that is {shown}"))
    if average <= 0:
        return seen._replace(failure=failure("zero", shown))
    if seen.link_type is not None and seen.link_type.lower() != "ethernet":
        return seen._replace(failure=failure("link_type", f"Link type : {seen.link_type}"))
    if gid_index is not None and used_gid is not None and used_gid != gid_index:
        return seen._replace(failure=failure("gid_index", f"GID index : {used_gid}, asked for {gid_index}"))
    return seen._replace(gigabits_per_second=average)


class NoControlAddress(ValueError):
    """No address of a peer can carry perftest's control link."""


def control_address(addresses: Iterable[str]) -> str:
    """The address for perftest's TCP control link: the first IPv4 one, for older versions take no IPv6 literal.

    Raises :class:`NoControlAddress` where the peer has none.
    """
    known = list(addresses)
    for address in known:
        if ":" not in address:
            return address
    raise NoControlAddress(
        f"no IPv4 address among {', '.join(known) or 'none'}: this needs a newer perftest, with --ipv6"
    )


def lost_race(told: Failure) -> bool:
    """Whether the client may just have come before its server: then one repetition is due."""
    return told.name == "connect_refused"


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.M)
    return int(found.group(1)) if found else None
