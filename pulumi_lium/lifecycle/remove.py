"""Delete: ends when no member is listed, or says what stays and what it costs (contract 4.10, 7.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pulumi_lium.api import Conflict, Forbidden, NotFound, Pod, QuotaExceeded, Unauthorized
from pulumi_lium.api.errors import LiumError

from .context import Context
from .errors import OperationFailed, OperationTimeout
from .holder import require_holder
from .inputs import DEFAULT_DELETE_TIMEOUT
from .listing import present_members
from .members import still_billing
from .state import price_of, setting, whole
from .strangers import report_interrupted
from .values import usd

_FIRST_DELAY = 0.3
_LONGEST_DELAY = 10.0
_ACCEPTED_FOR = 60.0
"""Seconds after which an accepted removal that has not begun is asked for again: a node may have lost it."""
_DEFINITE = (Unauthorized, Forbidden, QuotaExceeded)
"""Refusals that waiting does not change."""


class Keeper(NamedTuple):
    """Where a cluster that could not be removed is still known, and which command tries again."""

    place: str
    command: str


STATE = Keeper("the state", "pulumi destroy")
TIMEOUT_VARIABLE = "PULUMI_LIUM_DELETE_TIMEOUT"
"""Environment variable by which `teardown --timeout` reaches the provider that the engine runs: seconds."""


def remove(
    ctx: Context,
    cluster_id: str,
    state: Mapping[str, Any],
    *,
    timeout: float | None = None,
    keeper: Keeper = STATE,
) -> None:
    """Deletes the cluster and returns when no member is listed.

    Refused members and 409 (a member still being created) are tried again within `timeout` seconds (the state's
    `delete_timeout` by default). A 404 means gone only when the listing agrees; a 5xx or a lost answer means nothing
    until the listing is read. Raises naming each member that stays, with its price per hour.
    """
    ctx.note_in_state(cluster_id, state)
    report_interrupted(ctx, str(setting(state, "owner") or ""))
    limit = timeout or whole(setting(state, "delete_timeout")) or DEFAULT_DELETE_TIMEOUT
    deadline = ctx.clock.monotonic() + limit
    delay, accepted, asked_at = _FIRST_DELAY, frozenset[str](), -math.inf
    problem: str | None = None
    members: list[Pod] | None = None
    is_ours = False
    while True:
        if ctx.clock.monotonic() - asked_at > _ACCEPTED_FOR:
            accepted = frozenset()
        if members is None or any(_to_be_asked(pod, accepted) for pod in members):
            asked_at = ctx.clock.monotonic()
            accepted, problem = _ask(ctx, cluster_id, state, keeper)
        try:
            members = present_members(ctx, cluster_id, None if accepted else state.get("ordered_at"))
            is_ours = is_ours or bool(accepted or members)
            if not is_ours:
                require_holder(ctx, cluster_id, state)
        except OperationFailed:
            raise
        except _DEFINITE as error:
            raise _stays(cluster_id, state, keeper, None, str(error)) from error
        except LiumError as error:
            members, problem = None, f"the listing cannot be read ({error})"
        if members == []:
            return
        left = deadline - ctx.clock.monotonic()
        if left <= 0:
            why = problem or "the nodes have not confirmed"
            raise _stays(cluster_id, state, keeper, members, why, timeout=limit)
        ctx.clock.sleep(min(delay, left))
        delay = min(delay * 1.5, _LONGEST_DELAY)


def _to_be_asked(pod: Pod, accepted: frozenset[str]) -> bool:
    return pod.id not in accepted and pod.status != "DELETING"


def _ask(ctx: Context, cluster_id: str, state: Mapping[str, Any], keeper: Keeper) -> tuple[frozenset[str], str | None]:
    """One DELETE: the pods whose removal was accepted, and what went wrong."""
    try:
        removal = ctx.api.clusters.delete(cluster_id)
    except _DEFINITE as error:
        raise _stays(cluster_id, state, keeper, None, str(error)) from error
    except NotFound:
        return frozenset(), "the service answers 404 while members are listed; is the key of another workspace?"
    except Conflict as error:
        pending = f": {', '.join(error.pending_pods)}" if error.pending_pods else ""
        return frozenset(), f"members still being created{pending} ({error.message})"
    except LiumError as error:
        return frozenset(), str(error)
    refused = [f"pod {row.pod_id}: {row.message or 'refused'}" for row in removal.refused]
    for text in refused:
        ctx.report(f"cluster {cluster_id}: {text}; trying again.")
    return frozenset(row.pod_id for row in removal.rows if row.success), "; ".join(refused) or None


def _stays(
    cluster_id: str,
    state: Mapping[str, Any],
    keeper: Keeper,
    members: list[Pod] | None,
    why: str,
    *,
    timeout: float | None = None,
) -> OperationFailed:
    """The error that keeps the cluster where it is known. `members` is None where the listing was not read."""
    name, price = state.get("name") or "cluster", price_of(state)
    if members is None:
        bills = f"What is left of it is not known; it may still bill {usd(price)}."
    else:
        bills = still_billing(members, price)
    within = f" within {timeout:g} s" if timeout else ""
    text = (
        f"Cluster {cluster_id} ({name}) was not removed{within}: {why.rstrip('.')}. {bills} It stays in {keeper.place}"
    )
    hint = f"Run `{keeper.command}` again, or give a longer delete_timeout."
    if timeout:
        return OperationTimeout(text, code="removal_timeout", hint=hint)
    return OperationFailed(text, code="removal_refused", hint=f"Mend that, then run `{keeper.command}` again.")
