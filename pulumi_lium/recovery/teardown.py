"""Teardown of a stack: what bills goes first, without the engine; then the engine, then the proof.

Steps, each safe to repeat: read the export; delete every cluster of the state and every interrupted order of this
stack at once; let the engine destroy the rest; look at the listing and at the state again. Whatever fails, the clusters
that may still bill are known at the end, with their price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from pulumi_lium.api import Clock, InvalidArgument
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.intents import Intent, NullIntents
from pulumi_lium.lifecycle.members import members_of, total_price
from pulumi_lium.lifecycle.remove import Keeper, remove
from pulumi_lium.lifecycle.values import usd

from .export import OwnedCluster, StackExport, parse_export
from .findings import Finding, Kind, short_span
from .intents import FileIntents
from .recover import drop_pending
from .stack import PulumiFailed, PulumiStack, StackLocked, take_off_dead_lock
from .survey import Contexts, NothingKnown, survey
from .sweep import Removal, clean, still_open

_AT_ONCE = 16
_POLL = 1.0
"""Seconds between two looks at an order that a living process is at work on."""
_MOMENT = 1.0
"""Seconds for a removal that somebody else goes on with."""
_KEEPER = Keeper("the stack's state", "pulumi-lium teardown")


@dataclass(frozen=True)
class Leftover:
    """What may still bill after a teardown."""

    name: str
    cluster_id: str | None
    price_per_hour: float | None
    why: str
    age_seconds: int | None = None
    """Since its order; None where that is not known."""
    account: str | None = None
    """The account that it bills to; None is the default one."""
    kind: Literal["owned"] | Kind = "owned"
    """`owned` stands in the stack's state; the others are findings."""

    @property
    def title(self) -> str:
        where = f"cluster {self.cluster_id}, " if self.cluster_id else ""
        old = "" if self.age_seconds is None else f", {short_span(timedelta(seconds=self.age_seconds))} old"
        return f"{self.name} ({where}{usd(self.price_per_hour)}{old})"


@dataclass
class Outcome:
    """How a teardown ended. `failures` are what went wrong.

    `known` is False where the state or a listing could not be read: more than `leftovers` may bill then.
    """

    removed: list[str] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    known: bool = True
    missing: bool = False
    """There was no such stack."""


def delete_on_record(
    contexts: Contexts, journal: FileIntents, stack: PulumiStack, report: Callable[[str], None]
) -> list[Removal]:
    """Deletes what the journal's interrupted orders of this stack have, for as long as its state is not read.

    Waits for nothing: what is not seen to be gone stays on record, and the teardown itself goes on with it.
    """
    try:
        found = survey(contexts, journal, ours=stack.owns)
        return clean(contexts, journal, replace(found, settled=()), patience=0, timeout=_MOMENT)
    except LiumError as error:
        report(f"warning: {error}")
        return []


def _put(removed: list[str], cluster: str) -> None:
    """Once, though both the state and the journal may have it."""
    if cluster not in removed:
        removed.append(cluster)


@dataclass(frozen=True)
class Teardown:
    """One teardown. `report` takes lines for the person who is watching."""

    stack: PulumiStack
    contexts: Contexts
    journal: FileIntents
    export: StackExport | None
    """None where the stack is missing, or its state could not be read (`unread`)."""
    lock_age: timedelta
    report: Callable[[str], None]
    clock: Clock
    patience: float = math.inf
    timeout: float | None = None
    is_hurried: Callable[[], bool] = lambda: False
    """True once nothing is to be waited for any more."""
    unread: str | None = None
    """Why the state could not be read: `export` is None then, and of the stack only what is on record is removed."""
    begun: Callable[[], Sequence[Removal]] = tuple
    """What `delete_on_record` has done meanwhile."""

    def run(self, *, remove_stack: bool = False) -> Outcome:
        """All of it. Raises nothing for what the service or the engine refuse: that is in the outcome."""
        outcome = Outcome(missing=self.export is None and self.unread is None)
        if self.unread is not None:
            outcome.known = False
            outcome.failures.append(self.unread)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            owned = self.export.clusters if self.export else ()
            deletions = [(cluster, pool.submit(self._delete, cluster)) for cluster in owned]
            left = self._sweep(outcome)
            if self.export is not None:
                self._destroy(outcome, self.export, left)
            failed = {
                cluster.cluster_id for cluster, deletion in deletions if not self._note(outcome, cluster, deletion)
            }
        self._prove(outcome, left, failed)
        clean_end = outcome.known and not outcome.leftovers and not outcome.failures
        if clean_end and self.export is not None:
            self._forget(outcome, remove_stack)
        return outcome

    # -- what bills ---------------------------------------------------------------------------------------------------

    def _delete(self, cluster: OwnedCluster) -> None:
        """Deletes a cluster of the state, verified. The intent stays as it is: the engine closes it, or the proof."""
        ctx = replace(self.contexts(cluster.account), intents=NullIntents())
        remove(ctx, cluster.cluster_id, cluster.state, timeout=self.timeout, keeper=_KEEPER)

    def _sweep(self, outcome: Outcome) -> list[Finding] | None:
        """This stack's interrupted orders, removed: what is left of them, or None where that could not be seen.

        The provider of a killed engine may still be at work on one: it is waited for, as long as the patience lasts.
        """
        for removal in self.begun():
            self._note_removal(outcome, removal)
        try:
            give_up = self.clock.monotonic() + self.patience
            said: set[str] = set()
            while True:
                found = survey(
                    self.contexts,
                    self.journal,
                    export=self.export,
                    ours=self.stack.owns,
                    stacks=self.stack.full_names,
                )
                held = [f"{each.name}: {each.problem}; waiting." for each in found.findings if each.kind == "held"]
                for note in (*found.notes, *held):
                    if note not in said:
                        self.report(note)
                        said.add(note)
                removals = clean(self.contexts, self.journal, found, patience=self.patience, timeout=self.timeout)
                for removal in removals:
                    self._note_removal(outcome, removal)
                if not found.held or self.clock.monotonic() + _POLL > give_up or self.is_hurried():
                    break
                self.clock.sleep(_POLL)
        except LiumError as error:
            # A journal that cannot be read keeps nothing else from being torn down; without a listing nothing is known.
            outcome.known &= not isinstance(error, (NothingKnown, InvalidArgument))
            outcome.failures.append(str(error))
            return None
        outcome.failures += [removal.error for removal in removals if removal.error is not None]
        return still_open(found, removals)

    def _note_removal(self, outcome: Outcome, removal: Removal) -> None:
        if removal.error is None and removal.cluster_id is not None:
            _put(outcome.removed, f"{removal.finding.name} (cluster {removal.cluster_id})")
            self.report(f"removed: {removal.finding.name} (cluster {removal.cluster_id}), of an interrupted order")

    def _note(self, outcome: Outcome, cluster: OwnedCluster, deletion: Future[None]) -> bool:
        """Whether the cluster is gone."""
        try:
            deletion.result()
        except LiumError as error:
            outcome.failures.append(str(error))
            return False
        _put(outcome.removed, f"{cluster.name} (cluster {cluster.cluster_id})")
        self.report(f"removed: {cluster.name} (cluster {cluster.cluster_id}), seen to be gone")
        return True

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _destroy(self, outcome: Outcome, export: StackExport, left: list[Finding] | None) -> None:
        """The engine's part: whatever else the stack has.

        It forgets creates that were cut off. While the order of one is not settled, the state may be all that knows it.
        """
        if not outcome.known:
            self.report("`pulumi destroy` is not run, since nothing is known about what bills; the stack is kept.")
            return
        if left is None:
            unsettled = [create.intent.pod_name for create in export.pending]
        else:
            # One that is listed and will not be touched is known to whoever looks; one that is not listed, only here.
            unsettled = [
                finding.name
                for finding in left
                if finding.kind == "pending create" and (finding.removable or finding.placed is None)
            ]
        if unsettled:
            outcome.failures.append(
                f"`pulumi destroy` was not run: it would forget the create of {', '.join(unsettled)}, which is not"
                " settled. Run the teardown again"
            )
            return
        try:
            try:
                self.stack.destroy(delete_timeout=self.timeout)
            except StackLocked as locked:
                take_off_dead_lock(self.stack, locked, self.lock_age, self.clock.now(), self.report)
                self.stack.destroy(delete_timeout=self.timeout)
        except PulumiFailed as error:
            outcome.failures.append(str(error))

    # -- the proof ----------------------------------------------------------------------------------------------------

    def _prove(self, outcome: Outcome, left: list[Finding] | None, failed: set[str]) -> None:
        """Looks once more: no cluster of the state is listed, and no order of the stack is open.

        `left` is None where that could not be seen. `failed` are the clusters whose deletion failed: an empty listing
        does not show that such a one is gone, as it may be that of another account.
        """

        def left_over(what: OwnedCluster | Finding | Intent, price: float | None, why: str) -> None:
            kind: Literal["owned"] | Kind
            match what:
                case OwnedCluster():
                    name, since, kind = what.name, what.ordered_at, "owned"
                case Finding():
                    name, since, kind = what.name, what.since, what.kind
                case Intent():
                    name, since, kind = what.pod_name, what.opened_at, "pending create"
            age = None if since is None else max(0, round((self.clock.now() - since).total_seconds()))
            outcome.leftovers.append(Leftover(name, what.cluster_id, price, why, age, what.account, kind))

        if left is None:
            outcome.known = False
            for create in self.export.pending if self.export else ():
                why = "its create was cut off, and what came of it could not be seen"
                left_over(create.intent, create.intent.price_per_hour, why)
        for finding in left or ():
            left_over(finding, finding.price_per_hour, finding.problem or finding.why)
        for cluster in self.export.clusters if self.export else ():
            try:
                members = members_of(self.contexts(cluster.account).api.pods.list(), cluster.cluster_id)
            except LiumError as error:
                outcome.known = False
                outcome.failures.append(
                    f"Nothing is known about cluster {cluster.cluster_id}, since the listing cannot be read: {error}"
                )
                left_over(cluster, cluster.price_per_hour, "the listing cannot be read")
                continue
            if members:
                price = total_price([pod.price_per_hour for pod in members]) or cluster.price_per_hour
                left_over(cluster, price, "members are listed")
            elif cluster.cluster_id in failed:
                left_over(cluster, cluster.price_per_hour, "its deletion failed")

    def _forget(self, outcome: Outcome, remove_stack: bool) -> None:
        """Nothing bills: the state's cut-off creates are dropped, and the stack too where that is asked for."""
        try:
            text = self.stack.export()
            # Where its orders went does not matter any more: they are only dropped.
            export = parse_export(text, f"the export of {self.stack.name}", base_url="", now=self.clock.now())
            for cluster in export.clusters:
                outcome.failures.append(f"{cluster.name} (cluster {cluster.cluster_id}) still stands in the state.")
            if export.pending:
                self.stack.import_(drop_pending(export))
            if remove_stack and not outcome.failures:
                self.stack.remove()
                self.report(f"The stack {self.stack.name} was removed.")
        except LiumError as error:
            outcome.failures.append(str(error))
