"""Verifications without agents: what was seen of each host, and the records that its agent would send."""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Plan
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import Reading, read
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import Ends, measured, not_measured
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import Conclusion, conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import OPTIONS, plan_reruns_of, plan_sweep
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder

NOW = datetime(2026, 11, 3, 10, 0, tzinfo=timezone.utc)
DROP = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"


def rail(address: str, device: str = "mlx5_0", gid_index: int = 3) -> dict[str, Any]:
    return {
        "device": device,
        "port": 1,
        "gid_index": gid_index,
        "address": address,
        "link_gbps": 200.0,
        "slot": [32.0, 16],
        "numa": 0,
    }


def looks(n: int, rails: int = 1) -> dict[str, Any]:
    return {
        f"gpu{number:02}": {
            "facts": {
                "roce": {"refused": "", "rails": [rail(f"10.20.30.{number + 1}", f"mlx5_{r}") for r in range(rails)]}
            }
        }
        for number in range(n)
    }


def options(**given: Any) -> dict[str, Any]:
    return {**{name: option.get("default") for name, option in OPTIONS.items()}, **given}


def finish(
    folder: RunFolder,
    failing: set[frozenset[str] | tuple[str, str]] = frozenset(),
    pass_name: str = SWEEP,
    lost: set[str] = frozenset(),
    left_out: set[frozenset[str]] = frozenset(),
    at: datetime = NOW,
) -> dict[str, Any]:
    """What agents would send: every test of the plans good at 195 Gb/s, but those of the failing pairs.

    A failing pair may be (server, client): then only that way fails.
    """
    ends = {}
    run = folder.read_run()
    for host in run["planned"]:
        plan = folder.read_plan(pass_name, host)
        if plan is None or host in lost:
            continue
        own = Plan.from_dict(json.loads(json.dumps(plan)))
        rows = []
        for appointment in own.appointments:
            for server, client, number in appointment.tests:
                ends_of = Ends(server, client, own.hosts[server][number], own.hosts[client][number])
                if lost & {server, client}:
                    rows.append(not_measured(ends_of, number, own.settings, "peer_lost", measured_at=at.isoformat()))
                    continue
                if frozenset((server, client)) in left_out:
                    rows.append(not_measured(ends_of, number, own.settings, "quarantined", measured_at=at.isoformat()))
                    continue
                bad = bool({frozenset((server, client)), (server, client)} & failing)
                reading = read(End(1, DROP)) if bad else Reading(195.0, None, 4096)
                rows.append(
                    measured(
                        ends_of,
                        number,
                        own.settings,
                        reading,
                        seconds=1.5,
                        measured_at=at.isoformat(),
                        counters={},
                        alone=appointment.alone,
                    )
                )
        folder.write_records(
            pass_name, host, base64.b64encode(zlib.compress("\n".join(map(json.dumps, rows)).encode())).decode()
        )
        ends[host] = {"ended": "done"}
    return ends


def verify(
    tmp_path: Path,
    n: int = 6,
    failing: set[frozenset[str] | tuple[str, str]] = frozenset(),
    at: datetime = NOW,
    **given: Any,
) -> Conclusion:
    folder = RunFolder(tempfile.mkdtemp(dir=tmp_path))
    planned = plan_sweep(options(**given), looks(n), folder, "run-1", at)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, failing, at=at)
    again = plan_reruns_of(folder, True)
    folder.write_plans(RERUN, again.plans)
    finish(folder, failing, RERUN, at=at)
    return conclude(folder, ends, {"gpu00": "11111111-1111-4111-8111-111111111111"}, at)


def save(path: Path, conclusion: Conclusion) -> Path:
    path.write_text(json.dumps(conclusion.report))
    return path
