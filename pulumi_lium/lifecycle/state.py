"""The state of a cluster: what the service answered, and what was asked for. Always whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pulumi_lium.api import Pod, short_gpu_type

from . import ttl
from .members import SCHEMA_VERSION, launch_outputs, lost_ranks, may_bill, member_row, order_status, total_price


def new_state(
    inputs: Mapping[str, Any], cluster_id: str, members: Sequence[Pod], ordered_at: datetime, **facts: Any
) -> dict[str, Any]:
    """The state right after the order (or the adoption). `facts` are those that the listing does not tell."""
    state = {
        "schema_version": SCHEMA_VERSION,
        "cluster_id": cluster_id,
        "ordered_at": ordered_at.isoformat(),
        **facts,
    }
    return observed(with_inputs(state, inputs), members)


def with_inputs(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The state under these inputs: `requested` is what was asked for, as `check` left it."""
    requested = {name: value for name, value in inputs.items() if not name.startswith("__") and value is not None}
    return {**state, "nodes": whole(requested.get("nodes", state.get("nodes"))), "requested": requested}


def setting(state: Mapping[str, Any], name: str) -> Any:
    """A setting out of the state. States of other versions have it at the top."""
    requested = state.get("requested")
    found = requested.get(name) if isinstance(requested, Mapping) else None
    return state.get(name) if found is None else found


def rows_of(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The members that the state knows, by rank. A state without rows may still have the pod ids."""
    rows = [
        {**row, "rank": whole(row.get("rank")), "gpu_count": whole(row.get("gpu_count"))}
        for row in state.get("members") or ()
        if isinstance(row, Mapping)
    ]
    return rows or [{"rank": rank, "pod_id": pod} for rank, pod in enumerate(state.get("pod_ids") or ())]


def observed(state: Mapping[str, Any], members: Sequence[Pod]) -> dict[str, Any]:
    """The state with what this listing shows.

    Rows of lost members stay, and so do the addresses made of them: the state describes the cluster that was ordered,
    `status` and `lost` say what is left of it. The price is that of the members which are there.
    """
    known, nodes = rows_of(state), whole(state.get("nodes"))
    lost = lost_ranks(known, nodes, members)
    rows = [member_row(pod) for pod in members]
    listed = {pod.id for pod in members}
    everyone = [*rows, *(row for row in known if row.get("pod_id") not in listed)]
    everyone.sort(key=lambda row: (row.get("rank") is None, row.get("rank") or 0))
    price = total_price([pod.price_per_hour for pod in members if may_bill(pod)])
    ends = ttl.earliest(members)
    models = [row["gpu_model"] for row in rows if row["gpu_model"]]
    return {
        **state,
        "name": next((pod.name for pod in members if pod.name), state.get("name")),
        "status": order_status(lost, members),
        "lost": lost,
        "members": everyone,
        "gpu_type": short_gpu_type(models[0]) if models else state.get("gpu_type"),
        "gpus_per_node": next((row["gpu_count"] for row in rows if row["gpu_count"]), state.get("gpus_per_node")),
        "price_per_hour": price if price is not None else state.get("price_per_hour"),
        "expires_at": ends.isoformat() if ends else None,
        "unscheduled": [] if ends else state.get("unscheduled") or [],
        **launch_outputs(everyone, nodes or len(everyone)),
    }


def inputs_of(state: Mapping[str, Any], members: Sequence[Pod]) -> dict[str, Any] | None:
    """The inputs as they would now describe the cluster; None where the state does not tell what was asked for."""
    requested = state.get("requested")
    if not isinstance(requested, Mapping):
        return None
    inputs = dict(requested)
    inputs["nodes"] = sum(not pod.is_terminal for pod in members)
    if all(pod.removal_scheduled_at is None for pod in members):
        inputs.pop("ttl", None)
    return inputs


def price_of(state: Mapping[str, Any]) -> float | None:
    """USD an hour, as the state has it."""
    price = state.get("price_per_hour")
    return float(price) if isinstance(price, (int, float)) else None


def whole(value: Any) -> int | None:
    """A count out of a state, where numbers are floats; None for what is none."""
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
