"""Abandoned intents: what came of an order whose process is gone, and whose cluster it is now (design 3.7).

An intent is closed only when its cluster stands in a state, or when nothing of it exists. What came of an order is read
from the listing, by the exact name or id; sending the order again with its key tells sooner, but would place it where
the first one never arrived, so that is done only for somebody who wants the cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pulumi_lium.api import Forbidden, Pod, Unauthorized
from pulumi_lium.api.errors import LiumError

from . import ttl
from .context import Context
from .diff import unsatisfied
from .errors import OperationFailed, OrderUnsettled
from .inputs import ClusterArgs
from .intents import Intent, NullIntents
from .members import by_rank, members_of, still_billing, total_price
from .remove import Keeper, remove
from .settle import IN_FLIGHT_SECONDS, Placed, members_of_order, settle
from .state import new_state
from .values import owner_digest, usd

KEEPER = Keeper("the intent journal", "pulumi-lium sweep --yes")
_LISTED_SECONDS = 120.0
"""How long after an order was accepted its members may be missing in listings."""
_REPLAY_WITHIN = timedelta(hours=23)
"""The service forgets a key after 24 h, and then takes the same order for a new one (contract 4.8)."""
_POLL = 5.0
_LOOKS_AT_A_PART = 3
"""Listings that show some of the members before the others count as missing."""
_HOLDER_PATIENCE = 600.0
"""Seconds to wait for another process that is at work on an order of the same resource."""


# -- what came of it -------------------------------------------------------------------------------------------------------


def resolve(ctx: Context, intent: Intent, *, may_order: bool = False, patience: float = math.inf) -> Placed | None:
    """The cluster of an abandoned intent; None when nothing exists, now or later.

    Waits until an order that got lost cannot arrive any more, at most `patience` seconds. With `may_order` the order is
    sent again with its key where the service honours keys: that answers at once, and places the order if the first one
    never arrived.

    Raises `OrderUnsettled` where it stays unknown, and what the listing raises: nothing is known then.
    """
    _require_same_service(ctx, intent)
    if intent.stage == "opened":
        return None
    give_up = ctx.clock.monotonic() + patience
    settled = settled_from(intent)
    looks_at_a_part = 0
    while True:
        # The moment before the look: what arrives after it is not in this listing.
        asked_at = ctx.clock.now()
        placed, trouble = None, None
        try:
            placed = locate(ctx.api.pods.list(), intent)
        except (Unauthorized, Forbidden, OrderUnsettled):
            raise
        except LiumError as error:
            trouble = error
        if placed is not None:
            looks_at_a_part += 1
            if len(placed.members) >= intent.nodes or looks_at_a_part >= _LOOKS_AT_A_PART:
                return placed
        elif may_order and trouble is None and _can_be_replayed(ctx, intent):
            may_order = False
            outcome = _replay(ctx, intent)
            if not isinstance(outcome, OrderUnsettled):
                return outcome
            settled = max(settled, asked_at + timedelta(seconds=IN_FLIGHT_SECONDS))
        elif trouble is None and asked_at >= settled:
            return None
        ctx.require_caller()
        if ctx.clock.monotonic() + _POLL > give_up or (trouble is not None and asked_at >= settled):
            raise trouble or _still_open(intent, settled)
        ctx.clock.sleep(_POLL)


def locate(pods: Iterable[Pod], intent: Intent) -> Placed | None:
    """The intent's cluster in this listing. Raises `OrderUnsettled` where several could be it."""
    listed = list(pods)
    if intent.cluster_id is None:
        found = members_of_order(listed, intent, frozenset(intent.pod_ids))
        if found is None:
            return None
        cluster_id = found.cluster_id
    else:
        cluster_id = intent.cluster_id
    members = members_of(listed, cluster_id)
    return Placed(cluster_id, members, tuple(pod.id for pod in members)) if members else None


def settled_from(intent: Intent) -> datetime:
    """From this moment on, a listing without the intent's cluster proves that there is none."""
    if intent.stage == "opened":
        return intent.opened_at
    window = IN_FLIGHT_SECONDS if intent.stage == "sent" else _LISTED_SECONDS
    return (intent.sent_at or intent.opened_at) + timedelta(seconds=window)


def _can_be_replayed(ctx: Context, intent: Intent) -> bool:
    return intent.stage == "sent" and bool(intent.body) and ctx.clock.now() - intent.opened_at < _REPLAY_WITHIN


def _replay(ctx: Context, intent: Intent) -> Placed | OrderUnsettled | None:
    """Follows the order with the same key to its end; None when it was refused and nothing exists."""
    lost = LiumError("the process that sent it has ended", outcome_unknown=True)
    try:
        return settle(ctx, intent, lost)
    except OrderUnsettled as error:
        return error
    except LiumError:
        return None


def _require_same_service(ctx: Context, intent: Intent) -> None:
    """An intent says nothing about another service, nor about what another account can see."""
    here = ctx.api.settings
    if intent.base_url == here.base_url and intent.account == here.account:
        return
    raise OrderUnsettled(
        f"The order of {intent.pod_name!r} went to {_where(intent)}, which is not asked now ({here.base_url}, account"
        f" {here.account or 'default'}). It may be billing {usd(intent.price_per_hour)}: run `pulumi-lium sweep` with"
        " that service and key"
    )


def _still_open(intent: Intent, settled: datetime) -> OrderUnsettled:
    return OrderUnsettled(
        f"The order of {intent.pod_name!r} ({intent.nodes} nodes) was sent at {intent.sent_at or intent.opened_at:%H:%M:%S}"
        f" UTC and its answer was lost. No listing shows it, yet it may arrive until {settled:%H:%M:%S} UTC and bill"
        f" {usd(intent.price_per_hour)} then. Run `pulumi-lium sweep --yes` after that"
    )


def _where(intent: Intent) -> str:
    return f"{intent.base_url}, account {intent.account or 'default'}"


# -- removed ---------------------------------------------------------------------------------------------------------------


def discard(ctx: Context, intent: Intent, *, patience: float = math.inf) -> Placed | None:
    """Sees to it that nothing of the intent exists, and closes it: the cluster that was removed, if there was one."""
    placed = resolve(ctx, intent, patience=patience)
    if placed is not None:
        remove_placed(ctx, intent, placed)
    ctx.intents.close(intent.idempotency_key)
    return placed


def remove_placed(ctx: Context, intent: Intent, placed: Placed) -> None:
    """Deletes the intent's cluster, and closes the intent once no member is listed."""
    # Whoever has to go on after a second crash finds the cluster by its id, whatever else bears the name by then.
    ctx.intents.note(replace(intent, stage="listed", cluster_id=placed.cluster_id, pod_ids=placed.pod_ids))
    state = {
        "name": intent.pod_name,
        "price_per_hour": total_price([pod.price_per_hour for pod in placed.members]) or intent.price_per_hour,
        "ordered_at": (intent.sent_at or intent.opened_at).isoformat(),
    }
    # `remove` takes it that a state holds the cluster and closes its intent; this intent is all that holds it.
    remove(replace(ctx, intents=NullIntents()), placed.cluster_id, state, keeper=KEEPER)
    ctx.intents.close(intent.idempotency_key)


# -- adopted ---------------------------------------------------------------------------------------------------------------


def resume(ctx: Context, args: ClusterArgs, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Before an order: settles every abandoned intent of this owner; the cluster that one of them has, if it fits.

    That `create` runs for an owner proves that the state holds none of its clusters: a replacement deletes first. So
    what its intents have is adopted, one cluster, or removed. Raises rather than order while something is not settled.
    """
    if not args.owner:
        return None
    _await_others(ctx, args.owner)
    waiting = ctx.intents.claim_abandoned(args.owner)
    adopted: tuple[str, dict[str, Any]] | None = None
    try:
        while waiting:
            intent = waiting[0]
            try:
                _require_same_service(ctx, intent)
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
        if not said:
            ctx.report(f"Another process is at work on an order of this resource ({names}); waiting for it.")
            said = True
        if ctx.clock.monotonic() > deadline:
            raise OperationFailed(
                f"Another process is still at work on the order of {names}, so nothing was ordered. It may be billing"
                f" {usd(total_price([intent.price_per_hour for intent in held]))}. Wait for that process, or end it, and"
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
        template_id=intent.body.get("template_id") or inputs.get("template_id"),
        idempotency_key=intent.idempotency_key,
        pod_ids=list(placed.pod_ids),
        unscheduled=unscheduled or [],
    )


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


# -- not accounted for -----------------------------------------------------------------------------------------------------


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
            f"warning: cluster {stranger.cluster_id} ({stranger.name!r}, {usd(stranger.price_per_hour)}) bears the mark of"
            " this resource and no state or intent accounts for it; it was left alone. If it is a leftover, run"
            f" `pulumi-lium sweep --name-prefix {stranger.name} --yes`; `pulumi-lium recover` takes it into the state."
        )
