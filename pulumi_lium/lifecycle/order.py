"""Create: one order, whose outcome is known before anything else happens (contract 5.2 to 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pulumi_lium.api import (
    CLUSTER_IMAGE,
    ClusterOrder,
    Conflict,
    Invalid,
    NotFound,
    Offer,
    OrderAnswer,
    OrderRefused,
    Pod,
)
from pulumi_lium.api.errors import LiumError

from . import ttl
from .abandoned import resolve
from .adopt import adopt
from .context import Context
from .errors import InvalidInputs, NothingMatches, OperationFailed, OrderUnsettled
from .holder import holder_if_told
from .inputs import ClusterArgs, cluster_args
from .intents import Intent, Stage
from .members import by_rank
from .resume import resume
from .selection import Pick, select
from .settle import Placed, note, send, settle
from .state import new_state
from .strangers import report_interrupted, report_strangers
from .values import idempotency_key, pod_name, usd

_PICKS = 3
"""The first choice, and two more when a machine was taken meanwhile."""
_RECENT_S = 3.0
"""Seconds for which offers may be ordered from. The engine asks to create right after it has asked to check."""


@dataclass(frozen=True)
class Created:
    """What a create answers: the cluster's id and its whole state."""

    cluster_id: str
    state: dict[str, Any]


def order(ctx: Context, inputs: Mapping[str, Any]) -> Created:
    """Orders the cluster (or adopts one, or takes over that of an interrupted order) and returns as soon as its members
    are listed.

    What raises has rented nothing, but for `OrderUnsettled`, which says what may be billing. Once the service has named
    the cluster nothing raises any more: the engine has to get it into its state, whatever else went wrong.
    """
    args = cluster_args(inputs)
    if args.adopt is not None:
        cluster_id, state = adopt(ctx, args.adopt, args, inputs)
        return Created(cluster_id, state)
    args = replace(
        args,
        name=args.name or pod_name("cluster", args.owner, ctx.rng),
        idempotency_key=args.idempotency_key or idempotency_key(ctx.rng),
    )
    taken_over = resume(ctx, args, inputs)
    # Only now: what the creates beside this one have begun to settle meanwhile is no news.
    report_interrupted(ctx, args.owner)
    if taken_over is not None:
        return Created(*taken_over)
    template_id = args.template_id or newest_template(ctx)
    intent, pick, outcome = _send(ctx, args, template_id)
    placed = _placed(ctx, intent, outcome)
    ctx.report(f"{args.name}: ordered {pick.describe()}; cluster {placed.cluster_id}.")
    members, unscheduled = _limit(ctx, args, intent, placed)
    state = new_state(
        inputs,
        placed.cluster_id,
        members,
        intent.opened_at,
        name=args.name,
        fabric_id=pick.offer.fabric_id,
        fabric_type=pick.offer.fabric_type,
        gpu_type=pick.offer.gpu_type,
        gpus_per_node=pick.offer.gpus_per_node,
        price_per_hour=pick.price_per_hour,
        template_id=template_id,
        idempotency_key=intent.idempotency_key,
        pod_ids=list(placed.pod_ids),
        unscheduled=unscheduled,
        holder=intent.holder,
    )
    return Created(placed.cluster_id, state)


def newest_template(ctx: Context) -> str:
    """The template of the newest cluster image (contract 3.4)."""
    found = [template for template in ctx.api.templates.list() if template.is_cluster_image and template.id]
    if not found:
        raise OperationFailed(
            f"No template with the image {CLUSTER_IMAGE} is visible to this key, so nothing was ordered",
            code="no_template",
            hint="Set template_id.",
        )
    return max(found, key=lambda template: (template.tag_order, template.id)).id


def _send(ctx: Context, args: ClusterArgs, template_id: str) -> tuple[Intent, Pick, OrderAnswer | LiumError]:
    """Chooses machines and orders them, under the process's lock until the service has answered."""
    try:
        with ctx.claims.ordering():
            return _send_picks(ctx, args, template_id)
    finally:
        ctx.claims.release(args.owner)


def _send_picks(ctx: Context, args: ClusterArgs, template_id: str) -> tuple[Intent, Pick, OrderAnswer | LiumError]:
    """One order; after a refusal because a machine is taken, others under a new key."""
    snapshot, ordered_by = _snapshot(ctx, args), holder_if_told(ctx)
    pick = _first(ctx, args)
    key, taken = args.idempotency_key or "", frozenset[str]()
    picks_left = _PICKS
    while True:
        intent = replace(_intent(ctx, args, template_id, snapshot, pick, key), holder=ordered_by)
        try:
            return intent, pick, send(ctx, intent)
        except (OrderRefused, Conflict, Invalid, NotFound) as refusal:
            refusal.hint = refusal.hint or "Nothing was rented. Run `pulumi up` again, or change the order."
            picks_left -= 1
            if not picks_left or args.selectors.machines is not None:
                raise
            offers = ctx.api.offers.list()
            taken |= _taken(offers, pick, refusal)
            pick, key = _another(ctx, args, offers, taken, refusal), idempotency_key(ctx.rng)
            ctx.report(f"{args.name}: refused, as a machine was taken ({refusal.message}); now {pick.describe()}.")


def _snapshot(ctx: Context, args: ClusterArgs) -> tuple[str, ...]:
    """The clusters that exist before the order (contract 5.2 step 5). Fails rather than order without it."""
    try:
        pods = ctx.api.pods.list()
    except LiumError as error:
        error.hint = (
            f"Nothing was ordered: an order needs a look at what is running first. {error.hint or error.advice}"
        )
        raise
    namesakes = [pod for pod in pods if pod.name == args.name and (pod.is_billable or not pod.is_terminal)]
    if namesakes:
        clusters = ", ".join(sorted({pod.cluster_id or f"pod {pod.id}" for pod in namesakes}))
        raise InvalidInputs(
            [
                (
                    "name",
                    f"{args.name!r} is in use already ({clusters}), and by its name alone a lost order is found again."
                    " Nothing was ordered. Choose another name, or take that cluster over with adopt",
                )
            ]
        )
    report_strangers(ctx, pods, args.owner)
    return tuple(sorted({pod.cluster_id for pod in pods if pod.cluster_id}))


def _first(ctx: Context, args: ClusterArgs) -> Pick:
    """From the offers that the check saw a moment ago, as the official client orders from what it has shown; else, and
    where nothing fits there, from new ones."""
    recent = ctx.looks.recent_offers(ctx.clock, _RECENT_S)
    if recent is not None:
        with suppress(NothingMatches):
            return _choose(recent, args, ctx)
    return _choose(ctx.api.offers.list(), args, ctx)


def _choose(offers: Sequence[Offer], args: ClusterArgs, ctx: Context) -> Pick:
    """A pick that leaves other clusters of this program their machines, if there is one."""
    try:
        return select(offers, args.selectors, taken=ctx.claims.of_others(args.owner))
    except NothingMatches:
        return select(offers, args.selectors)


def _taken(offers: Sequence[Offer], refused: Pick, refusal: LiumError) -> frozenset[str]:
    """The machines of a refused order that are gone. If none is, something else was wrong and the refusal stands.

    That is read from the offers, and from the refusal where it names a machine: its wording is not pinned.
    """
    free = {node.id for offer in offers for node in offer.nodes}
    taken = frozenset(machine for machine in refused.machine_ids if machine not in free or machine in refusal.message)
    if not taken:
        raise refusal
    return taken


def _another(
    ctx: Context, args: ClusterArgs, offers: Sequence[Offer], taken: frozenset[str], refusal: LiumError
) -> Pick:
    try:
        return select(offers, args.selectors, taken=taken | ctx.claims.of_others(args.owner))
    except NothingMatches as error:
        raise NothingMatches(f"The order was refused, as a machine was taken ({refusal.message}). {error}") from refusal


def _intent(
    ctx: Context, args: ClusterArgs, template_id: str, snapshot: tuple[str, ...], pick: Pick, key: str
) -> Intent:
    body = ClusterOrder(
        pod_name=args.name or "",
        template_id=template_id,
        executor_uuids=list(pick.machine_ids),
        user_public_key=list(args.ssh_public_keys),
        initial_port_count=args.ports_per_node,
        enable_volume_encryption=args.volume_encryption,
        enable_backups=args.backups,
    )
    return Intent(
        owner=args.owner,
        pod_name=body.pod_name,
        idempotency_key=key,
        base_url=ctx.api.settings.base_url,
        account=args.account,
        nodes=args.selectors.nodes,
        price_per_hour=pick.price_per_hour,
        opened_at=ctx.clock.now(),
        body=body.model_dump(),
        snapshot=snapshot,
        ttl_seconds=int(args.ttl.total_seconds()) if args.ttl else None,
        fabric_id=pick.offer.fabric_id,
        fabric_type=pick.offer.fabric_type,
    )


def _placed(ctx: Context, intent: Intent, outcome: OrderAnswer | LiumError) -> Placed:
    """The cluster of a sent order. Raises a definite failure where nothing exists, `OrderUnsettled` where nobody knows.

    While an order may still arrive, create does not end: the engine forgets what it was about once it fails, and a
    machine that is lost then would take the only trace of the order with it.
    """
    try:
        return settle(ctx, intent, outcome)
    except OrderUnsettled as error:
        unsettled = error
    ctx.report(
        f"{intent.pod_name}: no listing shows it, and the order may still arrive; waiting until that is certain, which"
        " takes a few minutes."
    )
    named = tuple(outcome.pod_ids) if isinstance(outcome, OrderAnswer) else ()
    stage: Stage = "answered" if named else "sent"
    try:
        placed = resolve(ctx, replace(intent, stage=stage, sent_at=ctx.clock.now(), pod_ids=named))
    except LiumError as error:
        raise unsettled from error
    if placed is None:
        ctx.intents.close(intent.idempotency_key)
        raise OperationFailed(
            f"The order of {intent.pod_name!r} came to nothing: {_why(outcome)}, and no listing shows it now that it"
            " cannot arrive any more. Nothing is rented",
            code="order_lost",
            hint="Run `pulumi up` again.",
        )
    note(ctx, replace(intent, stage="listed", pod_ids=placed.pod_ids, cluster_id=placed.cluster_id))
    return placed


def _why(outcome: OrderAnswer | LiumError) -> str:
    return f"no answer came ({outcome.message})" if isinstance(outcome, LiumError) else "the service accepted it"


def _limit(ctx: Context, args: ClusterArgs, intent: Intent, placed: Placed) -> tuple[list[Pod], list[str]]:
    """Gives every member that has none its removal time; what lacks it still is told here and stays in the state."""
    if args.ttl is None:
        return placed.members, []
    at = intent.opened_at + args.ttl
    changed, failed = ttl.schedule(ctx, ttl.off_schedule(placed.members, at), at)
    members = by_rank({pod.id: pod for pod in (*placed.members, *changed)}.values())
    if failed:
        ctx.report(
            f"warning: {args.name}: no removal time could be set for {'; '.join(failed)}. The cluster bills"
            f" {usd(intent.price_per_hour)} until it is removed; the next `pulumi up` sets the time again."
        )
    return members, failed
