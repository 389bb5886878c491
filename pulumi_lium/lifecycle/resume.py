"""Resume: the cluster of an interrupted order is taken over, or removed, before a new order (design 3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulumi_lium.api import Pod
from pulumi_lium.api.errors import LiumError

from . import ttl
from .abandoned import remove_placed, require_same_service, resolve
from .context import Context
from .diff import unsatisfied
from .errors import OperationFailed, OrderUnsettled
from .inputs import ClusterArgs
from .intents import Intent
from .members import by_rank, still_billing, total_price
from .settle import Placed
from .state import new_state
from .strangers import marked_by
from .values import usd

_HOLDER_PATIENCE = 600.0
"""Seconds to wait for another process that is at work on an order of the same resource."""


def resume(ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Before an order: settles every abandoned intent of this owner; the cluster that one of them has, if it fits.

    That `create` runs for an owner proves that the state holds none of its clusters: a replacement deletes first. So
    what its intents have is adopted, one cluster, or removed. Raises rather than order while something is not settled.
    """
    if not args.owner:
        return None
    try:
        _await_others(ctx, args.owner)
        waiting = ctx.intents.claim_abandoned(args.owner)
    except LiumError as error:
        error.hint = f"Nothing was ordered. {error.hint or error.advice}".rstrip()
        raise
    adopted: tuple[str, dict[str, Any]] | None = None
    try:
        while waiting:
            intent = waiting[0]
            try:
                require_same_service(ctx, intent)
            except OrderUnsettled as error:
                ctx.report(f"warning: {error.message}.")
                ctx.intents.release(waiting.pop(0).idempotency_key)
                continue
            found = _resume_one(ctx, args, inputs, intent, wanted=adopted is None)
            adopted = adopted or found
            waiting.pop(0)
    finally:
        for intent in waiting:
            ctx.intents.release(intent.idempotency_key)
    return adopted


def _resume_one(
    ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any], intent: Intent, *, wanted: bool
) -> tuple[str, dict[str, Any]] | None:
    fits = wanted and _body_fits(ctx, args, inputs, intent)
    if intent.stage != "opened":
        ctx.report(f"{intent.pod_name}: an earlier order was interrupted; settling it before anything is ordered.")
    placed = resolve(ctx, intent, may_order=fits)
    if placed is None:
        ctx.intents.close(intent.idempotency_key)
        return None
    reasons = misfits(ctx, args, inputs, intent, placed) if wanted else ["another cluster of it was taken over"]
    if not reasons:
        return take_over(ctx, args, inputs, intent, placed)
    ctx.report(f"{intent.pod_name}: cluster {placed.cluster_id} of that order is removed: {'; '.join(reasons)}.")
    remove_placed(ctx, intent, placed)
    return None


def misfits(ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any], intent: Intent, placed: Placed) -> list[str]:
    """Why the intent's cluster cannot be what the inputs ask for; empty when it can."""
    state = _state(_inputs_of(intent, inputs), intent, placed)
    reasons = list(unsatisfied(placed.cluster_id, state, _renamed(args, inputs, intent), placed.members).values())
    return reasons + _ttl_over(ctx, args, intent)


def take_over(
    ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any], intent: Intent, placed: Placed
) -> tuple[str, dict[str, Any]]:
    """The cluster as `create` answers it, its time limit set. The intent stays open until the engine asks about it."""
    try:
        ctx.intents.note(replace(intent, stage="listed", cluster_id=placed.cluster_id, pod_ids=placed.pod_ids))
    except LiumError as error:
        ctx.report(f"warning: {intent.pod_name}: {error}")
    members, unscheduled = _limit(ctx, args, intent, placed.members)
    state = _state(inputs, intent, replace(placed, members=members), unscheduled=unscheduled)
    ctx.report(
        f"{intent.pod_name}: took over cluster {placed.cluster_id} of an interrupted order,"
        f" {usd(state['price_per_hour'])}; nothing new was ordered."
    )
    if unscheduled:
        ctx.report(
            f"warning: {intent.pod_name}: its time limit is not set for {'; '.join(unscheduled)}."
            f" {still_billing(members, state['price_per_hour'])} The next `pulumi up` sets it again."
        )
    return placed.cluster_id, state


def _await_others(ctx: Context, owner: str) -> None:
    """The provider of a killed engine may still be at work on an order of this owner: its outcome comes first."""
    deadline = ctx.clock.monotonic() + _HOLDER_PATIENCE
    said = False
    while held := ctx.intents.held_elsewhere(owner):
        names = ", ".join(intent.pod_name for intent in held)
        price = usd(total_price([intent.price_per_hour for intent in held]))
        if not said:
            ctx.report(f"Another process is at work on an order of this resource ({names}); waiting for it.")
            said = True
        if ctx.clock.monotonic() > deadline:
            raise OperationFailed(
                f"Another process is still at work on the order of {names}, so nothing was ordered. It may be billing"
                f" {price}. Wait for that process, or end it, and"
                " run `pulumi up` again",
                code="intent_held",
            )
        ctx.require_caller()
        ctx.clock.sleep(1.0)


def _body_fits(ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any], intent: Intent) -> bool:
    """Whether the order, placed now as it was sent, would be what is asked for; judged before it is sent again."""
    limit = args.selectors.max_price_per_hour
    if limit is not None and (intent.price_per_hour is None or intent.price_per_hour > limit + 1e-9):
        return False
    state = _state(_inputs_of(intent, inputs), intent, Placed("", [], ()))
    machines = args.selectors.machines
    if machines is not None and set(machines) != set(intent.body.get("executor_uuids") or ()):
        return False
    # `members` is the one reason that does not count: there are none yet.
    reasons = unsatisfied("", state, _renamed(args, inputs, intent), [])
    return not (set(reasons) - {"cluster_id"}) and not _ttl_over(ctx, args, intent)


def _ttl_over(ctx: Context, args: ClusterArgs, intent: Intent) -> list[str]:
    if args.ttl is not None and intent.opened_at + args.ttl <= ctx.clock.now():
        return ["its ttl is over"]
    return []


def _inputs_of(intent: Intent, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What the interrupted order asked for. Without its body, all that is known is what is asked for now."""
    body = intent.body
    if not body:
        return {**inputs, "name": intent.pod_name, "nodes": intent.nodes}
    asked = {
        "name": intent.pod_name,
        "nodes": intent.nodes,
        "ssh_public_keys": list(body.get("user_public_key") or ()),
        "template_id": body.get("template_id"),
        "ports_per_node": body.get("initial_port_count"),
        "volume_encryption": body.get("enable_volume_encryption"),
        "backups": body.get("enable_backups"),
        "account": intent.account,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _renamed(args: ClusterArgs, inputs: Mapping[str, Any], intent: Intent) -> dict[str, Any]:
    """The inputs under the order's own name, if neither name was chosen by a person."""
    both_made = marked_by(args.name or "", args.owner) and marked_by(intent.pod_name, args.owner)
    return {**inputs, "name": intent.pod_name} if both_made else dict(inputs)


def _state(
    inputs: Mapping[str, Any], intent: Intent, placed: Placed, *, unscheduled: list[str] | None = None
) -> dict[str, Any]:
    return new_state(
        inputs,
        placed.cluster_id,
        placed.members,
        intent.opened_at,
        name=intent.pod_name,
        fabric_id=intent.fabric_id,
        fabric_type=intent.fabric_type,
        price_per_hour=intent.price_per_hour,
        template_id=intent.body.get("template_id") or _template(placed.members) or inputs.get("template_id"),
        idempotency_key=intent.idempotency_key,
        holder=intent.holder,
        pod_ids=list(placed.pod_ids),
        unscheduled=unscheduled or [],
    )


def _template(members: list[Pod]) -> str | None:
    return next((pod.template.id for pod in members if pod.template and pod.template.id), None)


def _limit(ctx: Context, args: ClusterArgs, intent: Intent, members: list[Pod]) -> tuple[list[Pod], list[str]]:
    """The members with the time limit that is asked for, and what could not be changed."""
    if args.ttl is None:
        failed = ttl.cancel(ctx, members)
        left = [pod if failed else pod.model_copy(update={"removal_scheduled_at": None}) for pod in members]
        return left, failed
    at = intent.opened_at + args.ttl
    late = ttl.off_schedule(members, at)
    changed, failed = ttl.schedule(ctx, late, at)
    updated = {pod.id: pod for pod in (*members, *changed)}
    return by_rank(updated.values()), failed
