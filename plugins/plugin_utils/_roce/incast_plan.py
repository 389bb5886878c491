# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The plans of a counter proof: on each port once, all other hosts of the segment send to it (host-contract 4.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import Settings as LosslessSettings
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import Incast, incast_plans, incasts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import (
    INCAST,
    Planned,
    candidates,
    check_options,
    longest,
    refusals,
    run_options_of,
    settings_of,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RunFolder

#: What counts for a rail of which the settings could not be read.
USUAL = Policy().target(LosslessSettings(), None)


def rail_name(rail: RailAt) -> str:
    """A rail's name in the facts of the module lossless_info."""
    return f"{rail.device}:{rail.port}"


def legs_of(look: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """What lossless_info said of the legs of a rail, nothing where it could not look."""
    lossless = look.get("facts", {}).get("lossless") or {}
    return [leg for leg in lossless.get("rails", ()) if leg["rail"] == name]


def plan_incasts(
    options: Mapping[str, Any],
    looks: Mapping[str, Mapping[str, Any]],
    lossless: Mapping[str, Mapping[str, Any]],
    folder: RunFolder,
    run: str,
    now: datetime,
) -> Planned:
    """Plans the incasts over all hosts that may be tested.

    ``looks`` holds what roce_info said of each host, ``lossless`` what lossless_info did. Raises ``ValueError`` for
    options that contradict each other.
    """
    refused, found, segments = candidates(options, looks)
    check_options(options, max(map(len, segments.values()), default=2) - 1)
    rails = {
        host: tuple(rail._replace(netdevs=_netdevs(legs_of(lossless.get(host, {}), rail_name(rail)))) for rail in own)
        for host, own in found.items()
    }
    tclass = options["tclass"]
    if tclass is None:
        told = (legs_of(lossless.get(host, {}), rail_name(rail)) for host, own in rails.items() for rail in own)
        tclass = next((leg["traffic_class"] for legs in told for leg in legs), USUAL.traffic_class)
    settings = settings_of({**options, "tclass": tclass})
    planned: list[Incast] = []
    most = 0
    plans: dict[str, Any] = {}
    for hosts in segments.values():
        own = {host: rails[host] for host in hosts}
        # Two hosts make no incast; with data both ways their ports are at least as busy as they can be.
        run_options = run_options_of(options, run, settings._replace(bidirectional=len(hosts) == 2))
        rounds = incasts(own)
        planned += rounds
        most = max(most, len(rounds))
        plans.update(incast_plans(run_options, own, rounds))
    folder.write_run(
        {
            "run": run,
            "mode": INCAST,
            "started_at": now.isoformat(),
            "segments": segments,
            "refused": refused,
            "rails": {host: [rail._asdict() for rail in own] for host, own in rails.items()},
            "tclass": tclass,
            "planned": sorted(plans),
            "incasts": planned,
        }
    )
    counts = {"tests": sum(len(incast.senders) for incast in planned), "rounds": most, "refused": refused}
    summary = (
        f"Counter proof {run}: {len(plans)} hosts, {len(planned)} incasts of {settings.duration_s} s, traffic class"
        f" {tclass}; {len(refused)} hosts refused"
    )
    return Planned(folder, plans, counts, longest(plans), summary + refusals(refused))


def _netdevs(legs: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(leg["netdev"] for leg in legs if leg["netdev"]))
