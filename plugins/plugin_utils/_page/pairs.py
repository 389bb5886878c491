# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of hosts as heat maps: a table where it can be read, a picture of one point a pair beyond.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, OK, SKIPPED, UNKNOWN, WARN

#: A table is read up to about this many hosts, and numbers in its cells up to fewer.
_MOST_IN_TABLE = 48
_MOST_WITH_NUMBERS = 16
#: A test's status -> how the report calls it; in the order in which the worst of a pair's tests is found.
_STATUS = {"FAIL": MUST_FIX, "NOT_MEASURED": UNKNOWN, "SKIPPED": UNKNOWN, "WARN": WARN, "OK": OK}
#: Points of the picture, as red, green, blue.
_COLOURS = {
    MUST_FIX: (192, 38, 45),
    UNKNOWN: (146, 149, 236),
    WARN: (240, 180, 91),
    OK: (60, 170, 112),
    SKIPPED: (225, 228, 232),
}


class Cell(NamedTuple):
    """One pair. ``style`` shades a good one by how near it comes to what its links allow."""

    status: str
    text: str
    title: str
    style: str = ""


class Map(NamedTuple):
    """A heat map. ``rows`` is empty where ``image`` (a data URL) stands instead, with the hosts that are ``open``."""

    title: str
    note: str
    hosts: Sequence[str]
    rows: list[list[Cell]]
    image: str
    width: int
    guilty: Sequence[Mapping[str, Any]]
    open: list[tuple[str, list[str]]]


def roce_maps(results: Mapping[str, Any]) -> list[Map]:
    """A map of each fabric of a RoCE verification, with its guilty parts."""
    tests: dict[frozenset[str], list[Mapping[str, Any]]] = {}
    for record in results["records"]:
        tests.setdefault(frozenset((record["a"], record["b"])), []).append(record)
    maps = []
    for fabric in results["fabrics"]:
        hosts = fabric["hosts"]
        if len(hosts) < 2:
            continue
        numbers = len(hosts) <= _MOST_WITH_NUMBERS
        rows = [
            [_roce_cell(host, peer, tests.get(frozenset((host, peer)), ()), numbers) for peer in hosts]
            for host in hosts
        ]
        note = (
            f"Measured {results['generated_at']}: {fabric['proven']} of {fabric['pairs']} pairs proven."
            f" {'Gb/s, the slowest test of the pair. ' if numbers else ''}The fuller the green, the nearer to what the"
            " links allow."
        )
        title = f"Pairs of segment {fabric['segment']}"
        maps.append(_map(title, note, hosts, rows, fabric["guilty"], list(fabric["blocking"].items())))
    return maps


def overlay_map(tests: Sequence[Mapping[str, Any]]) -> list[Map]:
    """The map of the overlay's UDP port, rows calling columns; none where nothing was tested."""
    if not tests:
        return []
    hosts = sorted({test[end] for test in tests for end in ("from", "to")})
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for test in tests:
        found.setdefault((test["from"], test["to"]), []).append(test)
    rows = [[_overlay_cell(host, peer, found.get((host, peer), ())) for peer in hosts] for host in hosts]
    blocked: dict[str, list[str]] = {}
    for host, cells in zip(hosts, rows):
        for peer, cell in zip(hosts, cells):
            if cell.status in (MUST_FIX, UNKNOWN):
                blocked.setdefault(host, []).append(peer)
    note = "Whether a handshake from the row's host reaches the column's."
    return [_map("Overlay's UDP port", note, hosts, rows, (), list(blocked.items()))]


def _map(
    title: str,
    note: str,
    hosts: Sequence[str],
    rows: list[list[Cell]],
    guilty: Sequence[Mapping[str, Any]],
    blocked: list[tuple[str, list[str]]],
) -> Map:
    if len(hosts) <= _MOST_IN_TABLE:
        return Map(title, note, hosts, rows, "", 0, guilty, [])
    points = [[_COLOURS[cell.status] for cell in row] for row in rows]
    scale = max(2, 720 // len(hosts))
    return Map(title, note, hosts, [], _png(points), len(hosts) * scale, guilty, blocked)


def _roce_cell(host: str, peer: str, tests: Sequence[Mapping[str, Any]], numbers: bool) -> Cell:
    if host == peer:
        return Cell(SKIPPED, "", host)
    if not tests:
        return Cell(UNKNOWN, "?", f"{host} and {peer}: not measured")
    seen = {test["status"] for test in tests}
    status = next(_STATUS[known] for known in _STATUS if known in seen)
    rates = [test["gigabits_per_second"] for test in tests if test["gigabits_per_second"] is not None]
    if status in (MUST_FIX, UNKNOWN) or not rates:
        causes = "; ".join(sorted({test["cause"] for test in tests if test["cause"]})) or "no rate"
        return Cell(status, "✕" if status == MUST_FIX else "?", f"{host} and {peer}: {causes}")
    share = min((test["share"] for test in tests if test["share"] is not None), default=None)
    text = f"{min(rates):.0f}" if min(rates) >= 10 else f"{min(rates):.1f}"
    of_link = "" if share is None else f", {share:.0%} of what the links allow"
    # From half of the ceiling, the least that is good anywhere, to all of it.
    depth = 15 if share is None else round(15 + 50 * min(1.0, max(0.0, (share - 0.5) / 0.5)))
    colour = "ok" if status == OK else "warn"
    return Cell(
        status,
        text if numbers else "",
        f"{host} and {peer}: {text} Gb/s{of_link}",
        f"background: color-mix(in srgb, var(--{colour}) {depth}%, transparent); color: var(--text)",
    )


def _overlay_cell(host: str, peer: str, tests: Sequence[Mapping[str, Any]]) -> Cell:
    if host == peer:
        return Cell(SKIPPED, "", host)
    states = {test["state"] for test in tests}
    if states == {"reachable"}:
        return Cell(OK, "✓", f"{host} reaches {peer}")
    status, sign = (MUST_FIX, "✕") if "closed" in states else (UNKNOWN, "?")
    causes = "; ".join(sorted({test["cause"] for test in tests if test["cause"]})) or "not tested"
    return Cell(status, sign, f"{host} to {peer}: {causes}")


def _png(points: Sequence[Sequence[tuple[int, int, int]]]) -> str:
    """A data URL. Python's own library writes no picture, and the collection needs no other for this one."""
    raw = b"".join(b"\0" + bytes(value for point in row for value in point) for row in points)
    head = struct.pack(">IIBBBBB", len(points[0]), len(points), 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")
