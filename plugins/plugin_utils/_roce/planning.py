# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which hosts meet in a run, and the plans that follow, from what was seen of each host.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import Limits
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import (
    CONTROL_PORT,
    Options,
    rerun_plans,
    sweep_plans,
)
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import RerunRound, plan_reruns, resume
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import Round, timetable
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import (
    joined,
    load,
    outcomes,
    still_proven,
    test_of,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP, RunFolder

PLATFORM = "platform"
FULL = "full"
INCAST = "incast"

#: Options of the module roce_plan. None means: what the mode has (host-contract 5.2).
OPTIONS: dict[str, dict[str, Any]] = {
    "pass_name": {"type": "str", "choices": ["sweep", "rerun"], "default": "sweep"},
    "run_folder": {"type": "path"},
    "look": {"type": "str", "default": "roce_verify_look"},
    "lossless": {"type": "str", "default": "lossless_result"},
    "mode": {"type": "str", "choices": [PLATFORM, FULL, INCAST], "default": PLATFORM},
    "port": {"type": "int"},
    "iterations": {"type": "int"},
    "duration_s": {"type": "int"},
    "qps": {"type": "int"},
    "tclass": {"type": "int"},
    "image": {"type": "str"},
    "pair_timeout_s": {"type": "float", "default": 30},
    "listen_wait_s": {"type": "float", "default": 10},
    "patience_s": {"type": "float", "default": 20},
    "start_wait_s": {"type": "float", "default": 120},
    "retry": {"type": "int", "default": 1},
    "reruns": {"type": "bool", "default": True},
    "budget_s": {"type": "float"},
    "control_port": {"type": "int", "default": CONTROL_PORT},
    "results_path": {"type": "path"},
    "max_age_s": {"type": "float", "default": 21600},
    # The platform assumes a /24, whatever the real prefix is (host-contract 0.2, P4).
    "prefix_length": {"type": "int", "default": 24},
}
_DEFAULTS = {
    PLATFORM: {"port": 18515, "iterations": 1000, "duration_s": 0, "qps": 1},
    FULL: {"port": 18615, "iterations": 5000, "duration_s": 10, "qps": 4},
    INCAST: {"port": 18615, "iterations": 5000, "duration_s": 10, "qps": 4},
}
_GRACE_S = 60.0


class Planned(NamedTuple):
    """The plans of a pass, what they come to, and how long a collector has to wait for the longest of them."""

    folder: RunFolder
    plans: dict[str, Any]
    counts: dict[str, Any]
    wait_s: float
    summary: str


def settings_of(options: Mapping[str, Any]) -> Settings:
    """The test's settings: the mode's own, and above them what was given. Refuses what the platform does not do."""
    mode = options["mode"]
    given = {key: options[key] for key in ("port", "iterations", "duration_s", "qps", "tclass", "image")}
    if mode == PLATFORM:
        other = [key for key in ("iterations", "duration_s", "qps", "tclass") if given[key] is not None]
        if other:
            raise ValueError(f"{', '.join(other)}: the platform's probe has its own value; use the mode full to set it")
    elif given["image"]:
        raise ValueError("image: the platform's image knows the platform's arguments only; use the mode platform")
    chosen = {**_DEFAULTS[mode], **{key: value for key, value in given.items() if value is not None}}
    if mode == INCAST and (given["iterations"] is not None or chosen["duration_s"] <= 0):
        raise ValueError("duration_s: the senders of an incast run side by side for some seconds, not for iterations")
    return Settings(**chosen, diagnostic=mode != PLATFORM, incast=mode == INCAST)


def check_options(options: Mapping[str, Any], ports: int) -> None:
    """Refuses numbers that no run can work with; the text names the option.

    ``ports`` is the most that a host needs: one a rail, in an incast one a sender.
    """
    for name in ("pair_timeout_s", "listen_wait_s", "patience_s", "budget_s"):
        if options[name] is not None and options[name] <= 0:
            raise ValueError(f"{name}: must be more than 0 seconds, not {options[name]:g}")
    for name in ("start_wait_s", "retry", "max_age_s"):
        if options[name] < 0:
            raise ValueError(f"{name}: must not be negative, is {options[name]:g}")
    if not 8 <= options["prefix_length"] <= 32:
        raise ValueError(f"prefix_length: must be from 8 to 32, not {options['prefix_length']}")
    settings = settings_of(options)
    if options["control_port"] in {settings.port_of(rail) for rail in range(max(ports, 1))}:
        raise ValueError(f"control_port: {options['control_port']} is a port of the tests as well; choose another")


def plan_sweep(
    options: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]], folder: RunFolder, run: str, now: datetime
) -> Planned:
    """Plans a sweep over all hosts that may be tested. ``looks`` holds what the module roce_info said of each host.

    Raises ``ValueError`` for options that contradict each other.
    """
    check_options(options, max((len(_rows(look)) for look in looks.values()), default=1))
    settings = settings_of(options)
    refused, rails, segments = candidates(options, looks)
    earlier = load(options["results_path"]) if options["results_path"] else []
    kept = still_proven(earlier, rails, settings=settings, now=now, max_age_s=options["max_age_s"])
    full = options["mode"] == FULL
    tables = [
        timetable(
            {host: range(len(rails[host])) for host in hosts},
            wanted_rails=None if full else [0],
            both_directions=full,
            proven=kept,
        )
        for hosts in segments.values()
    ]
    # Segments share no host, so their rounds run side by side.
    rounds: list[Round] = [list(chain.from_iterable(side)) for side in zip_longest(*tables, fillvalue=[])]
    run_options = run_options_of(options, run, settings)
    plans = sweep_plans(run_options, rails, rounds)
    folder.write_run(
        {
            "run": run,
            "mode": options["mode"],
            "started_at": now.isoformat(),
            "segments": segments,
            "refused": refused,
            "rails": {host: [rail._asdict() for rail in own] for host, own in rails.items()},
            "kept": list(kept.values()),
            "earlier": earlier,
            "options": {
                **run_options._asdict(),
                "settings": settings._asdict(),
                "limits": run_options.limits._asdict(),
            },
            "planned": sorted(plans),
            "tests": [test for meetings in rounds for meeting in meetings for test in meeting.tests],
            "rounds": len(rounds),
        }
    )
    pairs = len({frozenset(meeting[:2]) for meetings in rounds for meeting in meetings})
    tests = sum(len(meeting.tests) for meetings in rounds for meeting in meetings)
    counts = {"pairs": pairs, "tests": tests, "rounds": len(rounds), "kept": len(kept), "refused": refused}
    summary = (
        f"RoCE verification {run} ({options['mode']}): {len(rails)} hosts, {pairs} pairs, {tests} tests in"
        f" {len(rounds)} rounds; {len(kept)} tests are proven and fresh; {len(refused)} hosts refused"
    )
    return Planned(folder, plans, counts, longest(plans), summary + refusals(refused))


class Candidates(NamedTuple):
    """Reason by refused host; rails of the others; the others by segment."""

    refused: dict[str, str]
    rails: dict[str, tuple[RailAt, ...]]
    segments: dict[str, list[str]]


def candidates(options: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]) -> Candidates:
    """Which hosts may be tested, and who with whom."""
    refused = {host: reason for host, look in looks.items() if (reason := _refusal(look))}
    rails = {
        host: tuple(_rail(row) for row in look["facts"]["roce"]["rails"])
        for host, look in looks.items()
        if host not in refused
    }
    refused.update(_duplicates(rails))
    rails = {host: own for host, own in rails.items() if host not in refused}
    segments: dict[str, list[str]] = defaultdict(list)
    for host in sorted(rails):
        address = f"{rails[host][0].address}/{options['prefix_length']}"
        segments[str(ipaddress.IPv4Network(address, strict=False))].append(host)
    return Candidates(refused, rails, segments)


def run_options_of(options: Mapping[str, Any], run: str, settings: Settings) -> Options:
    """What holds for all hosts of a run."""
    test_s = options["pair_timeout_s"] + settings.duration_s
    limits = Limits(test_s, options["listen_wait_s"], options["retry"], options["patience_s"])
    return Options(run, settings, limits, options["control_port"], options["budget_s"], options["start_wait_s"])


def refusals(refused: Mapping[str, str]) -> str:
    """Refused hosts as lines for the screen."""
    return "".join(f"\n  {host}: {reason}" for host, reason in refused.items())


def plan_reruns_of(folder: RunFolder, wanted: bool) -> Planned:
    """Plans what is left to find out after the sweep; no plan where nothing went wrong, or none is wanted."""
    run = folder.read_run()
    rails = {host: tuple(_rail(row) for row in rows) for host, rows in run["rails"].items()}
    records = [*run["kept"], *joined(folder.records(SWEEP)).values()]
    tables: list[list[RerunRound]] = []
    for hosts in run["segments"].values() if wanted else ():
        members = set(hosts)
        seen = [record for record in records if record["a"] in members]
        own = outcomes(seen)
        left_out = {test_of(record) for record in seen if record["class"] == "quarantined"}
        tables.append(plan_reruns(own, {host: range(len(rails[host])) for host in hosts}) + resume(own, left_out))
    # A test that is alone in its segment is not alone while another segment's runs, but shares no link with it.
    rounds = [
        RerunRound(tuple(test for again in side for test in again.tests), all(again.alone for again in side))
        for side in ([again for again in row if again is not None] for row in zip_longest(*tables, fillvalue=None))
    ]
    plans = rerun_plans(_options(run), rails, rounds)
    counts = {"rounds": len(rounds), "tests": sum(len(again.tests) for again in rounds)}
    summary = (
        f"{counts['tests']} tests more in {len(rounds)} rounds, to find the guilty part"
        if rounds
        else "Nothing to repeat"
    )
    return Planned(folder, plans, counts, longest(plans), summary)


def _rows(look: Mapping[str, Any]) -> list[Any]:
    """The rails that roce_info found, none where it could not look."""
    roce = look.get("facts", {}).get("roce") or {}
    return list(roce.get("rails", []))


def _refusal(look: Mapping[str, Any]) -> str:
    """Why a host takes no part. A host that could not be looked at takes none."""
    roce = look.get("facts", {}).get("roce") if isinstance(look, Mapping) else None
    if roce is None:
        return f"could not be looked at: {look.get('msg', 'no result')}"
    return str(roce["refused"])


def _duplicates(rails: Mapping[str, Sequence[RailAt]]) -> dict[str, str]:
    """Hosts that claim one address; the platform drops them all (P6)."""
    claims: dict[str, set[str]] = defaultdict(set)
    for host, own in rails.items():
        for rail in own:
            claims[rail.address].add(host)
    return {
        host: f"roce.duplicate_address: {address} on {', '.join(sorted(hosts))}"
        for address, hosts in claims.items()
        if len(hosts) > 1
        for host in sorted(hosts)
    }


def _rail(row: Mapping[str, Any]) -> RailAt:
    slot = row.get("slot")
    return RailAt(**{**row, "slot": tuple(slot) if slot else None, "netdevs": tuple(row.get("netdevs", ()))})


def _options(run: Mapping[str, Any]) -> Options:
    row = run["options"]
    return Options(
        **{**row, "settings": Settings(**row["settings"]), "limits": Limits(**row["limits"]), "budget_s": None}
    )


def longest(plans: Mapping[str, Any]) -> float:
    """How many seconds a collector waits for the agents at most."""
    return max((plan["budget_s"] for plan in plans.values()), default=0.0) + _GRACE_S
