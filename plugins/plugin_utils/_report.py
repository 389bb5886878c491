# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one object for the JSON file, and the same as a table for the screen.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._record import (
    MUST_FIX,
    OK,
    SKIPPED,
    STATUSES,
    UNKNOWN,
    WARN,
    Record,
    merge_by_id,
    worst_status,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._sale import sale_lines

SCHEMA = "lium.cluster.report/1"

#: Evidence of a record that stands for a look that did not happen.
_NO_LOOK = "Ansible"
#: Stands below the table of a run that would have changed what was looked at.
BEFORE_CHANGES = (
    "Check mode: the hosts as they are before any change. What the run would change is above; what it would not mend is"
    " known after the real run."
)

#: How a status stands in the table: short, and readable without colour.
_CELL = {OK: "ok", WARN: "WARN", MUST_FIX: "FIX", UNKNOWN: "?", SKIPPED: "-"}


def records_of_host(results: Mapping[str, Any]) -> list[Record]:
    """The records of one host from what its tasks registered, later results over earlier ones.

    ``results`` maps the variable's name (``preflight_result``) to the registered value. A task that failed, or a host
    that did not answer, becomes a record of its own: nothing that was meant to be looked at disappears.
    """
    groups: list[list[Record]] = []
    for name, result in results.items():
        part = name.removesuffix("_result")
        if not isinstance(result, Mapping) or (result.get("skipped") and not result.get("unreachable")):
            continue
        if "records" in result:
            groups.append([Record.from_dict(row) for row in result["records"]])
        elif result.get("unreachable"):
            groups.append([_unreachable(result)])
        else:
            title = f"The checks of {part} could run"
            groups.append([_no_answer(f"{part}.ran", title, result, "Mend what the message says and run again")])
    if not groups:
        groups.append([_unreachable({})])
    return merge_by_id(*groups)


def facts_of_host(results: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of one host from what its tasks registered; of two with one name the later look's wins."""
    facts: dict[str, Any] = {}
    for result in results.values():
        if isinstance(result, Mapping) and "records" in result:
            facts.update(result.get("facts", {}))
    return facts


def _unreachable(result: Mapping[str, Any]) -> Record:
    return _no_answer("host.reachable", "Ansible reaches the host", result, "Mend the way to the host (ssh, become)")


def _no_answer(record_id: str, title: str, result: Mapping[str, Any], fix: str) -> Record:
    texts = (result.get("msg"), result.get("module_stderr"))
    message = ": ".join(str(text).strip() for text in texts if text) or "no result"
    return Record(
        id=record_id,
        title=title,
        status=MUST_FIX,
        observed=textwrap.shorten(message, 300),
        expected="an answer",
        remediation=f"{fix}. Why: a host that was not looked at counts as not sellable",
        evidence_source=_NO_LOOK,
        severity="blocker",
    )


def build_report(
    records: Mapping[str, Sequence[Record]], playbook: str, at: datetime, fabrics: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The report as the JSON file holds it (docs/schema/report.schema.json).

    ``at`` is aware; ``fabrics`` are those of `_sale.sale`.
    """
    hosts = [
        {
            "name": name,
            "status": worst_status(record.status for record in rows),
            "records": [record.as_dict() for record in rows],
        }
        for name, rows in sorted(records.items())
    ]
    statuses = [record.status for rows in records.values() for record in rows]
    counts = {status: statuses.count(status) for status in STATUSES}
    return {
        "schema": SCHEMA,
        "generated_at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "playbook": playbook,
        "status": worst_status(host["status"] for host in hosts),
        "counts": counts,
        "fabrics": list(fabrics),
        "hosts": hosts,
    }


def areas_of(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of the table: the first word of the records' ids, in the order in which the checks run."""
    return list(dict.fromkeys(record["id"].split(".")[0] for host in hosts for record in host["records"]))


def render(report: Mapping[str, Any]) -> str:
    """The last screen: hosts by area, what to do (hosts with the same task together), and what can be sold."""
    hosts = report["hosts"]
    areas = areas_of(hosts)
    rows = [["host", *areas]]
    for host in hosts:
        cells = []
        for area in areas:
            statuses = [record["status"] for record in host["records"] if record["id"].split(".")[0] == area]
            cells.append(_CELL[worst_status(statuses)] if statuses else "")
        rows.append([host["name"], *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(areas) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines += ["", "ok  WARN  FIX must be fixed  ? could not be read  - left out", ""]
    lines += _step_lines(hosts)
    if report["fabrics"]:
        lines += ["", *sale_lines(report["fabrics"])]
    return "\n".join(lines)


class Step(NamedTuple):
    """What has to be done, on all hosts that need the same."""

    status: str
    id: str
    title: str
    observed: str
    remediation: str
    hosts: list[str]


def next_steps(hosts: Sequence[Mapping[str, Any]]) -> list[Step]:
    """What has to be done, the worst first."""
    steps: dict[tuple[str, ...], Step] = {}
    for host in hosts:
        for record in host["records"]:
            if record["remediation"]:
                key = tuple(record[name] for name in ("status", "id", "observed", "remediation"))
                title = record["title"]
                steps.setdefault(key, Step(key[0], key[1], title, key[2], key[3], [])).hosts.append(host["name"])
    return sorted(steps.values(), key=lambda step: STATUSES.index(step.status))


def _step_lines(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    steps = next_steps(hosts)
    if not steps:
        return ["Nothing to do."]
    lines = ["What to do next"]
    for step in steps:
        lines.append(f"  {step.status:<8}  {step.id}  ({', '.join(step.hosts)})")
        for label, text in (("seen", step.observed), ("do", step.remediation)):
            lines += textwrap.wrap(text, 116, initial_indent=f"    {label + ':':<6}", subsequent_indent=" " * 10)
    return lines


def failure_message(report: Mapping[str, Any], before_changes: bool = False) -> str:
    """Why the play fails, or an empty text. Only ``MUST_FIX`` fails a play (design 4.4).

    ``before_changes``: the hosts were not changed, so that what is found on them may be what the real run mends. Then
    only a host that could not be looked at, or on which a role failed, is a reason.
    """
    wrong = {
        host["name"]: [
            record["id"]
            for record in host["records"]
            if record["status"] == MUST_FIX and (record["evidence_source"] == _NO_LOOK or not before_changes)
        ]
        for host in report["hosts"]
    }
    broken = [f"{name} ({', '.join(ids)})" for name, ids in wrong.items() if ids]
    return f"{len(broken)} of {len(report['hosts'])} hosts must be fixed: {'; '.join(broken)}" if broken else ""
