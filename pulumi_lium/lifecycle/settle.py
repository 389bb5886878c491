"""From a sent order to its members: every answer, and every lack of one, is followed to its end (contract 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from pulumi_lium.api import (
    RENT_IDEMPOTENCY,
    ClusterOrder,
    Conflict,
    Forbidden,
    OrderAnswer,
    Pod,
    QuotaExceeded,
    Unauthorized,
)
from pulumi_lium.api.errors import LiumError

from .context import Context
from .errors import OrderUnsettled
from .intents import Intent
from .members import by_rank
from .values import usd

IN_FLIGHT_SECONDS = 330.0
"""How long an order may still be running at the service: its lock of 300 s (contract 4.8), and a little."""
_RESENDS = (1.0, 2.0, 4.0)
"""Seconds before each resend whose answer gets lost again. The same key and body cannot order twice."""
_IN_PROGRESS = 5.0
_LOOKS = (0.0, 3.0, 3.0, 4.0, 5.0, 5.0, 10.0)
"""Seconds before each look at the listing."""


@dataclass(frozen=True)
class Placed:
    """A cluster that stands in the listing. Members may be missing; what is there is ours."""

    cluster_id: str
    members: list[Pod]
    pod_ids: tuple[str, ...]


def send(ctx: Context, intent: Intent) -> OrderAnswer | LiumError:
    """Sends the order once, the intent kept before. A definite refusal raises; an unknown outcome is returned.

    The intent stays open until the engine asks about the cluster, or nothing exists.
    """
    ctx.require_caller()
    ctx.intents.open(intent)
    ctx.looks.forget_offers()
    try:
        ctx.intents.note(_leaving(ctx, intent))
        return _post(ctx, intent)
    except LiumError as error:
        if error.outcome_unknown:
            return error
        ctx.intents.close(intent.idempotency_key)
        raise


def settle(ctx: Context, intent: Intent, outcome: OrderAnswer | LiumError) -> Placed:
    """The members of a sent order. Raises `OrderUnsettled` where neither answers nor the listing tell its outcome."""
    refusal: LiumError | None = None
    if isinstance(outcome, LiumError):
        outcome, refusal = _resend(ctx, intent, outcome)
    # Counted from the latest moment at which it can have left: its pods may be listed a while after that.
    intent = _leaving(ctx, intent)
    if isinstance(outcome, OrderAnswer) and outcome.pod_ids:
        note(ctx, replace(intent, stage="answered", pod_ids=tuple(outcome.pod_ids)))
        _limit(ctx, intent, outcome.pod_ids)
        placed = _find(ctx, intent, frozenset(outcome.pod_ids))
    else:
        placed = _find(ctx, intent, frozenset())
    if placed is not None:
        note(ctx, replace(intent, stage="listed", pod_ids=placed.pod_ids, cluster_id=placed.cluster_id))
        return placed
    if refusal is not None:
        ctx.intents.close(intent.idempotency_key)
        raise refusal
    raise _unsettled(intent, outcome)


def _limit(ctx: Context, intent: Intent, pod_ids: Iterable[str]) -> None:
    """Sets the removal time of every pod at the first moment at which its id is known.

    Until then nothing but this process bounds what the cluster costs, should the machine be lost with its disk. What
    fails here is tried again, and told, once the members are listed.
    """
    if intent.ttl_seconds is None:
        return
    at = intent.opened_at + timedelta(seconds=intent.ttl_seconds)
    if at <= ctx.clock.now():
        return  # of an old order that is placed only now: whoever takes it over sets the time
    for pod_id in pod_ids:
        with suppress(LiumError):
            ctx.api.pods.schedule_removal(pod_id, at)


def _resend(ctx: Context, intent: Intent, lost: LiumError) -> tuple[OrderAnswer | LiumError, LiumError | None]:
    """Asks again with the same key and body, where that is safe: (what is known now, a definite refusal).

    A refusal of the resend alone (its key, its budget) says nothing about the first order. Any other refusal is
    believed only if the listing has no such cluster: the first order may hold the machines that the second lacks.
    """
    ctx.report(f"{intent.pod_name}: the answer to the order was lost ({lost.message}); finding out what came of it.")
    if not honours_keys(ctx):
        return lost, None
    deadline = ctx.clock.monotonic() + IN_FLIGHT_SECONDS
    waits = list(_RESENDS)
    wait = waits.pop(0)
    while True:
        ctx.clock.sleep(wait)
        note(ctx, _leaving(ctx, intent))
        try:
            return _post(ctx, intent), None
        except LiumError as error:
            lost = error
        if isinstance(lost, Conflict) and lost.code == "idempotency_in_progress":
            if ctx.clock.monotonic() > deadline:
                return lost, None
            wait = max(_IN_PROGRESS, lost.retry_after or 0.0)
        elif isinstance(lost, (Unauthorized, Forbidden, QuotaExceeded)):
            return lost, None
        elif not lost.outcome_unknown and not _not_sent(lost):
            return lost, lost
        elif isinstance(lost, Conflict) or not waits:
            return lost, None
        else:
            wait = waits.pop(0)


def _leaving(ctx: Context, intent: Intent) -> Intent:
    """The intent of an order that may reach the service from now on."""
    return replace(intent, stage="sent", sent_at=ctx.clock.now())


def _not_sent(error: LiumError) -> bool:
    """The resend never left: that says nothing about the first order."""
    return getattr(error, "sent", True) is False


def honours_keys(ctx: Context) -> bool:
    """Whether the service promises to answer a known key instead of ordering again; unreachable counts as no."""
    try:
        return RENT_IDEMPOTENCY in ctx.api.service.version().features
    except LiumError:
        return False


def _post(ctx: Context, intent: Intent) -> OrderAnswer:
    return ctx.api.clusters.order(
        ClusterOrder(**intent.body),
        idempotency_key=intent.idempotency_key,
        # After a 429 it leaves again up to a minute later, and may arrive for as long after that.
        before_repeat=lambda: note(ctx, _leaving(ctx, intent)),
    )


def _find(ctx: Context, intent: Intent, pod_ids: frozenset[str]) -> Placed | None:
    """Looks until every member is listed; at the end, what there is.

    By the pods that the answer named; without an answer by the exact name, in clusters that the snapshot does not have.
    That is also the last resort where none of the named pods is ever listed.
    """
    partial: Placed | None = None
    pods: list[Pod] = []
    for wait in _LOOKS:
        ctx.clock.sleep(wait)
        try:
            pods = ctx.api.pods.list()
        except LiumError as error:
            ctx.report(f"{intent.pod_name}: the listing fails, so the new members cannot be seen yet: {error.message}")
            continue
        partial = members_of_order(pods, intent, pod_ids) or partial
        if partial and len(partial.members) >= (len(pod_ids) or intent.nodes):
            return partial
    if partial is None and pod_ids:
        partial = _one_by_one(ctx, pod_ids) or members_of_order(pods, intent, frozenset())
    if partial is not None:
        ctx.report(
            f"warning: {intent.pod_name}: only {len(partial.members)} of {intent.nodes} nodes are listed;"
            f" cluster {partial.cluster_id} is kept in the state, billing up to {usd(intent.price_per_hour)}."
        )
    return partial


def members_of_order(pods: Iterable[Pod], intent: Intent, pod_ids: frozenset[str]) -> Placed | None:
    """The order's cluster in this listing, by the pods that the answer named, else by name; None if it shows none.

    Raises `OrderUnsettled` where several clusters could be it: none of them is touched then.
    """
    if pod_ids:
        named = [pod for pod in pods if pod.id in pod_ids]
    else:
        named = [pod for pod in pods if pod.name == intent.pod_name and pod.cluster_id not in intent.snapshot]
    clusters = {pod.cluster_id for pod in named if pod.cluster_id}
    if len(clusters) > 1:
        raise _unsettled(intent, None, f"several clusters bear its name ({', '.join(sorted(clusters))})")
    if not clusters:
        return None
    cluster_id = clusters.pop()
    members = by_rank(pod for pod in named if pod.cluster_id == cluster_id)
    return Placed(cluster_id, members, tuple(pod.id for pod in members))


def _one_by_one(ctx: Context, pod_ids: frozenset[str]) -> Placed | None:
    """The named pods, asked for each by itself: a last way to the cluster's id."""
    found = []
    for pod_id in sorted(pod_ids):
        try:
            pod = ctx.api.pods.get(pod_id)
        except LiumError:
            continue
        if pod.cluster_id:
            found.append(pod)
    if len({pod.cluster_id for pod in found}) != 1:
        return None
    members = by_rank(found)
    return Placed(members[0].cluster_id or "", members, tuple(pod.id for pod in members))


def note(ctx: Context, intent: Intent) -> None:
    """A note that fails must not lose the cluster: the record written before the order still stands."""
    try:
        ctx.intents.note(intent)
    except LiumError as error:
        ctx.report(f"warning: {intent.pod_name}: {error}")


def _unsettled(intent: Intent, outcome: OrderAnswer | LiumError | None, why: str = "") -> OrderUnsettled:
    price = usd(intent.price_per_hour)
    if isinstance(outcome, OrderAnswer):
        named = f": pods {', '.join(outcome.pod_ids)}" if outcome.pod_ids else ""
        why = f"the service accepted it{named}, but no listing shows its members"
    elif outcome is not None:
        why = f"no answer came ({outcome.message}) and no listing shows pods of that name"
    return OrderUnsettled(
        f"The order of {intent.pod_name!r} ({intent.nodes} nodes, {price}) was sent, and what came of it is not known:"
        f" {why}. It may be billing {price}. Before the next `pulumi up`, run `pulumi-lium sweep"
        f" --name-prefix {intent.pod_name}`: it lists what bears this name, with its price, and removes it with --yes;"
        " a cluster that you want to keep is taken over with adopt",
        status=getattr(outcome, "status", None),
        request_id=getattr(outcome, "request_id", None),
    )
