"""Adopt: take over a running cluster by its id, changing nothing (design, Inputs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pulumi_lium.api import Pod

from .context import Context
from .errors import InvalidInputs, OperationFailed
from .facts import facts_of_state, unmet
from .holder import holder_if_told
from .inputs import ClusterArgs
from .members import members_of
from .state import new_state
from .values import usd


def adopt(ctx: Context, cluster_id: str, args: ClusterArgs, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id and state of a running cluster. A difference between it and `nodes` or a selector is an error."""
    members = members_of(ctx.api.pods.list(), cluster_id)
    if not members:
        raise OperationFailed(
            f"No cluster {cluster_id} is listed for this account, so it cannot be adopted. Check the id and the"
            " account; to order a new cluster, remove `adopt`",
            code="nothing_to_adopt",
        )
    state = new_state(inputs, cluster_id, members, ordered_at_of(ctx, members), adopted=True, **facts_of(members))
    state["holder"] = holder_if_told(ctx)
    different = unmet(args.selectors, replace(facts_of_state(state), nodes=len(members)))
    if different:
        raise InvalidInputs(
            [(name, f"cluster {cluster_id} has {reason}. Nothing was changed") for name, reason in different]
        )
    for name in ("fabric_id", "fabric_type"):
        if getattr(args.selectors, name) is not None:
            ctx.report(f"warning: {name} cannot be read from a running cluster; it was not compared with {cluster_id}.")
    if args.ttl is not None:
        ctx.report("The ttl is not set while a cluster is adopted; the next `pulumi up` sets it.")
    ctx.report(f"{state['name']}: adopted cluster {cluster_id}, {usd(state['price_per_hour'])}.")
    return cluster_id, state


def facts_of(members: Sequence[Pod]) -> dict[str, Any]:
    """What an order would have told, as far as the listing tells it: a running cluster does not say its fabric."""
    template = next((pod.template.id for pod in members if pod.template and pod.template.id), None)
    return {
        "fabric_id": None,
        "fabric_type": None,
        "template_id": template,
        "pod_ids": [pod.id for pod in members],
    }


def ordered_at_of(ctx: Context, members: Sequence[Pod]) -> datetime:
    """When its first pod was made; now, where the service does not say."""
    return min((pod.created_at for pod in members if pod.created_at is not None), default=ctx.clock.now())
