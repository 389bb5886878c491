"""Update in place: the time limit and the settings of later verbs. Always answers the whole state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import ttl
from .context import Context
from .errors import OperationFailed
from .holder import require_holder
from .inputs import cluster_args
from .listing import parse_moment, present_members
from .members import still_billing
from .state import observed, price_of, setting, with_inputs


def update(ctx: Context, cluster_id: str, state: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
    """The state under the new inputs; every output of before is in it, refreshed.

    A new `ttl` counts from the order and goes to every member; removing it takes every scheduled removal back. If one
    member cannot be changed, all are tried, and the update fails naming it.
    """
    ctx.note_in_state(cluster_id, state)
    args = cluster_args(news)
    members = present_members(ctx, cluster_id, state.get("ordered_at"))
    if not members:
        require_holder(ctx, cluster_id, state)
        raise OperationFailed(
            f"Cluster {cluster_id} is gone: no member is listed. Run `pulumi up` again to order it anew",
            code="cluster_gone",
        )
    failed, moved = list[str](), False
    if args.ttl is not None:
        ordered_at = parse_moment(state.get("ordered_at")) or min(
            (pod.created_at for pod in members if pod.created_at), default=ctx.clock.now()
        )
        late = ttl.off_schedule(members, ordered_at + args.ttl)
        if late:
            _, failed = ttl.schedule(ctx, late, ttl.removal_time(ordered_at, args.ttl, ctx.clock.now()))
            moved = True
    elif setting(state, "ttl") is not None:
        failed = ttl.cancel(ctx, members)
        moved = True
    if failed:
        raise OperationFailed(
            f"The time limit of cluster {cluster_id} could not be changed for {'; '.join(failed)}."
            f" {still_billing(members, price_of(state))} Run `pulumi up` again",
            code="ttl_incomplete",
        )
    if moved:
        members = present_members(ctx, cluster_id)
    return {**observed(with_inputs(state, news), members), "unscheduled": []}
