"""What bills and is owned by nobody: open intents, creates that were cut off, names that a person asked for.

A look that changes nothing. Only exact names and ids count as ours; a prefix counts when a person passed it. What a
state holds is never among the findings; what a living process is at work on is named, and never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pulumi_lium.api import InvalidArgument, NoApiKey, Pod
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.abandoned import locate, require_same_service, settled_from
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.errors import OrderUnsettled
from pulumi_lium.lifecycle.holder import require_holder_of_order
from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.lifecycle.members import by_rank, total_price
from pulumi_lium.lifecycle.settle import Placed
from pulumi_lium.lifecycle.strangers import owner_in, strangers
from pulumi_lium.lifecycle.values import usd

from .export import StackExport
from .findings import Finding, Kind, Survey, short_span
from .intents import FileIntents, OpenIntent, UnreadableRecord

Contexts = Callable[[str | None], Context]
"""The surroundings for an account, by its name; None is the default one."""


class NothingKnown(LiumError):
    """The listing could not be read, so that nothing can be said about what bills."""


@dataclass
class _Look:
    export: StackExport | None
    older_than: timedelta | None
    now: datetime
    pods: dict[str | None, list[Pod]]
    name_prefix: str | None = None
    is_of_owners: bool = False
    """The export, or its absence, is known to be of the stack whose intents are looked at."""
    findings: list[Finding] = field(default_factory=list)
    settled: list[Intent] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_alone: list[Finding] = field(default_factory=list)
    accounted: set[str] = field(default_factory=set)
    """Cluster ids and pod names that are owned, or found already."""

    def add(self, finding: Finding) -> None:
        """What is too young is left alone. Only what was found by its name may be in order then: an order that was cut
        off stays a finding, as it may bill on."""
        self.accounted.update(filter(None, (finding.cluster_id, finding.name)))
        age = finding.age(self.now)
        if self.older_than is not None and (age is None or age < self.older_than):
            how = "of unknown age" if age is None else f"only {short_span(age)} old"
            if finding.kind in ("prefix", "stranger"):
                self.notes.append(f"{finding.title} is {how}: left alone.")
                self.left_alone.append(finding)
                return
            finding = replace(finding, problem=finding.problem or f"it is {how}")
        self.findings.append(finding)


def survey(
    contexts: Contexts,
    journal: FileIntents,
    *,
    export: StackExport | None = None,
    name_prefix: str | None = None,
    older_than: timedelta | None = None,
    ours: Callable[[str], bool] | None = None,
    stacks: Iterable[str] = (),
    account: str | None = None,
) -> Survey:
    """Looks at the journal, the export and the listing of every account that they name, and of `account`.

    The default account (None) is left out where it has no key and another one is named.
    `ours` limits the journal's intents by owner, to those of one stack, whose state `export` is (None: it has none).
    `stacks` (`organization/project/stack`) are looked for by their marks, beside those of the export.
    Raises `NothingKnown` where a listing cannot be read. A record of the journal that cannot be read is a finding,
    whatever stack it is of.
    """
    unreadable = list[UnreadableRecord]()
    entries = [entry for entry in journal.look(aside=unreadable) if ours is None or ours(entry.intent.owner)]
    names = {entry.intent.account for entry in entries if not entry.held}
    if export is not None:
        names |= {create.intent.account for create in export.pending} | {owned.account for owned in export.clusters}
    if account is not None or not names or _has_key(contexts):
        names.add(account)
    look = _Look(
        export,
        older_than,
        contexts(next(iter(names))).clock.now(),
        {name: _listing(contexts, name, entries, export) for name in names},
        name_prefix,
        is_of_owners=ours is not None,
    )
    if export is not None:
        for owned in export.clusters:
            look.accounted.add(owned.cluster_id)
    for entry in entries:
        if entry.held:
            _held(look, entry.intent)
    for entry in entries:
        if not entry.held:
            _abandoned(look, contexts(entry.intent.account), entry.intent, "intent")
    for create in export.pending if export else ():
        if create.intent.pod_name not in look.accounted:
            _abandoned(look, contexts(create.intent.account), create.intent, "pending create")
    if name_prefix:
        _by_prefix(look, name_prefix)
    owners = export.owners if export else frozenset[str]()
    _strangers(look, owners, {*stacks, *(export.stacks if export else ())})
    if export is not None and not owners and ours is None:
        look.notes.append(
            "The export holds no cluster. One that an earlier state of this stack has lost is found only where its name"
            " tells the stack; else pass --name-prefix."
        )
    for record in unreadable:
        look.add(_unreadable(record))
    return Survey(
        tuple(look.findings), tuple(look.settled), tuple(look.notes), tuple(look.left_alone), _unattributed(look)
    )


def _has_key(contexts: Contexts) -> bool:
    """Whether the default account has a key. Raises where there is one that cannot be used."""
    try:
        contexts(None)
    except NoApiKey:
        return False
    return True


def _listing(
    contexts: Contexts, account: str | None, entries: Sequence[OpenIntent], export: StackExport | None
) -> list[Pod]:
    try:
        return contexts(account).api.pods.list()
    except InvalidArgument:
        raise
    except LiumError as error:
        bills = [f"{entry.intent.pod_name} ({usd(entry.intent.price_per_hour)})" for entry in entries]
        if export is not None:
            bills += [
                f"{owned.name} (cluster {owned.cluster_id}, {usd(owned.price_per_hour)})" for owned in export.clusters
            ]
            bills += [f"{create.intent.pod_name} ({usd(create.intent.price_per_hour)})" for create in export.pending]
        may = f" These may bill: {', '.join(bills)}." if bills else ""
        raise NothingKnown(
            f"Nothing is known about what bills, since the listing cannot be read: {str(error).rstrip('.')}.{may}",
            code="nothing_known",
        ) from error


def _held(look: _Look, intent: Intent) -> None:
    """The order of a living process: left alone, and named, as nobody knows yet what comes of it."""
    look.accounted.update(filter(None, (intent.pod_name, intent.cluster_id)))
    if look.export is not None and look.export.holds(intent):
        return
    look.add(
        Finding(
            kind="held",
            name=intent.pod_name,
            account=intent.account,
            placed=None,
            price_per_hour=intent.price_per_hour,
            since=intent.opened_at,
            owner=intent.owner,
            why="its order is under way",
            intent=intent,
            problem="a living process is at work on its order",
        )
    )


def _abandoned(look: _Look, ctx: Context, intent: Intent, kind: Kind) -> None:
    """One open intent, or the order of one create that was cut off."""
    if look.export is not None and look.export.holds(intent):
        look.settled.append(intent)
        look.accounted.update(filter(None, (intent.pod_name, intent.cluster_id)))
        return
    if intent.stage == "opened":
        look.settled.append(intent)
        return
    problem: str | None = None
    placed: Placed | None = None
    until = settled_from(intent)
    try:
        require_same_service(ctx, intent)
        placed = locate(look.pods[intent.account], intent)
        if placed is None:
            require_holder_of_order(ctx, intent)
    except LiumError as error:
        problem = _why(error) if isinstance(error, OrderUnsettled) else _holder_unknown(intent, error)
    if placed is not None and placed.cluster_id in look.accounted:
        problem, placed = None, None
        look.settled.append(intent)
        return
    if placed is not None and problem is None:
        problem = _may_be_held(look, intent) if kind == "intent" else _may_be_anothers(look, intent)
    if placed is None and problem is None and look.now >= until:
        look.settled.append(intent)
        return
    lost = ""
    if placed is None and look.now < until:
        lost = f", and its answer was lost: until {until:%H:%M:%S} UTC it may still arrive"
    why = "its order was interrupted" if kind == "intent" else "its create stands cut off in the stack's state"
    members = placed.members if placed else []
    look.add(
        Finding(
            kind=kind,
            name=intent.pod_name,
            account=intent.account,
            placed=placed,
            price_per_hour=total_price([pod.price_per_hour for pod in members]) or intent.price_per_hour,
            since=_since(members) or intent.opened_at,
            owner=intent.owner,
            why=why + lost,
            intent=intent,
            problem=problem,
        )
    )


def _why(error: OrderUnsettled) -> str:
    return f"{error.message}. {error.hint}".rstrip(".") if error.hint else error.message


def _holder_unknown(intent: Intent, error: LiumError) -> str:
    return (
        f"no listing shows {intent.pod_name}, but whether this key could see it is not known"
        f" ({str(error).rstrip('.')}): it may be billing {usd(intent.price_per_hour)}"
    )


def _may_be_held(look: _Look, intent: Intent) -> str | None:
    """Why an intent's cluster is not taken to be owned by nobody.

    Once its members were seen, `create` had all that it returns, and the process may have died after the engine saved
    it: only the stack's own state tells (design 3.7: never guess).
    """
    if intent.stage != "listed" or _is_meant(look, intent):
        return None
    if look.is_of_owners or (look.export is not None and look.export.is_of(intent.owner)):
        return None
    return (
        f"its order was complete, so the state of its stack ({intent.owner.rpartition('/')[0] or 'unknown'}) may hold"
        f" it: pass --stack-export with that stack's export, or --name-prefix {intent.pod_name} to remove it anyway"
    )


def _may_be_anothers(look: _Look, intent: Intent) -> str | None:
    """Why the cluster with the name of a create that was cut off is not taken to be its own (`is_telling`)."""
    creates = look.export.pending if look.export else ()
    if _is_meant(look, intent) or any(create.is_telling for create in creates if create.intent is intent):
        return None
    return (
        f"its name was chosen by a person, so it does not tell whether a create that was cut off ordered it: pass"
        f" --name-prefix {intent.pod_name} to remove it, or take it over with adopt"
    )


def _is_meant(look: _Look, intent: Intent) -> bool:
    """Whether a person named it."""
    return bool(look.name_prefix) and intent.pod_name.startswith(look.name_prefix or "")


def _clusters(look: _Look) -> Iterator[tuple[str | None, str, list[Pod]]]:
    """What is listed, bills and is not accounted for by its id: account, that id, pods. A single pod has its own."""
    for account, pods in look.pods.items():
        clusters: dict[str, list[Pod]] = {}
        for pod in pods:
            clusters.setdefault(pod.cluster_id or pod.id, []).append(pod)
        for key, members in sorted(clusters.items()):
            if key not in look.accounted and _costs(members):
                yield account, key, members


def _by_prefix(look: _Look, prefix: str) -> None:
    # A name may have been used again; what is owned is owned by its id, or while its order is under way.
    names = frozenset(look.accounted)
    for account, _, members in _clusters(look):
        name, cluster_id = members[0].name, members[0].cluster_id
        if cluster_id and name.startswith(prefix) and name not in names:
            look.add(_seen("prefix", account, cluster_id, members, f"its name begins with {prefix!r}", None))


def _unattributed(look: _Look) -> tuple[Finding, ...]:
    """What else bills in the accounts looked at: owned or not, nothing here tells."""
    unplaced = {finding.name for finding in (*look.findings, *look.left_alone) if finding.cluster_id is None}
    found: dict[str, Finding] = {}
    for account, key, members in _clusters(look):
        if members[0].name not in unplaced and key not in found:
            problem = "this look cannot tell whose it is"
            found[key] = _seen("unattributed", account, members[0].cluster_id, members, "it is listed", problem)
    return tuple(found.values())


def _strangers(look: _Look, owners: Iterable[str], stacks: Iterable[str]) -> None:
    names = {pod.name for pods in look.pods.values() for pod in pods}
    told = {owner for name in names for stack in stacks if (owner := owner_in(name, stack))}
    for owner in sorted({*owners, *told}):
        for account, pods in look.pods.items():
            for stranger in strangers(pods, owner, look.accounted):
                problem = (
                    "it bears the mark of this resource, and no state or intent accounts for it: to remove it, pass"
                    f" --name-prefix {stranger.name}"
                )
                finding = _seen("stranger", account, stranger.cluster_id, stranger.members, "nothing owns it", problem)
                look.add(finding)


def _seen(
    kind: Kind, account: str | None, cluster_id: str | None, members: list[Pod], why: str, problem: str | None
) -> Finding:
    return Finding(
        kind=kind,
        name=members[0].name,
        account=account,
        placed=Placed(cluster_id, by_rank(members), tuple(pod.id for pod in members)) if cluster_id else None,
        price_per_hour=total_price([pod.price_per_hour for pod in members]),
        since=_since(members),
        owner="",
        why=why,
        problem=problem,
    )


def _unreadable(record: UnreadableRecord) -> Finding:
    return Finding(
        kind="unreadable",
        name=str(record.path),
        account=None,
        placed=None,
        price_per_hour=None,
        since=record.since,
        owner="",
        why="an order was noted there, and nothing is known of it",
        problem=record.problem,
    )


def _costs(members: Sequence[Pod]) -> bool:
    return any(pod.is_billable or not pod.is_terminal for pod in members)


def _since(members: Sequence[Pod]) -> datetime | None:
    return min((pod.created_at for pod in members if pod.created_at is not None), default=None)
