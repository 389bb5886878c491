"""Creates that were cut off, settled into the stack's state: adopted there, or removed and dropped (design 3.7).

On another disk the next `pulumi up` would only warn of them and order again. The state is edited the way the engine
itself would have written it: the pending operation goes, the resource stands in its place with id and outputs.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pulumi_lium.api import Clock
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.abandoned import locate, remove_placed, resolve, settled_from
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.errors import InvalidInputs, OperationFailed
from pulumi_lium.lifecycle.holder import require_holder_of_order
from pulumi_lium.lifecycle.inputs import ClusterArgs, parse_cluster_inputs, selectors_of
from pulumi_lium.lifecycle.intents import Intent, NullIntents
from pulumi_lium.lifecycle.members import total_price
from pulumi_lium.lifecycle.resume import misfits, take_over
from pulumi_lium.lifecycle.settle import Placed
from pulumi_lium.lifecycle.values import has_unknown, parse_ttl, usd

from .export import PendingCreate, StackExport, deployment_of
from .intents import FileIntents
from .stack import PulumiStack, StackLocked, take_off_dead_lock
from .survey import Contexts

Action = Literal["adopt", "remove", "drop", "leave"]
"""`leave`: a person has to decide. Until then nothing is imported: with that the engine forgets every pending create,
and this one is all that tells of the cluster."""
_POLL = 1.0
"""Seconds between two looks at an order that a living process is at work on."""


@dataclass(frozen=True)
class Step:
    """What happens with one create that was cut off, and why. `placed` is its cluster, where a listing shows it."""

    create: PendingCreate
    intent: Intent
    placed: Placed | None
    action: Action
    why: str

    @property
    def price_per_hour(self) -> float | None:
        members = self.placed.members if self.placed else []
        return total_price([pod.price_per_hour for pod in members]) or self.intent.price_per_hour

    @property
    def title(self) -> str:
        """`train-… (cluster 9b1e…, $32.00 an hour)`."""
        where = f" (cluster {self.placed.cluster_id}, {usd(self.price_per_hour)})" if self.placed else ""
        return f"{self.intent.pod_name}{where}"

    def __str__(self) -> str:
        does = {
            "adopt": "adopt into the state",
            "remove": "remove",
            "drop": "drop the pending operation of",
            "leave": "leave alone",
        }
        return f"{does[self.action]} {self.title}: {self.why}"


def plan(contexts: Contexts, journal: FileIntents, export: StackExport) -> list[Step]:
    """What would be done with each create that was cut off, by what the listing shows now. Changes nothing."""
    entries = {entry.intent.pod_name: entry for entry in journal.look(aside=[])}
    steps, held = list[Step](), _held(export)
    for create in _latest_first(export):
        entry = entries.get(create.intent.pod_name)
        if entry is not None and entry.held:
            raise OperationFailed(
                f"A living process is at work on the order of {create.intent.pod_name}. Wait until it has ended, then"
                " run `pulumi-lium recover` again",
                code="intent_held",
            )
        if export.holds(create.intent):
            steps.append(_held_already(create))
            continue
        ctx = contexts(create.intent.account)
        intent = entry.intent if entry is not None else create.intent
        placed = None
        if intent.stage != "opened":
            placed = locate(ctx.api.pods.list(), intent)
            if placed is None:
                require_holder_of_order(ctx, intent)
        steps.append(_step(ctx, held, create, intent, placed))
    return steps


def _latest_first(export: StackExport) -> list[PendingCreate]:
    """Of several creates of one resource the last one is what the program asked for last: it may be adopted."""
    return list(reversed(export.pending))


def _held(export: StackExport) -> dict[str, str]:
    """The cluster of each resource in the state, by its URN. `_step` adds what is adopted."""
    return {owned.urn: owned.cluster_id for owned in export.clusters}


def await_others(
    journal: FileIntents, export: StackExport, clock: Clock, report: Callable[[str], None], *, patience: float
) -> None:
    """Waits while the provider of a killed engine finishes an order that the export takes for cut off."""
    names = {create.intent.pod_name for create in export.pending}
    give_up, said = clock.monotonic() + patience, False
    while any(entry.held and entry.intent.pod_name in names for entry in journal.look(aside=[])):
        if not said:
            report("A living process is at work on an order of this stack; waiting for it.")
            said = True
        if clock.monotonic() + _POLL > give_up:
            return
        clock.sleep(_POLL)


def recover(
    stack: PulumiStack,
    contexts: Contexts,
    journal: FileIntents,
    export: StackExport,
    *,
    now: datetime,
    lock_age: timedelta,
    report: Callable[[str], None],
    patience: float = math.inf,
) -> list[Step]:
    """Settles every create that was cut off, and imports the edited state: what was done with each.

    The import comes before any removal: the engine refuses it while a run is alive, whose create only looks cut off.
    From then on the state knows nothing of what is to be removed, so the journal does. A failed import loses nothing.

    A record of the journal that cannot be read is passed over: what the state tells of the create is enough.

    Raises where the state was written by somebody else meanwhile, or is locked by a run that may be alive; and where a
    create is to be left alone: its state then stays as it is.
    """
    owners = {create.intent.owner for create in export.pending}
    claimed = {intent.pod_name: intent for owner in owners for intent in journal.claim_abandoned(owner, aside=[])}
    opened: list[Intent] = []
    try:
        steps, document = _decide(contexts, export, claimed, patience)
        if left := [step for step in steps if step.action == "leave"]:
            raise OperationFailed(
                f"The state was not changed, as it alone tells of what is left alone: {'; '.join(map(str, left))}",
                code="left_alone",
            )
        removals = [step for step in steps if step.action == "remove"]
        try:
            for step in removals:
                if step.intent.pod_name not in claimed:
                    journal.open(step.intent)
                    opened.append(step.intent)
            _import(stack, export, document, lock_age, now, report)
        except LiumError as error:
            for intent in opened:
                with contexts(intent.account).journal_may_fail():
                    journal.close(intent.idempotency_key)
            raise _not_imported(error, steps) from error
        for step in steps:
            if step.action in ("adopt", "drop") and step.intent.pod_name in claimed:
                with contexts(step.intent.account).journal_may_fail():
                    journal.close(step.intent.idempotency_key)
        for step in removals:
            assert step.placed is not None
            remove_placed(contexts(step.intent.account), step.intent, step.placed)
        return steps
    finally:
        for intent in (*claimed.values(), *opened):
            journal.release(intent.idempotency_key)


def _decide(
    contexts: Contexts, export: StackExport, claimed: Mapping[str, Intent], patience: float
) -> tuple[list[Step], dict[str, Any]]:
    """What is to be done with each create, adopted clusters with their time limit; and the edited export."""
    document = copy.deepcopy(dict(export.document))
    steps, held = list[Step](), _held(export)
    for create in _latest_first(export):
        mine = claimed.get(create.intent.pod_name)
        if export.holds(create.intent):
            same = mine is not None and mine.idempotency_key == create.intent.idempotency_key
            steps.append(_held_already(create, mine if same else None))
            continue
        ctx = contexts(create.intent.account)
        if mine is None:
            ctx = replace(ctx, intents=NullIntents())
        step = _step(ctx, held, create, mine or create.intent, resolve(ctx, mine or create.intent, patience=patience))
        if step.action == "adopt":
            assert step.placed is not None
            cluster_id, state = take_over(ctx, _args(create.inputs), create.inputs, _dated(step), step.placed)
            _put_resource(document, create, cluster_id, state)
        steps.append(step)
    _drop_operations(document, {step.create.place for step in steps})
    return steps, document


def _import(
    stack: PulumiStack,
    export: StackExport,
    document: Mapping[str, Any],
    lock_age: timedelta,
    now: datetime,
    report: Callable[[str], None],
) -> None:
    if json.loads(stack.export()) != export.document:
        raise OperationFailed(
            "The state was written by somebody else meanwhile, so it was left as it is", code="state_changed"
        )
    try:
        stack.import_(document)
    except StackLocked as locked:
        take_off_dead_lock(stack, locked, lock_age, now, report)
        stack.import_(document)


def _not_imported(error: LiumError, steps: list[Step]) -> OperationFailed:
    bills = ", ".join(step.title for step in steps if step.action in ("adopt", "remove"))
    return OperationFailed(
        f"{str(error).rstrip('.')}. The state was not changed."
        f"{f' Not in the state, and may bill: {bills}.' if bills else ''} Run `pulumi-lium recover` again",
        code="not_imported",
    )


def drop_pending(export: StackExport) -> dict[str, Any]:
    """The export without its cut-off creates of clusters, as it is to be imported once nothing of them exists."""
    document = copy.deepcopy(dict(export.document))
    _drop_operations(document, {create.place for create in export.pending})
    return document


def keep_copy(export: StackExport, folder: Path, stack: str, now: datetime) -> Path:
    """The export as it was, in a file of its own that only this user can read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = "".join(character if character.isalnum() or character in "._-" else "-" for character in stack)
    path = folder / f"{name}-{now:%Y%m%dT%H%M%S.%f}.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(export.document, indent=1), encoding="utf-8")
    return path


def _step(ctx: Context, held: dict[str, str], create: PendingCreate, intent: Intent, placed: Placed | None) -> Step:
    if placed is None:
        until = settled_from(intent)
        if ctx.clock.now() < until:
            why = f"no listing shows it, and it may still arrive until {until:%H:%M:%S} UTC; that is waited for"
        else:
            why = "no such cluster exists"
        return Step(create, intent, None, "drop", why)
    if placed.cluster_id in held.values():
        return _held_already(create, intent)
    if intent is create.intent and not create.is_telling:
        if not any(pod.is_billable or not pod.is_terminal for pod in placed.members):
            return Step(
                create, intent, None, "drop", f"cluster {placed.cluster_id} of its name has ended; nothing bills"
            )
        why = (
            "its name was chosen by a person, so it does not tell whether this create ordered it: take it over with"
            f" adopt, or remove it with `pulumi-lium sweep --name-prefix {intent.pod_name}`, then run this again"
        )
        return Step(create, intent, placed, "leave", why)
    if create.urn in held:
        why = f"its resource holds another cluster by now ({held[create.urn]})"
        return Step(create, intent, placed, "remove", why)
    reasons = misfits(ctx, _args(create.inputs), create.inputs, intent, placed)
    if reasons:
        return Step(create, intent, placed, "remove", "; ".join(reasons))
    held[create.urn] = placed.cluster_id
    return Step(create, intent, placed, "adopt", "it is what the create asked for")


def _held_already(create: PendingCreate, intent: Intent | None = None) -> Step:
    return Step(create, intent or create.intent, None, "drop", "the state holds its cluster already")


def _args(inputs: Mapping[str, Any]) -> ClusterArgs:
    """What is needed of the inputs to take a cluster over. Those that are secrets are ciphertext here, and stay so."""
    kept, failures = parse_cluster_inputs(inputs)
    ttl = kept.get("ttl")
    unreadable = [(name, reason) for name, reason in failures if name in ("nodes", "ttl")]
    if unreadable or has_unknown(ttl):
        raise InvalidInputs(unreadable or [("ttl", "is not known")])
    return ClusterArgs(
        selectors=selectors_of(kept),
        owner=kept.get("owner", ""),
        ttl=parse_ttl(ttl) if ttl is not None else None,
        name=kept.get("name"),
        account=kept.get("account"),
    )


def _dated(step: Step) -> Intent:
    """The intent with what the listing and the plan tell: when it was ordered, and on which fabric."""
    assert step.placed is not None
    intent, members = step.intent, step.placed.members
    if intent.body:
        return intent
    ordered = min((pod.created_at for pod in members if pod.created_at is not None), default=intent.opened_at)
    planned = step.create.inputs.get("planned")
    plan_: Mapping[str, Any] = planned if isinstance(planned, Mapping) else {}
    machines = {pod.node.id for pod in members if pod.node}
    if not machines or machines != set(plan_.get("machines") or ()):
        return replace(intent, opened_at=ordered)
    return replace(intent, opened_at=ordered, fabric_id=plan_.get("fabric_id"), fabric_type=plan_.get("fabric_type"))


def others_pending(export: StackExport) -> list[str]:
    """Pending operations that are not ours: the engine drops every one of them when a state is imported."""
    ours = {create.place for create in export.pending}
    operations = deployment_of(export.document).get("pending_operations") or []
    return [
        f"{operation['type']} {operation['resource']['urn']}"
        for place, operation in enumerate(operations)
        if place not in ours
    ]


def _put_resource(document: dict[str, Any], create: PendingCreate, cluster_id: str, state: Mapping[str, Any]) -> None:
    """The resource as the engine would have written it, in the place of the one that it replaces."""
    deployment = deployment_of(document)
    operation = deployment["pending_operations"][create.place]
    inputs = operation["resource"]["inputs"]
    hidden = {name: value for name, value in inputs.items() if name.startswith("__")}
    resource = {**operation["resource"], "id": cluster_id, "outputs": {**state, **hidden}}
    resources = deployment.get("resources") or []
    for place, row in enumerate(resources):
        if row.get("urn") == create.urn and row.get("pendingReplacement"):
            resources[place] = resource
            break
    else:
        resources.append(resource)
    deployment["resources"] = resources
    _store(document, deployment)


def _drop_operations(document: dict[str, Any], places: set[int]) -> None:
    deployment = deployment_of(document)
    operations = deployment.get("pending_operations") or []
    left = [operation for place, operation in enumerate(operations) if place not in places]
    if left:
        deployment["pending_operations"] = left
    else:
        deployment.pop("pending_operations", None)
    _store(document, deployment)


def _store(document: dict[str, Any], deployment: dict[str, Any]) -> None:
    document["deployment"] = deployment
