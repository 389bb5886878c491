"""Removes what a survey found, several at a time, and sees to it that it is gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.abandoned import discard
from pulumi_lium.lifecycle.intents import Intent, NullIntents
from pulumi_lium.lifecycle.remove import Keeper, remove

from .findings import Finding, Survey
from .intents import FileIntents
from .survey import Contexts

_AT_ONCE = 8
_BY_NAME = Keeper("no state", "pulumi-lium sweep --yes")


@dataclass(frozen=True)
class Removal:
    """What became of a finding: `error` is None once nothing of it is left. `cluster_id` where there was a cluster."""

    finding: Finding
    cluster_id: str | None
    error: str | None


def clean(
    contexts: Contexts, journal: FileIntents, found: Survey, *, patience: float = math.inf, timeout: float | None = None
) -> list[Removal]:
    """Removes every removable finding and verifies it; closes the intents whose clusters are gone or owned.

    An order whose answer was lost is waited for, at most `patience` seconds, until it cannot arrive any more. One
    finding that fails keeps no other from being removed, nor does the journal. `timeout` limits each removal (seconds).
    """
    waiting = [finding.intent for finding in found.findings if finding.kind == "intent" and finding.intent]
    # Only theirs: an order of another resource must not wait for this.
    owners = {intent.owner for intent in (*found.settled, *waiting)}
    claimed = {
        intent.idempotency_key: intent for owner in owners for intent in journal.claim_abandoned(owner, aside=[])
    }
    try:
        for intent in found.settled:
            if intent.idempotency_key in claimed:
                with contexts(intent.account).journal_may_fail():
                    journal.close(intent.idempotency_key)
        chosen = [finding for finding in found.findings if finding.removable]

        def one(finding: Finding) -> Removal:
            return _remove(contexts, finding, claimed, patience, timeout)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(one, chosen))
    finally:
        for key in claimed:
            journal.release(key)


def _remove(
    contexts: Contexts, finding: Finding, claimed: dict[str, Intent], patience: float, timeout: float | None
) -> Removal:
    ctx = contexts(finding.account)
    try:
        if finding.kind == "intent":
            assert finding.intent is not None
            intent = claimed.get(finding.intent.idempotency_key)
            if intent is None:
                return Removal(finding, finding.cluster_id, "another process has begun to settle it meanwhile")
            placed = discard(ctx, intent, patience=patience, timeout=timeout)
            return Removal(finding, placed.cluster_id if placed else None, None)
        bare = replace(ctx, intents=NullIntents())
        if finding.intent is not None:
            placed = discard(bare, finding.intent, patience=patience, timeout=timeout)
            return Removal(finding, placed.cluster_id if placed else None, None)
        assert finding.placed is not None
        state = {"name": finding.name, "price_per_hour": finding.price_per_hour}
        remove(bare, finding.placed.cluster_id, state, timeout=timeout, keeper=_BY_NAME)
        return Removal(finding, finding.placed.cluster_id, None)
    except LiumError as error:
        return Removal(finding, finding.cluster_id, str(error))


def still_open(found: Survey, removals: Sequence[Removal]) -> list[Finding]:
    """The findings that may still bill."""
    gone = {id(removal.finding) for removal in removals if removal.error is None}
    return [finding for finding in found.findings if id(finding) not in gone]
