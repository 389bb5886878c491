"""Clusters with an owner's mark in their name that nothing accounts for: reported, never touched (design 3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pulumi_lium.api import Pod

from .context import Context
from .members import by_rank, total_price
from .values import owner_digest, usd


@dataclass(frozen=True)
class Stranger:
    """A listed cluster with an owner's mark in its name that no intent and no state accounts for."""

    cluster_id: str
    name: str
    members: list[Pod]

    @property
    def price_per_hour(self) -> float | None:
        return total_price([pod.price_per_hour for pod in self.members])


def marked_by(name: str, owner: str) -> bool:
    """Whether a name was made for this owner (design, Names)."""
    return bool(owner) and re.fullmatch(rf".+-{owner_digest(owner)}-[0-9a-f]{{6}}", name) is not None


def owner_in(name: str, stack: str) -> str | None:
    """The owner that a name was made for, if that is a resource of this stack (`organization/project/stack`).

    Tells it of a stack whose state has no resource any more. Not of a resource below a component, nor of one whose own
    name was too long for a pod or had other characters than those of pod names.
    """
    found = re.fullmatch(r"(.+)-[0-9a-f]{6}-[0-9a-f]{6}", name)
    owner = f"{stack}/{found[1]}" if found else ""
    return owner if marked_by(name, owner) else None


def strangers(pods: Iterable[Pod], owner: str, accounted_for: Iterable[str] = ()) -> list[Stranger]:
    """Clusters that bear the owner's mark and are not among those accounted for (cluster ids, pod names)."""
    known = set(accounted_for)
    by_cluster: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.cluster_id and pod.cluster_id not in known and pod.name not in known and marked_by(pod.name, owner):
            by_cluster.setdefault(pod.cluster_id, []).append(pod)
    return [
        Stranger(cluster_id, members[0].name, by_rank(members))
        for cluster_id, members in sorted(by_cluster.items())
        if any(pod.is_billable or not pod.is_terminal for pod in members)
    ]


def report_strangers(ctx: Context, pods: Iterable[Pod], owner: str) -> None:
    """Names what a lost disk may have left behind. It is never touched: it might be another checkout's cluster."""
    for stranger in strangers(pods, owner):
        ctx.report(
            f"warning: cluster {stranger.cluster_id} ({stranger.name!r}, {usd(stranger.price_per_hour)}) bears the mark"
            " of this resource and no state or intent accounts for it; it was left alone. If it is a leftover, run"
            f" `pulumi-lium sweep --name-prefix {stranger.name} --yes`; `pulumi-lium recover` takes it into the state."
        )
