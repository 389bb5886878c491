# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: the verdict of each segment, the file of results, and a record for each host.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import Ends, not_measured
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import (
    NO_TEST,
    Records,
    carried_over,
    joined,
    newest_mode,
    test_of,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.verdict import (
    SCHEMA,
    Fabric,
    as_dict,
    cause,
    judge,
    name,
    platform_form,
)

PAIRS = Check(
    id="roce.pairs",
    title="Every pair of the fabric is proven",
    severity="blocker",
    expected="a good RDMA test with each other host of the segment, in every direction and on every rail asked for",
    why="the platform lists only hosts whose every pair is measured",
    source="ib_write_bw between the hosts",
)
#: How an agent may end without anything being wrong with its host.
_FINE = ("done", "budget", "quarantined")


class Conclusion(NamedTuple):
    """``report`` is the file of results; ``host_records`` the record of each host for the report of the play."""

    fabrics: list[Fabric]
    report: dict[str, Any]
    host_records: dict[str, list[dict[str, str]]]


def conclude(
    folder: RunFolder,
    ends: Mapping[str, Any],
    executor_ids: Mapping[str, str],
    now: datetime,
    again_ends: Mapping[str, Any] | None = None,
) -> Conclusion:
    """Judges a run.

    ``ends`` holds what the task that collected said of each host, nothing for a host it never reached; ``again_ends``
    the same of the reruns. A host lost in those is named, and keeps what the sweep has proven.
    """
    run = folder.read_run()
    swept, again = joined(folder.records(SWEEP)), joined(folder.records(RERUN))
    kept = {test_of(record): record for record in run["kept"]}
    lost = lost_hosts(run["planned"], ends)
    planned_again = [host for host in run["planned"] if folder.has_plan(RERUN, host)]
    lost_again = lost_hosts(planned_again, again_ends) if again_ends is not None else {}
    fabrics = []
    for segment, hosts in run["segments"].items():
        members = frozenset(hosts)

        def inside(records: Records, members: frozenset[str] = members) -> Records:
            return {test: record for test, record in records.items() if test.server in members}

        own = {**inside(kept), **inside(swept)}
        own.update(_unheard(run, members, own, now))
        own.update(_locked(run, own, ends, now))
        gone = {host: why for host, why in lost.items() if host in members}
        fabric = judge(segment, hosts, own, inside(again), gone)
        named = {host: f"when tests were repeated: {why}" for host, why in lost_again.items() if host in members}
        fabrics.append(fabric._replace(lost={**named, **gone}))
    judged = [record for fabric in fabrics for record in fabric.records.values()]
    records = [*carried_over(run["earlier"], judged), *judged]
    report = {
        "schema": SCHEMA,
        "run": run["run"],
        "mode": run["mode"],
        "generated_at": now.isoformat(timespec="seconds"),
        "seconds": round((now - datetime.fromisoformat(run["started_at"])).total_seconds(), 1),
        "rounds": run["rounds"],
        "refused": run["refused"],
        "segments": list(run["segments"]),
        "fabrics": [as_dict(fabric) for fabric in fabrics],
        "platform": platform_form(newest_mode(records), executor_ids),
        "records": records,
    }
    return Conclusion(fabrics, report, _host_records(fabrics, run["refused"]))


def ends_of(variables: Mapping[str, Any], started: str, collected: str) -> dict[str, Any]:
    """How the agent of each host of the play ended; ``started`` and ``collected`` name what the play has registered."""
    ends = {}
    for host in variables.get("ansible_play_hosts_all") or []:
        known = variables["hostvars"][host]
        start = known.get(started, {})
        # An agent that did not start says better why there are no records than their absence does.
        ends[host] = start if start.get("failure") else known.get(collected, {})
    return ends


def lost_hosts(planned: Iterable[str], ends: Mapping[str, Any]) -> dict[str, str]:
    """Hosts whose agent did not come to its own end, with the reason."""
    lost = {}
    for host in planned:
        end = ends.get(host) or {}
        how = end.get("ended")
        if end.get("unreachable") or not end:
            lost[host] = "the host could not be reached to collect its records"
        elif how is None:
            lost[host] = str(end.get("msg", "its records could not be collected"))
        elif how not in _FINE:
            lost[host] = f"its agent was {how}" + (f": {end['why']}" if end.get("why") else "")
    return lost


def _unheard(run: Mapping[str, Any], members: Collection[str], known: Records, now: datetime) -> Records:
    """A record for each planned test of which none came back, so that none disappears from the verdict."""
    settings = Settings(**run["options"]["settings"])
    missing = {}
    for server, client, rail in run["tests"]:
        test = LinkTest(server, client, rail)
        if server in members and test not in known:
            ends = Ends(server, client, *(RailAt(**run["rails"][host][rail]) for host in (server, client)))
            at = now.isoformat(timespec="milliseconds")
            missing[test] = not_measured(ends, rail, settings, "not_run", measured_at=at)
    return missing


def _locked(run: Mapping[str, Any], known: Records, ends: Mapping[str, Any], now: datetime) -> Records:
    """Tests that did not take place because another verification held a host's lock: skipped, and for that reason."""
    settings = Settings(**run["options"]["settings"])
    locked = {host for host, end in ends.items() if (end.get("failure") or {}).get("code") == "locked"}
    found = {}
    for test, record in known.items():
        if record["status"] in NO_TEST and locked.intersection(test[:2]):
            own = {host: RailAt(**run["rails"][host][test.rail]) for host in test[:2]}
            ends_of = Ends(test.server, test.client, own[test.server], own[test.client])
            at = now.isoformat(timespec="milliseconds")
            lost = min(locked.intersection(test[:2]))
            found[test] = not_measured(ends_of, test.rail, settings, "locked", measured_at=at, lost=lost)
    return found


def _host_records(fabrics: list[Fabric], refused: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    records = {}
    for fabric in fabrics:
        blocking = fabric.blocking()
        for host in fabric.hosts:
            open_peers = blocking.get(host, [])
            observed = f"{len(fabric.hosts) - 1 - len(open_peers)} of {len(fabric.hosts) - 1} pairs proven"
            if len(fabric.hosts) < 2:
                record = PAIRS.skipped("alone in its segment")
            elif not open_peers:
                slow = [row for test, row in fabric.records.items() if host in test[:2] and row["status"] == "WARN"]
                record = (
                    PAIRS.warn(f"{observed}, {len(slow)} tests slow", slow[0]["hint"] or "See the results")
                    if slow
                    else PAIRS.ok(observed)
                )
            else:
                accused = [part for part in fabric.guilty if any(host in test[:2] for test in part.tests)]
                fix = (
                    "; ".join(f"{name(part)}: {cause(part)[1]}" for part in accused[:3]) or "Run the verification again"
                )
                failed = any(frozenset((host, peer)) in fabric.failed for peer in open_peers)
                shown = f"{observed}; open with {', '.join(open_peers[:5])}" + (" …" if len(open_peers) > 5 else "")
                record = PAIRS.must_fix(shown, fix) if failed else PAIRS.unknown(shown, fix)
            records[host] = [record.as_dict()]
    for host, reason in refused.items():
        records[host] = [PAIRS.skipped(f"no test ran: {reason}").as_dict()]
    return records
