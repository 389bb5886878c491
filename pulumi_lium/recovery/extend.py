"""Moves the time limit of a running cluster: of every member, or it says which one kept the old time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pulumi_lium.api import Pod
from pulumi_lium.lifecycle import ttl
from pulumi_lium.lifecycle.adopt import ordered_at_of
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.errors import InvalidInputs, OperationFailed
from pulumi_lium.lifecycle.members import members_of, still_billing, total_price


@dataclass(frozen=True)
class Extension:
    """The new end. `ttl` is the span from the order, as the program's input has to say from now on."""

    cluster_id: str
    name: str
    before: datetime | None
    until: datetime
    ttl: timedelta
    price_per_hour: float | None

    @property
    def input(self) -> str:
        """The span as the input `ttl` takes it, in whole minutes."""
        minutes = round(self.ttl.total_seconds() / 60)
        return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def extend(
    ctx: Context,
    cluster_id: str,
    *,
    total: timedelta | None = None,
    by: timedelta | None = None,
    ordered_at: datetime | None = None,
) -> Extension:
    """Sets the end to `total` after the order, or moves the present one by `by`. Whole minutes after the order.

    `ordered_at` is the state's time; without it that of the oldest member counts. Raises where the cluster is gone, has
    no end that could be moved, or the new one is over already; nothing is changed then.
    """
    members = members_of(ctx.api.pods.list(), cluster_id)
    if not members:
        raise OperationFailed(f"No member of cluster {cluster_id} is listed: there is nothing to extend", code="gone")
    ordered = ordered_at or ordered_at_of(ctx, members)
    before = ttl.earliest(members)
    if total is None:
        if before is None or by is None:
            raise InvalidInputs([("by", f"cluster {cluster_id} has no time limit that could be moved: give --ttl")])
        total = before + by - ordered
    total = timedelta(minutes=-(-total // timedelta(minutes=1)))
    until = ttl.removal_time(ordered, total, ctx.clock.now())
    _, failed = ttl.schedule(ctx, members, until)
    left = members_of(ctx.api.pods.list(), cluster_id)
    price = total_price([pod.price_per_hour for pod in left])
    if failed:
        raise OperationFailed(
            f"The time limit of cluster {cluster_id} was not moved for {'; '.join(failed)}."
            f" {still_billing(left, price)} {_ends(left)} Run it again",
            code="ttl_incomplete",
        )
    return Extension(cluster_id, members[0].name, before, until, total, price)


def _ends(members: list[Pod]) -> str:
    times = {pod.removal_scheduled_at for pod in members}
    shown = ", ".join(sorted(f"{time:%Y-%m-%d %H:%M} UTC" if time else "never" for time in times))
    return f"Its members end at: {shown}."
