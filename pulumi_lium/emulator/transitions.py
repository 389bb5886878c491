"""Transitions: what happens to pods by themselves as time goes on (contract 3.3, 7.2.6, 7.5.9, 7.6)."""

from __future__ import annotations

import heapq
from math import inf

from . import billing, events
from .pods import BILLED, LEAVE, READY, REMOVE, VACATED, Pod
from .state import State

FAILED_ROW_SECONDS = 180.0
REMOVAL_RETRY_SECONDS = 60.0


def set_status(
    state: State, pod: Pod, status: str, kind: str, reason: str | None = None, detail: str | None = None
) -> None:
    """Change a pod's status, its hold on the host and its billing with it."""
    before = pod.status
    pod.status = status
    pod.updated_at = state.now
    pod.note(state.now, kind, before, reason, detail)
    if status in VACATED and not pod.vacated:
        pod.host.release(pod)
        pod.vacated = True
    if status not in BILLED:
        if before in BILLED:
            billing.stop(state, pod)
    elif before not in BILLED:
        billing.start(state, pod)
    state.touch_pod(pod)


def leave(state: State, pod: Pod) -> None:
    """The pod's row disappears and its GPUs are free."""
    if pod.holds:
        pod.host.release(pod)
    billing.stop(state, pod)
    pod.gone_at = state.now
    pod.ready_at = pod.removal_due = pod.leave_at = None
    key = pod.key
    del key.tenant.pods[pod.id], key.payer.open_pods[pod.id], key.open_pods[pod.id]
    if pod.cluster_id is not None:
        members = state.members[pod.cluster_id]
        del members[pod.id]
        if not members:
            del state.members[pod.cluster_id]
    state.touch_pod(pod)
    pod.row_base = None


def fail(state: State, pod: Pod, reason: str) -> None:
    """A start fails (the row stays for three minutes, contract 3.3); a pod that ran stops with FAILED."""
    pod.ready_at = pod.fails_with = None
    if pod.status == "PENDING":
        pod.leave_at = state.now + FAILED_ROW_SECONDS
        state.at(pod.leave_at, LEAVE, pod)
        set_status(state, pod, "CREATION_FAILED", "pod-lifecycle", "creation_failed", reason)
    elif pod.status == "REBOOT_PENDING":
        set_status(state, pod, "REBOOT_FAILED", "pod-lifecycle", "reboot_failed", reason)
    else:
        set_status(state, pod, "FAILED", "pod-lifecycle", "failed", reason)


def break_pod(state: State, pod: Pod) -> None:
    """The provider closes the pod by force: BROKEN, no longer billed, credited; only a delete works (contract 3.3)."""
    pod.ready_at = pod.fails_with = None
    set_status(state, pod, "BROKEN", "pod-lifecycle", "machine_lost")
    billing.credit(state, pod)


def start_delete(state: State, pod: Pod) -> None:
    """A delete was accepted: final settlement, DELETING, then the row disappears."""
    pod.ready_at = pod.fails_with = pod.removal_due = None
    set_status(state, pod, "DELETING", "pod-delete")
    pod.leave_at = state.now + state.settings.delete_seconds
    state.at(pod.leave_at, LEAVE, pod)


def refuses_delete(state: State, pod: Pod) -> bool:
    """Whether the node refuses this delete; counts it off."""
    if pod.refuse_deletes == 0:
        return False
    if pod.refuse_deletes > 0:
        pod.refuse_deletes -= 1
    state.touch("pods", pod.id)
    return True


def happen(state: State, pod: Pod, kind: int) -> None:
    """One entry of the agenda, still valid, is due now."""
    if kind == READY:
        pod.ready_at = None
        if pod.fails_with is not None:
            fail(state, pod, pod.fails_with)
        else:
            set_status(state, pod, "RUNNING", "pod-lifecycle")
    elif kind == LEAVE:
        leave(state, pod)
    elif (pod.status == "PENDING" and not state.settings.cancel_in_flight_creates) or refuses_delete(state, pod):
        # A scheduled removal that cannot be done now is tried again, as a person would try a delete again.
        pod.removal_due = state.now + REMOVAL_RETRY_SECONDS
        state.at(pod.removal_due, REMOVE, pod)
        state.touch("pods", pod.id)
    else:
        start_delete(state, pod)


def next_on_agenda(state: State) -> float:
    """When the next pod changes by itself, or never; drops entries that have become void."""
    agenda = state.agenda
    while agenda:
        due, _, kind, pod = agenda[0]
        if pod.awaits(kind, due):
            return due
        heapq.heappop(agenda)
    return inf


def advance(state: State, at: float) -> None:
    """Let everything happen that is due by `at`, in order of time; see `Market.advance_to`."""
    end = at if at > state.now else state.now
    agenda = state.agenda
    while True:
        due = agenda[0][0] if agenda else inf
        debit = state.debit_at
        event = state.event_at
        if due > end and debit > end and event > end:
            break
        if debit <= due and debit <= event:
            state.now = debit
            billing.debit_all(state)
        elif due <= event:
            _, _, kind, pod = heapq.heappop(agenda)
            if pod.awaits(kind, due):
                state.now = due
                happen(state, pod, kind)
        else:
            state.now = event
            _happen_next_event(state)
    state.now = end


def _happen_next_event(state: State) -> None:
    """The scenario's next event is due. One that cannot happen is noted, and the market goes on."""
    _, _, raw = state.events[state.events_done]
    state.events_done += 1
    state.plan_event()
    try:
        events.apply(state, events.parse_event(raw, scheduled=True))
    except events.EventError as error:
        state.events_failed.append({"event": raw, "error": str(error)})
    state.note_meta()
