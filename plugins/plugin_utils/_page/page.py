# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The report as one page for a browser: everything in it, no script, nothing fetched.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._record import (
    MUST_FIX,
    OK,
    SKIPPED,
    UNKNOWN,
    WARN,
    worst_status,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._page.pairs import overlay_map, roce_maps
from ansible_collections.lium.cluster.plugins.plugin_utils._report import areas_of, next_steps
from jinja2 import Environment, StrictUndefined

#: In the order of the tiles: the worst first. The sign stands beside the colour, for print and for eyes that see none.
WORDS = {
    MUST_FIX: "must be fixed",
    UNKNOWN: "could not be read",
    WARN: "warning",
    OK: "good",
    SKIPPED: "left out",
}
SIGNS = {MUST_FIX: "✕", UNKNOWN: "?", WARN: "!", OK: "✓", SKIPPED: "–"}


def render_page(report: Mapping[str, Any], roce: Mapping[str, Any] | None = None) -> str:
    """The page of a report (docs/schema/report.schema.json).

    ``roce``: the results of a verification (docs/schema/roce.schema.json), for the matrix of pairs.
    """
    hosts = report["hosts"]
    areas = areas_of(hosts)
    grid = {
        host["name"]: {
            area: worst_status(row["status"] for row in rows)
            for area in areas
            if (rows := [row for row in host["records"] if row["id"].split(".")[0] == area])
        }
        for host in hosts
    }
    template = (Path(__file__).parent / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        title=_title(report),
        report=report,
        words=WORDS,
        signs=SIGNS,
        steps=next_steps(hosts),
        areas=areas,
        grid=grid,
        checked={host["name"]: {row["id"] for row in host["records"]} for host in hosts},
        maps=[*(roce_maps(roce) if roce else []), *overlay_map(report.get("wireguard_pairs", []))],
        anchor=_anchor,
    )


def _title(report: Mapping[str, Any]) -> str:
    """What a person wants to know first; it is the name of the browser's tab as well."""
    hosts = report["hosts"]
    sellable = sum(len(fabric["sellable"]) for fabric in report["fabrics"])
    return f"{sellable} of {len(hosts)} host{'s' if len(hosts) != 1 else ''} can be sold"


def _anchor(*names: str) -> str:
    """The place of a host, or of one of its records, on the page."""
    return "-".join(re.sub(r"[^\w.]", "_", name) for name in names)
