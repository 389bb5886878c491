"""What bills beside the resource at hand: reported, never touched (design 3.7).

Clusters with the owner's mark that nothing accounts for, and interrupted orders of the stack's other resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pulumi_lium.api import Pod

from .context import Context
from .intents import Intent
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


def report_interrupted(ctx: Context, owner: str) -> None:
    """Names the interrupted orders of the stack's other resources, which may have left the program since.

    They are not settled here: one whose resource is still in the program is its own create's to take over, and of one
    that was complete only the state tells whether it is owned. What a living process is at work on is left out.
    """
    if not owner:
        return
    ctx.handled.add(owner)
    stack = _stack_of(owner)
    with ctx.journal_may_fail():
        sent = [one for one in ctx.intents.abandoned() if one.stage != "opened" and _stack_of(one.owner) == stack]
        for intent in ctx.handled.untold(sent):
            ctx.report(
                f"warning: the order of {intent.pod_name!r} ({_place(intent)}) was interrupted: it may be billing"
                f" {usd(intent.price_per_hour)}. This run settles it if the program still has that resource. If not,"
                " run `pulumi stack export --file stack.json` after it, then `pulumi-lium sweep --stack-export"
                " stack.json --yes`, which removes the cluster unless the state holds it."
            )


def _stack_of(owner: str) -> str:
    return "/".join(owner.split("/", 3)[:3])


def _place(intent: Intent) -> str:
    cluster = f", cluster {intent.cluster_id}" if intent.cluster_id else ""
    return f"resource {intent.owner}{cluster}"
