"""The members of one cluster, and when their absence counts as gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pulumi_lium.api import Pod

from .context import Context
from .members import members_of

YOUNG = timedelta(seconds=120)
"""How long after an order one listing without its members proves nothing: the listing may lag behind."""
_LOOKS = 3
_BETWEEN_LOOKS = 3.0
"""Seconds; new pods are listed within about 6 s (contract 5.4)."""


SHARED = 2.0
"""Seconds for which resources that only compare themselves with the listing share one."""


def present_members(ctx: Context, cluster_id: str, ordered_at: Any = None, *, max_age: float = -1.0) -> list[Pod]:
    """The members by rank; none only if the cluster is truly gone. Raises what the listing raises.

    `ordered_at` is the state's ISO time. Shortly after it an empty listing is looked at again before it is believed.
    A listing may be `max_age` seconds old; by default it is asked for anew.
    """
    members = members_of(ctx.looks.pods(ctx.api, ctx.clock, max_age), cluster_id)
    for _ in range(_LOOKS - 1 if _is_young(ctx, ordered_at) else 0):
        if members:
            break
        ctx.clock.sleep(_BETWEEN_LOOKS)
        members = members_of(ctx.api.pods.list(), cluster_id)
    return members


def _is_young(ctx: Context, ordered_at: Any) -> bool:
    moment = parse_moment(ordered_at)
    return moment is not None and ctx.clock.now() - moment < YOUNG


def parse_moment(text: Any) -> datetime | None:
    """An aware time out of a state; None for whatever is none."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
