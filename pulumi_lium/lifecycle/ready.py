"""Readiness: wait until every node runs and can be entered (contract 5.5), or end what will not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_lium.api import Forbidden, Pod, Unauthorized
from pulumi_lium.api.errors import LiumError

from .context import Context
from .diff import Change, Effect
from .errors import InvalidInputs, OperationFailed, OperationTimeout
from .inputs import (
    DEFAULT_DELETE_TIMEOUT,
    DEFAULT_READY_TIMEOUT,
    READY_INTERNAL,
    READY_OPTIONS,
    Failures,
    parse_properties,
)
from .listing import SHARED, present_members
from .members import (
    lost_ranks,
    members_of,
    name_member,
    node_info,
    node_status,
    still_billing,
)
from .remove import remove
from .state import price_of, rows_of, whole
from .values import has_unknown, usd

POLL_SECONDS = 10.0
"""One listing a poll, for the whole cluster: 6 requests a minute."""
_VANISHED_AFTER = 2
"""Listings in a row without a member before it counts as lost: one may lag behind."""


@dataclass(frozen=True)
class ReadyArgs:
    """What the readiness resource is told."""

    cluster_id: str
    name: str
    nodes: int
    rows: list[dict[str, Any]]
    price_per_hour: float | None
    ordered_at: str | None
    unscheduled: tuple[str, ...]
    wait: bool
    timeout: float
    on_start_failure: str
    adopted: bool
    delete_timeout: float
    requested: Mapping[str, Any]
    """The inputs as they came."""

    @property
    def title(self) -> str:
        return f"{self.name} (cluster {self.cluster_id})"


def ready_args(props: Mapping[str, Any]) -> ReadyArgs:
    """Checked inputs of the readiness resource as a value. Raises `InvalidInputs`."""
    kept, failures = parse_properties(props, READY_OPTIONS, READY_INTERNAL)
    if not isinstance(kept.get("cluster_id"), str):
        failures.append(("cluster_id", "is missing"))
    if failures:
        raise InvalidInputs(failures)
    rows = rows_of(kept)
    return ReadyArgs(
        cluster_id=kept["cluster_id"],
        name=kept.get("name", "cluster"),
        nodes=whole(kept.get("nodes")) or len(rows),
        rows=rows,
        price_per_hour=price_of(kept),
        ordered_at=kept.get("ordered_at"),
        unscheduled=tuple(kept.get("unscheduled") or ()),
        wait=kept.get("wait_for_ready", True),
        timeout=kept.get("ready_timeout", DEFAULT_READY_TIMEOUT),
        on_start_failure=kept.get("on_start_failure", "delete"),
        adopted=bool(kept.get("adopted")),
        delete_timeout=kept.get("delete_timeout", DEFAULT_DELETE_TIMEOUT),
        requested=kept,
    )


def wait_ready(ctx: Context, args: ReadyArgs) -> dict[str, Any]:
    """`status` and `nodes_info` once every node runs. Raises naming the node and its reason.

    After a failed start, and at the end of the time, the cluster is deleted and seen to be gone, unless
    `on_start_failure` is `keep`; a cluster whose state cannot be read, or that was adopted, is never deleted.
    """
    if args.unscheduled:
        raise OperationFailed(
            f"{args.title} runs without its whole ttl: no removal time for {'; '.join(args.unscheduled)}. It is kept"
            f" and bills {usd(args.price_per_hour)} until it is removed. Run `pulumi up` again to set the time",
            code="ttl_incomplete",
        )
    if not args.wait:
        return ready_outputs(args, present_members(ctx, args.cluster_id, args.ordered_at))
    deadline = ctx.clock.monotonic() + args.timeout
    said, absences, members = "", 0, list[Pod]()
    max_age = -1.0  # The first look has to be younger than the order; later ones are shared with others who wait.
    while True:
        trouble: str | None = None
        try:
            members = members_of(ctx.looks.pods(ctx.api, ctx.clock, max_age), args.cluster_id)
            max_age = POLL_SECONDS / 2
        except (Unauthorized, Forbidden) as error:
            raise _unreadable(args, error) from error
        except LiumError as error:
            trouble = error.message
        else:
            lost = lost_ranks(args.rows, args.nodes, members)
            if not lost and all(pod.is_ready for pod in members):
                ctx.report(f"{args.name}: all {len(members)} nodes are up.")
                return ready_outputs(args, members)
            absences = absences + 1 if lost else 0
            if any(pod.is_terminal for pod in members) or absences >= _VANISHED_AFTER:
                raise _give_up(ctx, args, members, _why(ctx, args, members, lost), OperationFailed)
        line = _progress(members, args.nodes, trouble)
        if line != said:
            ctx.report(f"{args.name}: {line}")
            said = line
        left = deadline - ctx.clock.monotonic()
        if left <= 0:
            if trouble:
                raise _unreadable(args, trouble)
            states = ", ".join(f"{name_member(pod)} {pod.status}" for pod in members) or "no member is listed"
            why = f"not every node was up after {args.timeout:g} s (ready_timeout): {states}"
            raise _give_up(ctx, args, members, why, OperationTimeout)
        ctx.clock.sleep(min(POLL_SECONDS, left))


def ready_outputs(args: ReadyArgs, members: Sequence[Pod]) -> dict[str, Any]:
    """What the readiness resource holds: the nodes as they are now, by rank."""
    lost = lost_ranks(args.rows, args.nodes, members)
    return {
        "requested": dict(args.requested),
        "status": node_status(lost, members),
        "nodes_info": [node_info(pod) for pod in members],
    }


def _progress(members: Sequence[Pod], nodes: int, trouble: str | None) -> str:
    """`2 of 4 nodes up; rank 1 pulling image; about 40 s left`."""
    if trouble:
        return f"the listing fails ({trouble}); still waiting"
    waiting = [pod for pod in members if not pod.is_ready]
    parts = [f"{len(members) - len(waiting)} of {nodes} nodes up"]
    phases: dict[str, list[str]] = {}
    for pod in waiting:
        phases.setdefault(pod.phase or pod.status.lower(), []).append("?" if pod.rank is None else str(pod.rank))
    parts += [f"rank {', '.join(ranks)} {phase}" for phase, ranks in phases.items()]
    estimates = [pod.estimated_ready_seconds for pod in waiting if pod.estimated_ready_seconds is not None]
    if estimates:
        parts.append(
            f"about {max(estimates):.0f} s left" if max(estimates) > 0 else "overdue by the service's estimate"
        )
    return "; ".join(parts)


def _why(ctx: Context, args: ReadyArgs, members: Sequence[Pod], lost: Sequence[str]) -> str:
    """Each node that failed, with the reason out of its events."""
    failed = [(pod.id, f"{name_member(pod)} is {pod.status}") for pod in members if pod.is_terminal]
    listed = {pod.id for pod in members}
    failed += [
        (str(row["pod_id"]), f"rank {row.get('rank')} (pod {row['pod_id']}) has vanished")
        for row in args.rows
        if row.get("pod_id") and row["pod_id"] not in listed
    ]
    texts = [f"{text}{_reason(ctx, pod_id)}" for pod_id, text in failed]
    return "; ".join(texts or lost)


def _reason(ctx: Context, pod_id: str) -> str:
    try:
        events = ctx.api.pods.events(pod_id)
    except LiumError:
        return ""
    for event in reversed(events):
        told = event.error or event.detail or event.reason
        if told:
            return f": {told}"
    return ""


def _give_up(
    ctx: Context, args: ReadyArgs, members: Sequence[Pod], why: str, kind: type[OperationFailed]
) -> OperationFailed:
    """The error to raise, after the policy was carried out."""
    text = f"{args.title} did not start: {why}."
    if args.adopted:
        # Its start is none of ours: whoever ordered it may have work on the other nodes.
        return kind(
            f"{text} It was adopted, so it is left as it is. {still_billing(members, args.price_per_hour)}"
            " `pulumi destroy` removes it",
            code="start_failed",
        )
    if args.on_start_failure == "keep":
        return kind(
            f"{text} It is kept for a look (on_start_failure). {still_billing(members, args.price_per_hour)}"
            " `pulumi destroy` removes it",
            code="start_failed",
        )
    ctx.report(f"{text} Deleting the cluster.")
    state = {"name": args.name, "price_per_hour": args.price_per_hour, "ordered_at": args.ordered_at}
    try:
        remove(ctx, args.cluster_id, state, timeout=args.delete_timeout)
    except LiumError as error:
        return kind(f"{text} Its removal failed too: {error}", code="start_failed")
    return kind(
        f"{text} The cluster was deleted and nothing of it bills any more. The next `pulumi up` orders a new one",
        code="start_failed",
    )


def _unreadable(args: ReadyArgs, error: LiumError | str) -> OperationFailed:
    return OperationTimeout(
        f"{args.title}: whether its nodes run is not known, as the listing cannot be read: {str(error).rstrip('.')}."
        f" The cluster is kept and bills up to {usd(args.price_per_hour)}. Run `pulumi up` again to go on waiting, or"
        " `pulumi destroy`",
        code="not_readable",
    )


READY_EFFECTS: dict[str, Effect] = {
    "cluster_id": "replace",
    "wait_for_ready": "update",
    "ready_timeout": "update",
    "on_start_failure": "update",
    "delete_timeout": "update",
    "account": "ignore",
    "name": "ignore",
    "nodes": "ignore",
    "adopted": "ignore",
    "members": "ignore",
    "unscheduled": "ignore",
    "price_per_hour": "ignore",
    "ordered_at": "ignore",
}
"""What a difference in a property means. An unknown cluster id is that of a cluster still to be ordered."""


def check_ready(news: Mapping[str, Any]) -> tuple[dict[str, Any], Failures]:
    """The inputs to keep, and what is wrong by property."""
    return parse_properties(news, READY_OPTIONS, READY_INTERNAL)


def diff_ready(cluster_id: str, state: Mapping[str, Any], news: Mapping[str, Any]) -> Change:
    """Another cluster replaces; another limit or policy is kept; whatever else has changed needs nothing."""
    if has_unknown(news.get("cluster_id")) or news.get("cluster_id") != cluster_id:
        return Change(replaces={"cluster_id": "another cluster"})
    asked = state.get("requested") or {}
    return Change(
        updates={
            name: f"{name} {asked.get(name)}, now {news.get(name)}"
            for name, effect in READY_EFFECTS.items()
            if effect == "update" and asked.get(name) != news.get(name)
        }
    )


def read_ready(ctx: Context, cluster_id: str, state: Mapping[str, Any]) -> dict[str, Any] | None:
    """The nodes as they are now; None when the cluster is gone."""
    args = ready_args({**(state.get("requested") or {}), "cluster_id": cluster_id})
    members = present_members(ctx, cluster_id, args.ordered_at, max_age=SHARED)
    if not members:
        return None
    return {**state, **ready_outputs(args, members)}


def update_ready(ctx: Context, args: ReadyArgs, state: Mapping[str, Any]) -> dict[str, Any]:
    """The whole state under the new options; waits if that is what was switched on."""
    waited = (state.get("requested") or {}).get("wait_for_ready", True)
    if args.wait and not waited:
        return wait_ready(ctx, args)
    return {**state, "requested": dict(args.requested)}
