# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The verdict over a verification: what can be sold, which part is guilty, what to mend first (host-contract 5.6, 5.8).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce import culprit
from ansible_collections.lium.cluster.plugins.module_utils._roce.culprit import Guilty, diagnose
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import CAUSES
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import NOT_MEASURED_CAUSES
from ansible_collections.lium.cluster.plugins.module_utils._roce.sellable import (
    BUDGET_S,
    Sellable,
    largest_set,
    what_to_fix_first,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import (
    Records,
    failed_pairs,
    good_pairs,
    mark_outliers,
    outcomes,
    with_reruns,
)

SCHEMA = "lium.cluster.roce/1"
Pair = frozenset[str]

#: What a guilty part is called, and what usually mends it where no failure text says more.
_PARTS = {
    culprit.HOST: ("host {hosts}", "Look at the host's own checks: driver, limits, firewall, addresses"),
    culprit.NIC: ("NIC of {hosts}, rail {rail}", "Check the card's slot, driver and GID table"),
    culprit.CABLE: (
        "cable or switch port of {hosts}, rail {rail}{way}",
        "Reseat or change cable and optic, look at the port",
    ),
    culprit.GROUP: (
        "link between {hosts} and all others{rail_only}",
        "Look at the uplink, VLAN and routes of their switch",
    ),
    culprit.OVERSUBSCRIPTION: (
        "shared links under load",
        "Pairs are good one at a time: check PFC and ECN, and the number of uplinks between the switches",
    ),
    culprit.PATH: ("path between {hosts}", "Look for an access list or one bad link among parallel ones"),
    culprit.TRANSIENT: ("{hosts} once", "The pair was good when it was repeated; run the verification again"),
}
_WAY = {"server": ", towards the host", "client": ", from the host", None: ""}


class Fabric(NamedTuple):
    """The verdict over the hosts of one segment. ``lost``: hosts that stopped answering, with the reason."""

    segment: str
    hosts: tuple[str, ...]
    records: Records
    good: set[Pair]
    failed: set[Pair]
    guilty: list[Guilty]
    sellable: Sellable
    fix_first: list[dict[str, Any]]
    lost: dict[str, str]

    @property
    def pairs(self) -> int:
        return len(self.hosts) * (len(self.hosts) - 1) // 2

    def blocking(self) -> dict[str, list[str]]:
        """Peers with which a host is not proven, most of them first."""
        found = {
            host: [peer for peer in self.hosts if peer != host and frozenset((host, peer)) not in self.good]
            for host in self.hosts
        }
        return {
            host: peers for host, peers in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])) if peers
        }


def judge(
    segment: str,
    hosts: Sequence[str],
    swept: Records,
    again: Records,
    lost: Mapping[str, str],
    *,
    budget_s: float = BUDGET_S,
) -> Fabric:
    """The verdict over one segment. ``swept`` holds the sweep and what was proven before; ``again`` the reruns."""
    final = with_reruns(swept, again)
    mark_outliers(final)
    good = good_pairs(final)
    guilty = diagnose(outcomes([*swept.values(), *again.values()]))
    sellable = largest_set(hosts, good, budget_s=budget_s)
    mends = {name(part): _mended(part, hosts, good) for part in guilty if part.kind != culprit.TRANSIENT}
    for host, why in lost.items():
        mends.setdefault(f"host {host}: {why}", {frozenset((host, peer)) for peer in hosts if peer != host})
    steps = what_to_fix_first(hosts, good, mends, budget_s=budget_s)
    fix_first = [
        {"repair": step.repair, "sellable": step.size, "exact": step.exact}
        for step in steps
        if mends[step.repair] - good
    ]
    return Fabric(segment, tuple(hosts), final, good, failed_pairs(final), guilty, sellable, fix_first, dict(lost))


def name(part: Guilty) -> str:
    """A guilty part in words."""
    words, _ = _PARTS[part.kind]
    return words.format(
        hosts=(" and " if part.kind in (culprit.PATH, culprit.TRANSIENT) else ", ").join(part.hosts),
        rail=part.rail if part.rail is not None else "any",
        rail_only=f", rail {part.rail}" if part.rail is not None else "",
        way=_WAY[part.role],
    )


def cause(part: Guilty) -> tuple[str, str]:
    """Why a part is thought to be at fault, and what to do, from the failures' own words where there are any."""
    _, fix = _PARTS[part.kind]
    told = [CAUSES[one] for one in part.names if CAUSES[one].part is not None] or [CAUSES[one] for one in part.names]
    if told and part.kind != culprit.OVERSUBSCRIPTION:
        return "; ".join(one.cause for one in told[:2]), told[0].fix if told[0].part else f"{fix}; {told[0].fix}"
    if part.share is not None:
        return f"carries {part.share:.0%} of what the links allow", fix
    return "no test passes", fix


def _mended(part: Guilty, hosts: Sequence[str], good: set[Pair]) -> set[Pair]:
    """The pairs that a repair would make good; with a host also those that were left out because of it."""
    pairs = {frozenset(test[:2]) for test in part.tests}
    if part.kind in (culprit.HOST, culprit.NIC, culprit.CABLE):
        pairs |= {frozenset((part.hosts[0], peer)) for peer in hosts if peer != part.hosts[0]}
    return pairs - good


def as_dict(fabric: Fabric) -> dict[str, Any]:
    """The verdict as it stands in the file of results; the records stand there once, for all fabrics."""
    return {
        "segment": fabric.segment,
        "hosts": list(fabric.hosts),
        "pairs": fabric.pairs,
        "proven": len(fabric.good),
        "failed": len(fabric.failed),
        "not_measured": fabric.pairs - len(fabric.good | fabric.failed),
        "sellable": {
            "hosts": list(fabric.sellable.hosts),
            "exact": fabric.sellable.exact,
            "at_most": fabric.sellable.at_most,
        },
        "guilty": [_guilty_row(part) for part in fabric.guilty],
        "lost": fabric.lost,
        "fix_first": fabric.fix_first,
        "blocking": fabric.blocking(),
    }


def _guilty_row(part: Guilty) -> dict[str, Any]:
    why, fix = cause(part)
    return {
        "part": part.kind,
        "name": name(part),
        "hosts": list(part.hosts),
        "rail": part.rail,
        "direction": part.role,
        "cause": why,
        "fix": fix,
        "classes": list(part.names),
        "share": round(part.share, 3) if part.share is not None else None,
        "pairs": len({frozenset(test[:2]) for test in part.tests}),
    }


def platform_form(records: Iterable[Mapping[str, Any]], ids: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The records as the platform keeps them: in both hosts' lists, one a peer, of rail 0 (host-contract 5.1).

    ``null`` is "measured and failed". A pair that was not measured has no entry, as on the platform.
    """
    own: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        if record["rail"] != 0 or record["class"] in NOT_MEASURED_CAUSES:
            continue
        rate = record["gigabits_per_second"]
        for side, other in (("a", "b"), ("b", "a")):
            peer = record[f"{other}_address"]
            known = own.setdefault(record[side], {}).get(peer)
            value = None if rate is None or (known and known["gigabits_per_second"] is None) else rate
            own[record[side]][peer] = {
                "peer_executor_uuid": ids.get(record[other], record[other]),
                "peer_address": peer,
                "gigabits_per_second": value,
                "measured_at": record["measured_at"],
            }
    return {host: list(rows.values()) for host, rows in sorted(own.items())}
