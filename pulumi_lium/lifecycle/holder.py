"""Whose key ordered a cluster: with the key of another account or workspace an empty listing says nothing about it.

Such a key is valid and its listing is right, it just shows other pods; a removal it answers with 404 (contract 7.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_lium.api.errors import LiumError
from pulumi_lium.api.users import User

from .context import Context
from .errors import OperationFailed, OrderUnsettled
from .intents import Intent
from .state import price_of
from .values import usd

UNTOLD: Mapping[str, str | None] = {}
"""The holder of an order whose record ought to tell it and does not."""


def _ids(me: User) -> dict[str, str | None]:
    return {"user": me.id or None, "workspace": (me.workspace.id or None) if me.workspace else None}


def holder_if_told(ctx: Context) -> dict[str, str | None] | None:
    """What the key acts for, for the state of a new cluster: ids of `user` and `workspace`, null where the service does
    not say. None where it cannot be read: no order fails for that."""
    try:
        return _ids(ctx.looks.user(ctx.api))
    except LiumError:
        return None


def require_holder(ctx: Context, cluster_id: str, state: Mapping[str, Any]) -> None:
    """Before a cluster of which no member is listed counts as gone: raises unless the key could have seen it."""
    if other := _another(ctx, state.get("holder")):
        raise OperationFailed(
            f"Whether cluster {cluster_id} still runs is not known: no member is listed, but {other}. It may be billing"
            f" {usd(price_of(state))}. Nothing was changed",
            code="another_holder",
            hint=_HINT,
        )


def require_holder_of_order(ctx: Context, intent: Intent) -> None:
    """As `require_holder`, before an order that is not listed counts as never placed."""
    if intent.holder == UNTOLD:
        raise OrderUnsettled(
            f"What came of the order of {intent.pod_name!r} is not known: no listing shows it, but its record does not"
            f" tell whose API key ordered it. It may be billing {usd(intent.price_per_hour)}",
            hint=f"{_HINT} If the key in use is the one that ordered it, pass --same-key.",
        )
    if other := _another(ctx, intent.holder):
        raise OrderUnsettled(
            f"What came of the order of {intent.pod_name!r} is not known: no listing shows it, but {other}. It may be"
            f" billing {usd(intent.price_per_hour)}",
            hint=_HINT,
        )


_HINT = "Set the API key of the account or workspace that ordered it."


def _another(ctx: Context, then: Any) -> str:
    """How the key's holder differs from the one at the order; empty if it does not, or nobody noted who that was.

    Inside a workspace its members see the same pods, whoever they are; its own user sees none of them with a key that
    acts outside it (contract 1.2: a key acts in one workspace). Only the personal workspace (contract 3.5) of the same
    user may be the place where an order went that was noted without one. What is not told counts as different.
    """
    if not isinstance(then, Mapping) or not (then.get("user") or then.get("workspace")):
        return ""
    me = ctx.api.users.me()
    now = _ids(me)
    if then.get("workspace"):
        is_same = then["workspace"] == now["workspace"]
    else:
        is_same = then["user"] == now["user"] and (me.workspace is None or me.workspace.is_personal is True)
    return "" if is_same else f"it was ordered by {_named(then)}, and the API key in use acts for {_named(now)}"


def _named(ids: Mapping[str, Any]) -> str:
    """`user 3f0b… in workspace b8f1…`."""
    user, workspace = ids.get("user"), ids.get("workspace")
    return f"user {user or 'unknown'}{f' in workspace {workspace}' if workspace else ''}"
