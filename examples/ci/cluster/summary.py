"""A table of what the run's cluster cost, in Markdown: `python summary.py state.json OUTCOME`.

`state.json` is the stack as `pulumi stack export` gave it before the teardown; OUTCOME is the teardown's: `success`, or
anything else.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

CLUSTER = "dynamic/lium:Cluster"
HEAD = "| cluster | nodes | USD an hour | ordered (UTC) | hours | USD | |\n|---|---|---|---|---|---|---|"


def rows(deployment: dict, removed: bool, now: datetime) -> list[str]:
    """A row for each cluster in the state, and for each order that was interrupted."""
    found = []
    for resource in deployment.get("resources") or []:
        if resource["type"].endswith(CLUSTER):
            outputs = resource.get("outputs") or {}
            ordered = datetime.fromisoformat(outputs["ordered_at"])
            hours, price = (now - ordered).total_seconds() / 3600, outputs["price_per_hour"]
            fate = "removed" if removed else f"**may still bill {price:.2f} an hour**"
            nodes = f"{outputs['nodes']:.0f} × {outputs['gpus_per_node']:.0f} {outputs['gpu_type']}"
            cost = f"{price:.2f} | {ordered:%Y-%m-%d %H:%M} | {hours:.2f} | {hours * price:.2f}"
            found.append(f"| {outputs['name']} | {nodes} | {cost} | {fate} |")
    for operation in deployment.get("pending_operations") or []:
        resource = operation["resource"]
        if operation["type"] == "creating" and resource["type"].endswith(CLUSTER):
            inputs = resource["inputs"]
            price = (inputs.get("planned") or {}).get("price_per_hour")
            hourly = "?" if price is None else f"{price:.2f}"
            fate = "interrupted; nothing is left of it" if removed else f"**may bill {hourly} an hour**"
            found.append(f"| {inputs['name']} | {inputs['nodes']:.0f} | {hourly} | ? | ? | ? | {fate} |")
    return found


def main(file: str, outcome: str) -> None:
    try:
        deployment = json.loads(Path(file).read_text()).get("deployment") or {}
    except (OSError, ValueError):
        deployment = {}  # the run ended before it had a stack
    removed = outcome == "success"
    lines = rows(deployment, removed, datetime.now(timezone.utc)) or ["| none | | | | | 0.00 | nothing was ordered |"]
    print("\n".join(["### Cluster", "", HEAD, *lines, ""]))
    if not removed:
        print("The teardown failed: see its log for what may still bill and the command that removes it.\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
