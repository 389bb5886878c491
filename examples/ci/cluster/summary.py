"""A table of what the run's cluster cost, in Markdown: `python summary.py state.json teardown.json`.

`state.json` is the stack as `pulumi stack export` gave it before the teardown, `teardown.json` what
`pulumi-lium teardown --json` said. Neither has to be there: what cannot be read is unknown, and never nothing.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

CLUSTER = "dynamic/lium:Cluster"
# The service charges from RUNNING on; these hours count from the order.
HEAD = "| cluster | nodes | USD an hour | ordered (UTC) | hours | USD, at most | |\n|---|---|---|---|---|---|---|"
UNREAD = "unknown: the state could not be read"


def row(name: str, nodes: str, price: float | None, ordered: datetime | None, now: datetime, fate: str) -> str:
    cells = [name, nodes, "?" if price is None else f"{price:.2f}", "?", "?", "?", fate]
    if ordered is not None:
        hours = (now - ordered).total_seconds() / 3600
        cells[3:5] = [f"{ordered:%Y-%m-%d %H:%M}", f"{hours:.2f}"]
        cells[5] = "?" if price is None else f"{hours * price:.2f}"
    return f"| {' | '.join(cells)} |"


def clusters(deployment: dict) -> list[dict]:
    """Every cluster in the state, and every order in it that was interrupted."""
    found = []
    for resource in deployment.get("resources") or []:
        if resource["type"].endswith(CLUSTER):
            outputs = resource.get("outputs") or {}
            nodes = f"{outputs['nodes']:.0f} × {outputs['gpus_per_node']:.0f} {outputs['gpu_type']}"
            ordered = outputs.get("ordered_at")
            found.append(
                {
                    "name": outputs["name"],
                    "cluster_id": resource.get("id"),
                    "nodes": nodes,
                    "price_per_hour": outputs.get("price_per_hour"),
                    "ordered": datetime.fromisoformat(ordered) if ordered else None,
                    "gone": "removed",
                }
            )
    for operation in deployment.get("pending_operations") or []:
        resource = operation["resource"]
        if operation["type"] == "creating" and resource["type"].endswith(CLUSTER):
            inputs = resource["inputs"]
            price = (inputs.get("planned") or {}).get("price_per_hour")
            gone, nodes = "interrupted; nothing is left of it", f"{inputs['nodes']:.0f}"
            order = {"cluster_id": None, "price_per_hour": price, "ordered": None, "gone": gone}
            found.append({"name": inputs["name"], "nodes": nodes, **order})
    return found


def rows(known: list[dict], teardown: dict, now: datetime) -> list[str]:
    """A row for each cluster that the state or the teardown tells of."""
    left, removed = list(teardown.get("may_bill") or []), list(teardown.get("removed") or [])
    lines = []
    for cluster in known:
        keys = {cluster["name"], cluster["cluster_id"]} - {None}
        bills = [one for one in left if keys & {one["name"], one["cluster_id"]}]
        gone = [one for one in removed if any(key in one for key in keys)]
        left = [one for one in left if one not in bills]
        removed = [one for one in removed if one not in gone]
        price = bills[0]["price_per_hour"] if bills else cluster["price_per_hour"]
        is_gone = not bills and (gone or teardown.get("known"))
        fate = cluster["gone"] if is_gone else may_bill(price)
        lines.append(row(cluster["name"], cluster["nodes"], price, cluster["ordered"], now, fate))
    for one in left:
        age, price = one.get("age_seconds"), one["price_per_hour"]
        ordered = None if age is None else now - timedelta(seconds=age)
        lines.append(row(one["name"], "?", price, ordered, now, may_bill(price)))
    return lines + [row(one, "?", None, None, now, "removed") for one in removed]


def may_bill(price: float | None) -> str:
    return f"**may still bill{'' if price is None else f' {price:.2f} an hour'}**"


def read(file: str) -> dict | None:
    """The document; None where there is none that can be read."""
    try:
        document = json.loads(Path(file).read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def main(state_file: str, teardown_file: str) -> None:
    state, teardown, now = read(state_file), read(teardown_file) or {}, datetime.now(timezone.utc)
    is_read = (state is not None and "deployment" in state) or bool(teardown.get("missing"))
    lines = rows(clusters((state or {}).get("deployment") or {}), teardown, now)
    if not lines and is_read and teardown.get("known"):
        lines = ["| none | | | | | 0.00 | nothing was ordered |"]
    elif not lines:
        lines = [f"| ? | ? | ? | ? | ? | ? | {UNREAD if not is_read else 'unknown: the teardown could not tell'} |"]
    print("\n".join(["### Cluster", "", HEAD, *lines, ""]))
    if teardown.get("known") and not teardown["may_bill"] and not teardown["failures"]:
        return
    if not teardown.get("known"):
        print("The teardown could not see everything: more than this may still bill. Its log tells why.\n")
    elif not teardown["may_bill"]:
        print("Nothing bills, but the teardown did not end well. Its log tells why.\n")
    again = f"pulumi-lium teardown --stack {os.environ.get('STACK', 'STACK')}"
    print("What is left is removed, in this folder and with the secrets of the run, by\n")
    print("\n".join([f"    {command}" for command in teardown.get("remove_with") or [again]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
