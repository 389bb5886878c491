"""Events: what happens in the market from outside, by a scenario's `events` or at once (design 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from .pods import LEAVE, STARTING, Pod
from .scenario import Funds, Seconds
from .wire import micros

if TYPE_CHECKING:
    from .hosts import Host
    from .state import State

Text = Annotated[str, Field(min_length=1)]
# 0 stands for ever.
Times = Annotated[int, Field(ge=0)]


class EventError(ValueError):
    """An event that cannot be read or cannot happen; `field` is the part at fault ("" for the whole)."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"event{field and '.' + field}: {reason}")
        self.field = field
        self.reason = reason


class Event(BaseModel):
    """Base: `at_s` is the time in a scenario, seconds after the reset."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at_s: Seconds | None = None


class OnHost(Event):
    """machine_taken: others rent what is free of the host. machine_freed: they leave. machine_lost: the host is gone
    from every list; pods that start on it fail, pods that run are BROKEN. machine_back: it returns."""

    event: Literal["machine_taken", "machine_freed", "machine_lost", "machine_back"]
    host: Text


class RefuseOrder(Event):
    """The host looks free and refuses the next `times` orders when it comes to the renting (0: all)."""

    event: Literal["refuse_order"]
    host: Text
    times: Times = 1
    reason: Text | None = None


class OnPod(Event):
    """Something happens to a pod, named by its id, or to the members of rank `rank` of one cluster, of clusters called
    `pod_name`, or of any. Where no cluster is named and none fits now, it waits for the next order with such a member.

    pod_fails: a start fails with `reason` (one that waited: at the end of the boot); a running pod becomes FAILED.
    pod_stuck: a start never ends. pod_lost: the row disappears without a word. refuse_delete: the next `times` deletes
    are refused (0: all).
    """

    event: Literal["pod_fails", "pod_stuck", "pod_lost", "refuse_delete"]
    pod: Text | None = None
    cluster: Text | None = None
    rank: Annotated[int, Field(ge=0)] | None = None
    pod_name: Text | None = None
    reason: Text = "no active RDMA port"
    times: Times = 1


class RivalOrder(Event):
    """Someone else rents the `nodes` cheapest free machines of a fabric (its name, `provider/name`, or the offer's
    id)."""

    event: Literal["rival_order"]
    fabric: Text
    nodes: Annotated[int, Field(ge=1)] = 2


class Balance(Event):
    """An account's balance is set, USD."""

    event: Literal["balance"]
    account: Text
    balance: Funds


AnyEvent = OnHost | RefuseOrder | OnPod | RivalOrder | Balance
_READER: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="event")])


def parse_event(raw: Mapping[str, Any], *, scheduled: bool) -> AnyEvent:
    """Check an event's form; a scenario's needs `at_s`, one for now has none. Raises EventError."""
    try:
        event = _READER.validate_python(dict(raw))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        # The first part of a place inside a tagged union is the tag.
        where = ".".join(str(part) for part in fault["loc"][1:])
        if fault["type"] == "extra_forbidden":
            raise EventError(where, "unknown key") from None
        if fault["type"].startswith("union_tag"):
            known = ", ".join(sorted(fault.get("ctx", {}).get("expected_tags", "").replace("'", "").split(", ")))
            raise EventError("event", f"one of {known or 'the kinds of event'} is required") from None
        raise EventError(where, "is missing" if fault["type"] == "missing" else fault["msg"]) from None
    if scheduled != (event.at_s is not None):
        raise EventError("at_s", "is missing" if scheduled else "an event for now has no time")
    if isinstance(event, OnPod) and event.pod is None and event.cluster is None and event.rank is None:
        raise EventError("rank", "one of pod, cluster or rank is required")
    return event


def check_names(event: AnyEvent, hosts: set[str], accounts: set[str], fabrics: set[str]) -> None:
    """Check that a scenario's event names things of the scenario. Raises EventError."""
    for field, known in (("host", hosts), ("account", accounts), ("fabric", fabrics)):
        name = getattr(event, field, None)
        if name is not None and name not in known and not (field == "fabric" and name.startswith("hot:")):
            raise EventError(field, f"no {field} {name!r} in this scenario")


def apply(state: State, event: AnyEvent) -> None:
    """Let an event happen now. Raises EventError where it names nothing, and then nothing has changed."""
    if isinstance(event, OnHost):
        _on_host(state, event)
    elif isinstance(event, RefuseOrder):
        host = _host(state, event.host)
        host.refusals, host.refusal_reason = event.times or -1, event.reason
        state.touch("hosts", host.id)
    elif isinstance(event, OnPod):
        _on_pods(state, event)
    elif isinstance(event, RivalOrder):
        _rival_order(state, event)
    else:
        from . import billing

        if event.account not in state.tables.accounts:
            raise EventError("account", f"no account {event.account!r}")
        billing.set_balance(state, event.account, micros(event.balance))


def _host(state: State, name: str) -> Host:
    host = state.tables.hosts.get(name)
    if host is None:
        raise EventError("host", f"no host {name!r}")
    return host


def _on_host(state: State, event: OnHost) -> None:
    from .transitions import break_pod, fail

    host = _host(state, event.host)
    if event.event == "machine_taken":
        host.taken = host.gpu_count - host.used
    elif event.event == "machine_freed":
        host.taken = 0
    else:
        host.online = event.event == "machine_back"
        if not host.online:
            for pod in list(host.pods.values()):
                if pod.status == "PENDING":
                    fail(state, pod, "machine lost")
                elif pod.bills:
                    break_pod(state, pod)
    host.changed()
    state.touch("hosts", host.id)


def _rival_order(state: State, event: RivalOrder) -> None:
    known = [
        group
        for group in state.groups
        if event.fabric in (group.fabric_id, group.fabric.id, group.fabric.spec.name)
    ]  # fmt: skip
    if not known:
        raise EventError("fabric", f"no fabric {event.fabric!r}")
    if len({group.fabric.id for group in known}) > 1:
        names = ", ".join(sorted({group.fabric.id for group in known}))
        raise EventError("fabric", f"{event.fabric!r} is the name of several: say one of {names}")
    for group in known:
        free = sorted((host for host in group.hosts if host.whole), key=lambda host: (host.price, host.id))
        if len(free) >= event.nodes:
            for host in free[: event.nodes]:
                host.taken = host.gpu_count
                host.changed()
                state.touch("hosts", host.id)
            return
    raise EventError("nodes", f"fewer than {event.nodes} alike machines of {event.fabric!r} are free")


# Pods ---------------------------------------------------------------------------------------------------------------


def _on_pods(state: State, event: OnPod) -> None:
    if event.pod is not None:
        pod = state.tables.pods.get(event.pod)
        if pod is None or not pod.live:
            raise EventError("pod", f"no pod {event.pod!r} is listed")
        if not _fits(event, pod):
            raise EventError("pod", f"{event.event} means nothing to a pod that is {pod.status}")
        targets = [pod]
    elif event.cluster is not None:
        members = state.members_of(event.cluster)
        if not members:
            raise EventError("cluster", f"no cluster {event.cluster!r} is listed")
        targets = [pod for pod in members if event.rank in (None, pod.rank) and _fits(event, pod)]
        if not targets:
            raise EventError("rank", f"{event.event} means nothing to any such member of cluster {event.cluster!r}")
    else:
        starts = event.event in ("pod_fails", "pod_stuck")
        targets = [
            pod
            for members in state.members.values()
            for pod in members.values()
            if _meant(event.rank, event.pod_name, pod) and _fits(event, pod) and (not starts or pod.status in STARTING)
        ]
        if not targets:
            state.armed.append(event.model_dump(exclude={"at_s"}))
            state.note_meta()
            return
    for pod in sorted(targets, key=lambda pod: pod.seq):
        _strike(state, event, pod)


def _meant(rank: int | None, pod_name: str | None, pod: Pod) -> bool:
    return pod.rank == rank and pod_name in (None, pod.name)


def _fits(event: OnPod, pod: Pod) -> bool:
    """Whether the event can happen to the pod as it is."""
    if event.event == "pod_stuck":
        return pod.status in STARTING
    if event.event == "pod_fails":
        return pod.status in STARTING or pod.status == "RUNNING"
    return event.event == "pod_lost" or pod.status != "DELETING"


def _strike(state: State, event: OnPod, pod: Pod) -> None:
    from .transitions import fail, leave

    if event.event == "pod_fails":
        fail(state, pod, event.reason)
    elif event.event == "pod_stuck":
        pod.ready_at = None
    elif event.event == "pod_lost":
        leave(state, pod)
    else:
        pod.refuse_deletes = event.times or -1
    state.touch_pod(pod)


def arm_new_pod(state: State, pod: Pod) -> None:
    """Let events that wait for a new member take hold of it; each does so once."""
    for waiting in state.armed.copy():
        if not _meant(waiting["rank"], waiting["pod_name"], pod):
            continue
        state.armed.remove(waiting)
        if waiting["event"] == "pod_fails":
            pod.fails_with = waiting["reason"]
        elif waiting["event"] == "pod_stuck":
            pod.ready_at = None
        elif waiting["event"] == "pod_lost":
            pod.leave_at, pod.ready_at = pod.ready_at, None
            if pod.leave_at is not None:
                state.at(pod.leave_at, LEAVE, pod)
        else:
            pod.refuse_deletes = waiting["times"] or -1
        state.touch_pod(pod)
