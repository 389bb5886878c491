# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The verdict on the screen: matrix, sellable set, guilty parts, what to mend first.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import FAIL, NOT_MEASURED, OK, SKIPPED, WARN
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.verdict import Fabric, cause, name

#: A pair in the matrix, the worst of its tests.
_CELL = {OK: ".", WARN: "w", FAIL: "X", NOT_MEASURED: "?", SKIPPED: "?"}
_WORST = (FAIL, NOT_MEASURED, SKIPPED, WARN, OK)
#: A matrix is read up to about this many hosts; beyond it only hosts with open pairs are shown.
_MOST_COLUMNS = 48
_MOST_ROWS = 20


def render(fabric: Fabric) -> str:
    """The screen of one segment."""
    lines = [
        f"RoCE segment {fabric.segment}: {len(fabric.hosts)} hosts, {len(fabric.good)} of {fabric.pairs} pairs proven,"
        f" {len(fabric.failed)} failed, {fabric.pairs - len(fabric.good | fabric.failed)} not measured",
        "",
    ]
    lines += _matrix(fabric) if len(fabric.hosts) <= _MOST_COLUMNS else _open_pairs(fabric)
    lines += ["", *_sellable(fabric)]
    if fabric.guilty or fabric.lost:
        lines += ["", "Guilty"]
        for part in fabric.guilty:
            why, fix = cause(part)
            pairs = len({frozenset(test[:2]) for test in part.tests})
            lines.append(f"  {name(part)} ({pairs} pair{'s' if pairs != 1 else ''})")
            lines += _wrapped("seen", why) + _wrapped("do", fix)
        for host, reason in fabric.lost.items():
            lines.append(f"  host {host}")
            lines += _wrapped("seen", reason) + _wrapped("do", "See that the host runs, then verify again")
    if fabric.fix_first:
        lines += ["", "To sell more, mend in this order"]
        lines += [
            f"  {step['repair']}: then {'' if step['exact'] else 'at least '}{step['sellable']} hosts"
            for step in fabric.fix_first
        ]
    return "\n".join(lines)


def _matrix(fabric: Fabric) -> list[str]:
    """Hosts against hosts, numbered; a row names its host."""
    statuses: dict[frozenset[str], list[str]] = {}
    for test, record in fabric.records.items():
        statuses.setdefault(frozenset(test[:2]), []).append(record["status"])
    width = max((len(host) for host in fabric.hosts), default=0)
    digits = len(str(len(fabric.hosts)))
    columns = [str(number + 1).rjust(digits) for number in range(len(fabric.hosts))]
    lines = [f"{'':{width + digits + 2}} " + " ".join(columns)]
    for number, host in enumerate(fabric.hosts):
        cells = []
        for peer in fabric.hosts:
            seen = statuses.get(frozenset((host, peer)), [NOT_MEASURED])
            cells.append("-" if peer == host else _CELL[next(status for status in _WORST if status in seen)])
        lines.append(f"{columns[number]}  {host:<{width}}" + "".join(f"{cell:>{digits + 1}}" for cell in cells))
    return [*lines, "", ". proven  w proven, slow or only alone  X failed  ? not measured"]


def _open_pairs(fabric: Fabric) -> list[str]:
    """Hosts with pairs that are not proven, for a fabric too large for a matrix."""
    blocking = fabric.blocking()
    lines = [f"Hosts with unproven pairs: {len(blocking)}"]
    for host, peers in list(blocking.items())[:_MOST_ROWS]:
        lines.append(f"  {host}: {len(peers)} ({textwrap.shorten(', '.join(peers), 90, placeholder=' …')})")
    if len(blocking) > _MOST_ROWS:
        lines.append(f"  and {len(blocking) - _MOST_ROWS} more, see the file of results")
    return lines


def _sellable(fabric: Fabric) -> list[str]:
    hosts: Sequence[str] = fabric.sellable.hosts
    if not hosts:
        return ["Sellable as one cluster: none, no pair is proven"]
    doubt = "" if fabric.sellable.exact else f" (at most {fabric.sellable.at_most} could be possible)"
    if len(hosts) == len(fabric.hosts):
        return [f"Sellable as one cluster: all {len(hosts)} hosts"]
    lines = [f"Sellable as one cluster: {len(hosts)} of {len(fabric.hosts)} hosts{doubt}"]
    left_out = [host for host in fabric.hosts if host not in hosts]
    return lines + _wrapped("with", ", ".join(hosts)) + _wrapped("not", ", ".join(left_out))


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=f"    {label + ':':<6}", subsequent_indent=" " * 10)
