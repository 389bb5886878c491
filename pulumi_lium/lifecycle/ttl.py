"""The time limit of a cluster: per pod, so every member has to get it (contract 5.2 step 9, 7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pulumi_lium.api import Pod
from pulumi_lium.api.errors import LiumError, NotFound

from .context import Context
from .errors import OperationFailed
from .members import name_member

_TOLERANCE = timedelta(seconds=60)


def schedule(ctx: Context, members: Sequence[Pod], at: datetime) -> tuple[list[Pod], list[str]]:
    """Schedules the removal of every member, each tried though another fails.

    Answers the members as they are then, and what has no removal time, with the reason.
    """
    updated, failed = [], []
    for pod in members:
        try:
            ctx.api.pods.schedule_removal(pod.id, at)
        except LiumError as error:
            failed.append(f"{name_member(pod)}: {error}")
            updated.append(pod)
        else:
            updated.append(pod.model_copy(update={"removal_scheduled_at": at}))
    return updated, failed


def cancel(ctx: Context, members: Sequence[Pod]) -> list[str]:
    """Takes back every scheduled removal. Answers what is still scheduled, and why."""
    failed = []
    for pod in members:
        if pod.removal_scheduled_at is None:
            continue
        try:
            ctx.api.pods.cancel_removal(pod.id)
        except NotFound:
            continue
        except LiumError as error:
            failed.append(f"{name_member(pod)}: {error}")
    return failed


def off_schedule(members: Sequence[Pod], at: datetime) -> list[Pod]:
    """Members that have no removal time, or another one."""
    return [
        pod for pod in members if pod.removal_scheduled_at is None or abs(pod.removal_scheduled_at - at) > _TOLERANCE
    ]


def removal_time(ordered_at: datetime, ttl: timedelta, now: datetime) -> datetime:
    """When the cluster ends: `ttl` counts from the order. Raises `OperationFailed` where that is over already."""
    at = ordered_at + ttl
    if at <= now:
        age = now - ordered_at
        raise OperationFailed(
            f"`ttl` counts from the order, which was {_hours(age)} ago: {_hours(ttl)} are over already, so the cluster"
            " would be removed at once. Give a longer ttl, or destroy the cluster. Nothing was changed",
            code="ttl_over",
        )
    return at


def earliest(members: Sequence[Pod]) -> datetime | None:
    """When the cluster ends, if every member has a removal time; None while one has none."""
    times = [pod.removal_scheduled_at for pod in members if pod.removal_scheduled_at is not None]
    return min(times) if times and len(times) == len(members) else None


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.1f} h"
