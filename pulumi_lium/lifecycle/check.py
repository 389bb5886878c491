"""Check: are the inputs right, and what would be ordered now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_lium.api.errors import Forbidden, LiumError, Unauthorized

from .context import Context
from .errors import NothingMatches
from .holder import holder_if_told
from .inputs import SELECTORS, Failures, parse_cluster_inputs, selectors_of
from .selection import select
from .values import UNKNOWN, has_unknown, idempotency_key, pod_name

_WILL_FAIL = "The order will fail unless this changes first."


def check(ctx: Context, olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[dict[str, Any], Failures]:
    """The inputs to go on with, and what is wrong by property.

    Adds `name`, `idempotency_key`, `holder` (ids of the user and workspace that the key acts for) and `planned`. They
    are taken over from `olds` (the inputs of the running cluster); on a replacement `olds` is empty, so that the new
    order has its own. An `adopt` that was taken out of the program lives on as `adopted` for as long as that cluster
    does.

    What cannot be had now is a warning here and an error in `order`: the old cluster's machines are free only later.
    """
    inputs, failures = parse_cluster_inputs(news)
    if failures:
        return dict(news), failures
    if isinstance(owner := inputs.get("owner"), str):
        ctx.handled.add(owner)
    if "adopt" in inputs:
        return inputs, []
    if adopted := olds.get("adopt") or olds.get("adopted"):
        return {**inputs, "adopted": adopted}, []
    inputs.setdefault("name", olds.get("name") or _new_name(ctx, inputs))
    inputs["idempotency_key"] = olds.get("idempotency_key") or idempotency_key(ctx.rng)
    # What was not told at the order is not made up for a cluster that runs.
    told = (olds.get("holder") if olds else holder_if_told(ctx)) or {}
    if ids := {name: value for name, value in told.items() if value}:
        inputs["holder"] = ids
    if planned := olds.get("planned"):
        inputs["planned"] = planned
    elif not olds:
        _plan(ctx, inputs)
    return inputs, []


def _new_name(ctx: Context, inputs: Mapping[str, Any]) -> Any:
    owner = inputs.get("owner", "")
    return UNKNOWN if owner is UNKNOWN else pod_name(_resource(inputs), owner, ctx.rng)


def _plan(ctx: Context, inputs: dict[str, Any]) -> None:
    """Looks at the offers, claims the machines within this process, and says what would be ordered."""
    title = _resource(inputs)
    if any(has_unknown(inputs.get(name)) for name in (*SELECTORS, "owner")):
        ctx.report(f"{title}: the machines are chosen during the update, since some inputs are not known yet.")
        return
    owner = inputs.get("owner", "")
    try:
        offers = ctx.looks.offers(ctx.api, ctx.clock)
        with ctx.claims.choosing():
            pick = select(offers, selectors_of(inputs), taken=ctx.claims.of_others(owner))
            ctx.claims.claim(owner, frozenset(pick.machine_ids))
    except NothingMatches as error:
        ctx.report(f"warning: {title}: {error} {_WILL_FAIL}")
    except LiumError as error:
        fate = f" {_WILL_FAIL}" if isinstance(error, (Unauthorized, Forbidden)) else ""
        ctx.report(f"warning: {title}: the offers cannot be read, so no price can be shown. {error}{fate}")
    else:
        inputs["planned"] = pick.plan()
        ctx.report(f"{title}: a new cluster would be {pick.describe()}.")


def _resource(inputs: Mapping[str, Any]) -> str:
    resource = inputs.get("resource") or inputs.get("name")
    return resource if isinstance(resource, str) else "cluster"
