# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""One lossless set-up for all hosts of a segment (host-contract 4.4, `roce.cluster_consistent`).

Works on the facts that `lossless_info` returns. The MTU, which belongs to the same set-up, is compared with the others'
by `net.mtu`.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

CONSISTENT = Check(
    id="roce.cluster_consistent",
    title="One lossless set-up in the fabric",
    severity="degraded",
    expected="the same PFC, trust mode, DSCPs, forced class and ECN on every rail of every host",
    why="packets that one host protects are dropped on the way to a host that sorts them otherwise",
    source="facts of all hosts of the play",
)


def compare_lossless(
    segments: Mapping[str, Sequence[str]], facts: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, Record]]:
    """A record for each host of a segment of two or more. Soft-RoCE has no set-up and is compared with nobody."""
    for segment, members in segments.items():
        rails = {host: _settings(facts[host]) for host in members}
        hosts = [host for host in members if rails[host]]
        if len(hosts) > 1:
            record = _compare(segment, {host: rails[host] for host in hosts})
            yield from ((host, record) for host in hosts)


def rails_of(values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What `lossless_info` tells of each rail's netdev; nothing of a host that it has not looked at."""
    lossless = values.get("lossless") or {}
    rails: Sequence[Mapping[str, Any]] = lossless.get("rails", ())
    return rails


def _settings(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [rail["settings"] for rail in rails_of(values) if not rail["soft"]]


def _compare(segment: str, rails: Mapping[str, Sequence[Mapping[str, Any]]]) -> Record:
    names = list(next(iter(rails.values()))[0])
    differing, unread = [], []
    for name in names:
        values = {
            host: sorted({str(row[name]) for row in rows if row[name] is not None}) for host, rows in rails.items()
        }
        if len({value for seen in values.values() for value in seen}) > 1:
            parts = ", ".join(f"{host} {'/'.join(seen)}" for host, seen in values.items() if seen)
            differing.append(f"{name}: {parts}")
        holes = [host for host, rows in rails.items() if any(row[name] is None for row in rows)]
        if holes:
            unread.append(f"{name} of {', '.join(holes)}")
    if differing:
        return CONSISTENT.must_fix(
            f"{segment}: {'; '.join(differing)}",
            "Give all rails of the fabric one set-up (the role lossless with lossless_manage: true does)",
        )
    if unread:
        return CONSISTENT.unknown(f"{segment}: not read: {'; '.join(unread)}", "Make it readable on these hosts")
    return CONSISTENT.ok(f"{segment}: {', '.join(rails)} alike")
