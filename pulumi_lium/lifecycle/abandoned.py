"""Abandoned intents: what came of an order whose process is gone, and whose cluster it is now (design 3.7).

An intent is closed only when its cluster stands in a state, or when nothing of it exists. What came of an order is read
from the listing, by the exact name or id; sending the order again with its key tells sooner, but would place it where
the first one never arrived, so that is done only for somebody who wants the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from pulumi_lium.api import Forbidden, Pod, Unauthorized
from pulumi_lium.api.errors import LiumError

from .context import Context
from .errors import OrderUnsettled
from .holder import require_holder_of_order
from .intents import Intent, NullIntents
from .members import members_of, total_price
from .remove import Keeper, remove
from .settle import IN_FLIGHT_SECONDS, Placed, honours_keys, members_of_order, settle
from .values import usd

KEEPER = Keeper("the intent journal", "pulumi-lium sweep --yes")
_LISTED_SECONDS = 120.0
"""How long after an order was accepted its members may be missing in listings."""
_REPLAY_WITHIN = timedelta(hours=23)
"""The service forgets a key after 24 h, and then takes the same order for a new one (contract 4.8)."""
_POLL = 5.0
_SHORTEST = 0.01
"""Seconds of the shortest pause: a clock need not move by less."""
_LOOKS_AT_A_PART = 3
"""Listings that show some of the members before the others count as missing."""


def resolve(ctx: Context, intent: Intent, *, may_order: bool = False, patience: float = math.inf) -> Placed | None:
    """The cluster of an abandoned intent; None when nothing exists, now or later.

    Waits until an order that got lost cannot arrive any more, at most `patience` seconds. With `may_order` the order is
    sent again with its key where the service honours keys: that answers at once, and places the order if the first one
    never arrived.

    Raises `OrderUnsettled` where it stays unknown, and what the listing raises: nothing is known then.
    """
    require_same_service(ctx, intent)
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
        elif trouble is None and asked_at >= settled:
            require_holder_of_order(ctx, intent)
            return None
        elif may_order and trouble is None and _can_be_replayed(ctx, intent):
            require_holder_of_order(ctx, intent)
            may_order = False
            outcome = _replay(ctx, intent)
            if not isinstance(outcome, OrderUnsettled):
                return outcome
            settled = max(settled, ctx.clock.now() + timedelta(seconds=IN_FLIGHT_SECONDS))
        ctx.require_caller()
        # The last look is at the moment itself: whoever has patience for just that long hears the answer.
        left = (settled - ctx.clock.now()).total_seconds()
        pause = min(_POLL, max(left, _SHORTEST)) if left > 0.0 else _POLL
        if ctx.clock.monotonic() + pause > give_up or (trouble is not None and asked_at >= settled):
            raise trouble or _still_open(intent, settled)
        ctx.clock.sleep(pause)


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
    young = ctx.clock.now() - intent.opened_at < _REPLAY_WITHIN
    return intent.stage == "sent" and bool(intent.body) and young and honours_keys(ctx)


def _replay(ctx: Context, intent: Intent) -> Placed | OrderUnsettled | None:
    """Follows the order with the same key to its end; None when it was refused and nothing exists."""
    lost = LiumError("the process that sent it has ended", outcome_unknown=True)
    try:
        return settle(ctx, intent, lost)
    except OrderUnsettled as error:
        return error
    except LiumError:
        return None


def require_same_service(ctx: Context, intent: Intent) -> None:
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
    sent, price = intent.sent_at or intent.opened_at, usd(intent.price_per_hour)
    return OrderUnsettled(
        f"The order of {intent.pod_name!r} ({intent.nodes} nodes) was sent at {sent:%H:%M:%S} UTC and its answer was"
        f" lost. No listing shows it, yet it may arrive until {settled:%H:%M:%S} UTC and bill {price} then. Run"
        " `pulumi-lium sweep --yes` after that"
    )


def _where(intent: Intent) -> str:
    return f"{intent.base_url}, account {intent.account or 'default'}"


def discard(ctx: Context, intent: Intent, *, patience: float = math.inf, timeout: float | None = None) -> Placed | None:
    """Sees to it that nothing of the intent exists, and closes it: the cluster that was removed, if there was one."""
    placed = resolve(ctx, intent, patience=patience)
    if placed is not None:
        remove_placed(ctx, intent, placed, timeout=timeout)
    else:
        with ctx.journal_may_fail():
            ctx.intents.close(intent.idempotency_key)
    return placed


def remove_placed(ctx: Context, intent: Intent, placed: Placed, *, timeout: float | None = None) -> None:
    """Deletes the intent's cluster, and closes the intent once no member is listed."""
    # Whoever has to go on after a second crash finds the cluster by its id, whatever else bears the name by then. Not
    # `listed`: that would say that a state may hold it.
    with ctx.journal_may_fail():
        ctx.intents.note(replace(intent, stage="removing", cluster_id=placed.cluster_id, pod_ids=placed.pod_ids))
    state = {
        "name": intent.pod_name,
        "price_per_hour": total_price([pod.price_per_hour for pod in placed.members]) or intent.price_per_hour,
        "ordered_at": (intent.sent_at or intent.opened_at).isoformat(),
    }
    # `remove` takes it that a state holds the cluster and closes its intent; this intent is all that holds it.
    remove(replace(ctx, intents=NullIntents()), placed.cluster_id, state, timeout=timeout, keeper=KEEPER)
    with ctx.journal_may_fail():
        ctx.intents.close(intent.idempotency_key)
