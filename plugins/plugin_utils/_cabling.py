# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Rails whose cables hang on another rail's switch, told from what the switches announce (host-contract 3.3).

Tests cannot tell it: to a pair of hosts a crossed cable is a rail that does not answer, or, where the switches are
joined, nothing at all. Works on the facts that `lossless_info` returns.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.plugin_utils._lossless_fabric import rails_of

CROSSED = Check(
    id="roce.rails_crossed",
    title="Every rail on the switch of its own plane",
    severity="degraded",
    expected="a switch that carries one rail of each host carries the same rail of all",
    why="rail N of one host talks to rail N of the other; on two switches the pair is slow, or gets no answer",
    source="LLDP neighbours of all hosts of the play",
)


def compare_cabling(
    segments: Mapping[str, Sequence[str]], facts: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, Record]]:
    """A record for each host that stands out; where as many have it one way as the other, for all of them."""
    for segment, members in segments.items():
        told: dict[str, list[str]] = {}
        for switch, hosts in _switches({host: _neighbours(facts[host]) for host in members}).items():
            rails: dict[str, list[str]] = {}
            for host, rail in hosts.items():
                rails.setdefault(rail, []).append(host)
            if len(rails) > 1:
                most = max(len(own) for own in rails.values())
                usual = [rail for rail, own in rails.items() if len(own) == most]
                text = f"{switch} carries " + ", ".join(
                    f"{rail} of {', '.join(own)}" for rail, own in sorted(rails.items())
                )
                for host, rail in hosts.items():
                    if [rail] != usual:
                        told.setdefault(host, []).append(text)
        for host, texts in told.items():
            yield (
                host,
                CROSSED.warn(
                    f"{segment}: {'; '.join(texts)}",
                    "Swap the cables of this host's rails; where they are right, give its devices the others' names and"
                    " see that the same rails are up",
                ),
            )


def _neighbours(values: Mapping[str, Any]) -> dict[str, set[str]]:
    """By rail, in words and in the platform's order: the switches that its netdevs hear. Unheard ones are left out."""
    heard: dict[str, set[str]] = {}
    for row in rails_of(values):
        heard.setdefault(row["rail"], set()).update([row["neighbour"]] if row.get("neighbour") else [])
    return {f"rail {number}": heard[name] for number, name in enumerate(sorted(heard))}


def _switches(hosts: Mapping[str, Mapping[str, set[str]]]) -> dict[str, dict[str, str]]:
    """Switch -> host -> the rail that hangs on it. A switch with several rails of one host is no plane's: left out."""
    found: dict[str, dict[str, list[str]]] = {}
    for host, rails in hosts.items():
        for rail, switches in rails.items():
            for switch in switches:
                found.setdefault(switch, {}).setdefault(host, []).append(rail)
    return {
        switch: {host: rails[0] for host, rails in own.items()}
        for switch, own in sorted(found.items())
        if all(len(rails) == 1 for rails in own.values())
    }
