# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts can be sold together as it stands, and what keeps the others out (host-contract 5.8, rules P5 and P9).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, UNKNOWN, Record
from ansible_collections.lium.cluster.plugins.module_utils._roce.sellable import largest_set

#: A host in no fabric that the platform would know.
NO_FABRIC = "no fabric"


def sale(
    groups: Mapping[str, list[str]],
    records: Mapping[str, Sequence[Record]],
    measured: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """One row a fabric: its hosts, those that can be sold together, and for each other host the ids that keep it out.

    ``groups``: fabric -> hosts, as the platform groups them. ``records``: what was found on every host of the play.
    ``measured``: the fabrics of a RoCE verification (docs/schema/roce.schema.json); where one has hosts of a group,
    only hosts whose every pair is proven count. Without one ``pairs`` is null: nothing is known of them.

    A host is kept out by a blocker that must be fixed, and by one that could not be read: the sale is not certain.
    """
    groups = dict(groups)
    named = {host for hosts in groups.values() for host in hosts}
    for fabric in measured:
        if others := [host for host in fabric["hosts"] if host in records and host not in named]:
            groups.setdefault(f"segment {fabric['segment']}", []).extend(others)
            named.update(others)
    rows = [_fabric(name, list(hosts), records, _verdict(hosts, measured)) for name, hosts in sorted(groups.items())]
    alone = [host for host in sorted(records) if host not in named]
    return rows + ([_fabric(NO_FABRIC, alone, records, None)] if alone else [])


def _fabric(
    name: str, hosts: list[str], records: Mapping[str, Sequence[Record]], verdict: Mapping[str, Any] | None
) -> dict[str, Any]:
    blocked = {host: ids for host in hosts if (ids := _blockers(records.get(host, ())))}
    free = [host for host in hosts if host not in blocked]
    pairs = None
    if name == NO_FABRIC:
        for host in free:
            blocked[host] = ["fabric.kind"]
        free = []
    if verdict is not None:
        pairs = {key: verdict[key] for key in ("pairs", "proven", "failed", "not_measured")}
        open_peers = {host: set(peers) for host, peers in verdict["blocking"].items()}
        tested = [host for host in free if host in verdict["hosts"]]
        good = {
            frozenset((one, other))
            for number, one in enumerate(tested)
            for other in tested[number + 1 :]
            if other not in open_peers.get(one, ())
        }
        free = list(largest_set(tested, good).hosts)
    elif len(free) < 2:
        free = []
    for host in hosts:
        if host not in free and host not in blocked:
            blocked[host] = ["roce.pairs" if verdict is not None else "fabric.group"]
    return {"name": name, "hosts": hosts, "sellable": free, "blocked": blocked, "pairs": pairs}


def _blockers(rows: Sequence[Record]) -> list[str]:
    """Ids of the records that keep a host from being sold. Pairs are judged over the whole fabric, not by host."""
    return [
        row.id
        for row in rows
        if row.id != "roce.pairs" and row.severity == "blocker" and row.status in (MUST_FIX, UNKNOWN)
    ]


def _verdict(hosts: Sequence[str], measured: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The verification of this fabric: the one that shares most hosts with it."""
    shared = [(len(set(hosts) & set(fabric["hosts"])), number, fabric) for number, fabric in enumerate(measured)]
    best = max(shared, default=None, key=lambda row: (row[0], -row[1]))
    return best[2] if best and best[0] else None


def sale_lines(fabrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same for the screen."""
    lines = ["What can be sold"]
    for fabric in fabrics:
        sellable, hosts = fabric["sellable"], fabric["hosts"]
        many = f"{len(sellable)} of {len(hosts)} hosts" if sellable else f"none of {len(hosts)} hosts"
        proven = (
            ""
            if fabric["pairs"] is None
            else f", {fabric['pairs']['proven']} of {fabric['pairs']['pairs']} pairs proven"
        )
        unproven = ", pairs not measured" if fabric["pairs"] is None and sellable else ""
        lines.append(f"  {fabric['name']}: {many}{proven}{unproven}")
        if sellable:
            lines.append(f"    together: {', '.join(sellable)}")
        lines += [f"    not {host}: {', '.join(ids)}" for host, ids in fabric["blocked"].items()]
    return lines
