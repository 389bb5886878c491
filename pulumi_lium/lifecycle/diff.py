"""Diff: what a change of the inputs, or of the world, means for the running cluster.

A change replaces the cluster only if the running one no longer satisfies the request (design 3.5). Replacement is
always delete-before-create: stock is scarce.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi_lium.api import Pod
from pulumi_lium.api.errors import LiumError

from . import ttl
from .context import Context
from .errors import OperationFailed
from .facts import facts_of_state, unmet
from .holder import require_holder
from .inputs import DEFAULT_DELETE_TIMEOUT, SELECTORS, parse_cluster_inputs, selectors_of
from .listing import SHARED, parse_moment, present_members
from .members import lost_ranks
from .ssh_key import key_identity
from .state import price_of, rows_of, setting, whole
from .strangers import report_interrupted
from .values import has_unknown, parse_ttl, usd

Effect = Literal["ignore", "update", "replace"]

EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(SELECTORS, "replace"),
    "ssh_public_keys": "replace",
    "template_id": "replace",
    "ports_per_node": "replace",
    "volume_encryption": "replace",
    "backups": "replace",
    "name": "replace",
    "account": "replace",
    "adopt": "replace",
    "ttl": "update",
    "delete_timeout": "update",
    # Those of the readiness resource, which compares them itself.
    "wait_for_ready": "ignore",
    "ready_timeout": "ignore",
    "on_start_failure": "ignore",
    "owner": "ignore",
    "resource": "ignore",
    "idempotency_key": "ignore",
    "planned": "ignore",
    "adopted": "ignore",
    "holder": "ignore",
}
"""What a difference in a property means. Whether there is one is judged against the running cluster's facts."""

_DEFAULTS = {"volume_encryption": True, "backups": True}


@dataclass(frozen=True)
class Change:
    """What `diff` answers: which properties replace and which update, each with its reason."""

    replaces: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        return bool(self.replaces or self.updates)


def diff(ctx: Context, cluster_id: str, state: Mapping[str, Any], news: Mapping[str, Any]) -> Change:
    """Compares the checked inputs with the state, and the state with the listing (one GET). Reports its reasons."""
    ctx.note_in_state(cluster_id, state)
    report_interrupted(ctx, str(setting(state, "owner") or ""))
    inputs, _ = parse_cluster_inputs(news)
    adopted = bool(inputs.get("adopted")) or bool(inputs.get("adopt"))
    differences = _differences(state, inputs, adopted, cluster_id)
    try:
        members = present_members(ctx, cluster_id, state.get("ordered_at"), max_age=SHARED)
    except LiumError as error:
        ctx.report(
            f"warning: {_title(state)}: the listing cannot be read, so nothing is known about drift of"
            f" cluster {cluster_id} ({usd(price_of(state))}): {error}"
        )
    else:
        if not members:
            require_holder(ctx, cluster_id, state)
        differences = {**_drift(state, inputs, members, cluster_id), **differences}
    change = Change(
        {name: reason for name, reason in differences.items() if EFFECTS.get(name, "replace") == "replace"},
        {name: reason for name, reason in differences.items() if EFFECTS.get(name) == "update"},
    )
    _announce(ctx, cluster_id, state, change)
    certain = [reason for name, reason in change.replaces.items() if not has_unknown(inputs.get(name))]
    if certain and inputs.get("adopt") == cluster_id:
        raise OperationFailed(
            f"Cluster {cluster_id} is adopted and does not satisfy the program any more:"
            f" {'; '.join(certain)}. A replacement would be ordered, not adopted: remove `adopt` to"
            " allow it, or undo the change. Nothing was changed",
            code="adopted_differs",
        )
    return change


def unsatisfied(
    cluster_id: str, state: Mapping[str, Any], news: Mapping[str, Any], members: list[Pod]
) -> dict[str, str]:
    """Why a running cluster cannot be what `news` asks for: property → reason; empty when it can be, in place."""
    inputs, _ = parse_cluster_inputs(news)
    found = {**_differences(state, inputs, False, cluster_id), **_drift(state, inputs, members, cluster_id)}
    return {name: reason for name, reason in found.items() if EFFECTS.get(name, "replace") == "replace"}


def _announce(ctx: Context, cluster_id: str, state: Mapping[str, Any], change: Change) -> None:
    """Says why where a person sees it."""
    if change.replaces:
        ctx.report(
            f"{_title(state)}: cluster {cluster_id} ({usd(price_of(state))}) will be replaced, the old one deleted"
            f" first: {'; '.join(change.replaces.values())}."
        )
    elif change.updates:
        ctx.report(f"{_title(state)}: updated in place: {'; '.join(change.updates.values())}.")


def _differences(state: Mapping[str, Any], inputs: Mapping[str, Any], adopted: bool, cluster_id: str) -> dict[str, str]:
    """Every property in which the program and the running cluster differ: property → reason."""
    found = {name: f"{name} is not known yet" for name in EFFECTS if has_unknown(inputs.get(name))}
    known = {name: value for name, value in inputs.items() if name not in found}
    if "nodes" in known:
        found.update(unmet(selectors_of(known), facts_of_state(state)))
    if (adopt := known.get("adopt")) and adopt != cluster_id:
        found["adopt"] = f"cluster {adopt} is to be adopted, this one is {cluster_id}"
    if (known.get("account") or None) != (setting(state, "account") or None) and "account" not in found:
        found["account"] = f"account {setting(state, 'account') or 'default'}, now {known.get('account') or 'default'}"
    if not adopted:
        found.update(_order_differences(state, known, found))
    old_ttl, new_ttl = setting(state, "ttl"), known.get("ttl")
    if "ttl" not in found and _span(old_ttl) != _span(new_ttl):
        found["ttl"] = f"ttl {old_ttl or 'none'}, now {new_ttl or 'none'}"
    old_limit = whole(setting(state, "delete_timeout")) or DEFAULT_DELETE_TIMEOUT
    new_limit = known.get("delete_timeout", DEFAULT_DELETE_TIMEOUT)
    if "delete_timeout" not in found and new_limit != old_limit:
        found["delete_timeout"] = f"delete_timeout {old_limit} s, now {new_limit} s"
    for name in [name for name in found if EFFECTS[name] == "ignore" or (adopted and name in _TAKEN_AS_THEY_ARE)]:
        del found[name]
    return found


_TAKEN_AS_THEY_ARE = ("name", "ssh_public_keys", "template_id", "ports_per_node", "volume_encryption", "backups")
"""Of an adopted cluster these are not compared."""


def _order_differences(state: Mapping[str, Any], known: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, str]:
    """Differences in what the order said. A property that the program leaves out makes no demand."""
    differences = {}
    for name in ("name", "template_id", "ports_per_node", *_DEFAULTS):
        wanted = known.get(name, _DEFAULTS.get(name))
        # The name and the template in effect stand at the top of the state, chosen ones too.
        running = state.get(name) if name in ("name", "template_id") else setting(state, name)
        if name == "name" and wanted == setting(state, name):
            # A cluster that was taken over after a crash keeps the name of its order, whatever was asked for then.
            continue
        if running is None and name in _DEFAULTS and "requested" in state:
            running = _DEFAULTS[name]
        if name not in found and wanted is not None and running is not None and wanted != running:
            differences[name] = f"{name} {running}, now {wanted}"
        elif name == "ports_per_node" and wanted is not None and running is None and "requested" in state:
            differences[name] = f"{name} not set, now {wanted}"
    old_keys, new_keys = setting(state, "ssh_public_keys"), known.get("ssh_public_keys")
    if old_keys and new_keys and set(map(key_identity, old_keys)) != set(map(key_identity, new_keys)):
        differences["ssh_public_keys"] = "the set of SSH keys is another one"
    return differences


def _drift(state: Mapping[str, Any], inputs: Mapping[str, Any], members: list[Pod], cluster_id: str) -> dict[str, str]:
    """What the listing says against the state."""
    if not members:
        return {"cluster_id": f"cluster {cluster_id} is gone: no member is listed"}
    lost = lost_ranks(rows_of(state), whole(state.get("nodes")), members)
    if lost:
        return {"members": "; ".join(lost)}
    ordered_at = parse_moment(state.get("ordered_at"))
    if ordered_at is not None and isinstance(inputs.get("ttl"), str):
        if state.get("unscheduled"):
            return {"ttl": f"the order left members without the removal time of ttl {inputs['ttl']}"}
        late = ttl.off_schedule(members, ordered_at + parse_ttl(inputs["ttl"]))
        if late:
            return {"ttl": f"{len(late)} of {len(members)} members have not the removal time of ttl {inputs['ttl']}"}
    return {}


def _span(text: Any) -> float | None:
    try:
        return parse_ttl(text).total_seconds() if isinstance(text, str) else None
    except ValueError:
        return None


def _title(state: Mapping[str, Any]) -> str:
    return str(setting(state, "resource") or state.get("name") or "cluster")
