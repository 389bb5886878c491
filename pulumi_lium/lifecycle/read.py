"""Read: the cluster as it is now. Gone only when the listing was read and has no member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .adopt import facts_of, ordered_at_of
from .context import Context
from .holder import require_holder
from .listing import SHARED, present_members
from .state import inputs_of, new_state, observed, rows_of


@dataclass(frozen=True)
class Reading:
    """The refreshed state and, where the state tells what was asked for, the refreshed inputs."""

    state: dict[str, Any]
    inputs: dict[str, Any] | None


def read(ctx: Context, cluster_id: str, state: Mapping[str, Any]) -> Reading | None:
    """None for a cluster that is truly gone. A listing that fails, or is no list, raises: nothing is known then.

    With an empty `state` the id alone gives the whole state, as an import does.
    """
    ctx.note_in_state(cluster_id, state)
    members = present_members(ctx, cluster_id, state.get("ordered_at"), max_age=SHARED)
    if not members:
        require_holder(ctx, cluster_id, state)
        return None
    if not rows_of(state):
        found = new_state(
            {"nodes": len(members)}, cluster_id, members, ordered_at_of(ctx, members), **facts_of(members)
        )
        return Reading(found, None)
    refreshed = observed(state, members)
    if refreshed["lost"]:
        ctx.report(f"warning: {refreshed['name']}: cluster {cluster_id} is degraded: {'; '.join(refreshed['lost'])}.")
    return Reading(refreshed, inputs_of(refreshed, members))
