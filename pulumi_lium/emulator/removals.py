"""Removals: clusters, single pods, scheduled times (contract 4.10, 4.11, 7.5, 7.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import billing
from .accounts import ApiKey
from .pods import READY, REMOVE, Pod
from .refusal import Refusal, invalid, not_found
from .state import State
from .transitions import refuses_delete, set_status, start_delete
from .wire import epoch, iso

STARTED = "Pod deletion started"
IN_PROGRESS = "Pod deletion is in progress"
MEMBER_REFUSED = "Pod deletion failed; call again to retry this member, or delete the pod on its own"
NOT_YOURS = "You do not have permission to access this pod"
STILL_CREATED = "A member of this cluster is still being created; try again later."
POD_STILL_CREATED = "This pod is still being created; try again later."


def _not_yours(key: ApiKey, what: str) -> Refusal:
    """What is another's: 404 to a key that acts inside a workspace, else 403 (contract 7.5.7)."""
    if key.workspace is not None:
        return not_found(what)
    return Refusal(403, "permission_denied", NOT_YOURS)


def find_pod(state: State, key: ApiKey, pod_id: str, *, gone: bool = False) -> Pod:
    """The caller's pod. Raises 404 or 403; with `gone`, a pod that is gone counts too."""
    pod = state.tables.pods.get(pod_id)
    if pod is None or not (pod.live or gone):
        raise not_found("Pod")
    if pod.tenant != key.tenant_name:
        raise _not_yours(key, "Pod")
    return pod


def delete_cluster(state: State, key: ApiKey, cluster_id: str) -> dict[str, Any]:
    """Delete every member, one row each. Ownership and scope of every member come before the first delete."""
    members = state.members_of(cluster_id)
    if not members:
        raise not_found("Cluster")
    if any(pod.tenant != key.tenant_name for pod in members):
        raise _not_yours(key, "Cluster")
    key.require_over(members)
    if not state.settings.cancel_in_flight_creates:
        pending = [pod.id for pod in members if pod.status == "PENDING"]
        if pending:
            raise Refusal(
                409,
                "conflict",
                "conflict",
                data={"message": STILL_CREATED, "cluster_id": cluster_id, "pending_pods": pending},
            )
    rows = []
    refused = 0
    for pod in members:
        success, message = True, STARTED
        if pod.status == "DELETING":
            message = IN_PROGRESS
        elif refuses_delete(state, pod):
            success, message = False, MEMBER_REFUSED
            refused += 1
        else:
            start_delete(state, pod)
        rows.append(
            {
                "pod_id": pod.id,
                "pod_name": pod.name,
                "cluster_node_index": pod.rank,
                "success": success,
                "message": message,
            }
        )
    summary = (
        f"Cluster deletion failed for {refused} of {len(rows)} member(s); the others are being removed"
        if refused
        else "Cluster deletion started for every member"
    )
    return {"cluster_id": cluster_id, "success": not refused, "message": summary, "pods": rows}


def delete_pod(state: State, key: ApiKey, pod_id: str) -> dict[str, Any]:
    """Delete one pod, a cluster's member too (contract 7.5.10)."""
    pod = find_pod(state, key, pod_id)
    key.require_over([pod])
    if pod.status == "DELETING":
        return {"success": True, "message": IN_PROGRESS}
    if pod.status == "PENDING" and not state.settings.cancel_in_flight_creates:
        raise Refusal(409, "conflict", "conflict", data={"message": POD_STILL_CREATED, "pending_pods": [pod.id]})
    if refuses_delete(state, pod):
        raise Refusal(409, "pod_deletion_failed", "Pod deletion failed; try again later")
    start_delete(state, pod)
    return {"success": True, "message": STARTED}


def schedule_removal(state: State, key: ApiKey, pod_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Set the time of a pod's removal, over an earlier one. A time that is past removes it at once."""
    text = body.get("removal_scheduled_at")
    try:
        at = epoch(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise invalid(("removal_scheduled_at", "an ISO 8601 time is required"))
    pod = _schedulable(state, key, pod_id)
    if pod.removal_at is not None and at > pod.removal_at:
        _afford(state, key)
    pod.removal_at = at
    pod.removal_due = max(at, state.now)
    state.at(pod.removal_due, REMOVE, pod)
    state.touch_pod(pod)
    return {"success": True, "removal_scheduled_at": iso(at)}


def cancel_removal(state: State, key: ApiKey, pod_id: str) -> dict[str, Any]:
    """Forget the time of a pod's removal."""
    pod = _schedulable(state, key, pod_id)
    if pod.removal_at is not None:
        _afford(state, key)
    pod.removal_at = pod.removal_due = None
    state.touch_pod(pod)
    return {"success": True}


def _afford(state: State, key: ApiKey) -> None:
    """A change that lets a pod run longer is refused once the key's budget is spent (contract 7.6)."""
    if key.limited:
        key.require_budget(state.now, billing.unsettled(state, list(key.open_pods.values())))


def _schedulable(state: State, key: ApiKey, pod_id: str) -> Pod:
    pod = find_pod(state, key, pod_id)
    key.require_over([pod])
    if pod.status == "DELETING":
        raise Refusal(409, "conflict", "The pod is being removed")
    if pod.status == "BROKEN":
        raise Refusal(400, "bad_request", "The pod is broken; only a delete is possible")
    return pod


def reboot_pod(state: State, key: ApiKey, pod_id: str) -> dict[str, Any]:
    """Start a running pod anew; it goes on billing (contract 3.3)."""
    pod = find_pod(state, key, pod_id)
    key.require_over([pod])
    if pod.status not in ("RUNNING", "REBOOT_FAILED"):
        raise Refusal(400, "bad_request", f"A pod that is {pod.status} cannot be rebooted")
    low, high = state.boot_seconds
    pod.boot_from = state.now
    pod.eta_at = pod.ready_at = state.now + state.seeded.uniform(low, high)
    state.at(pod.ready_at, READY, pod)
    set_status(state, pod, "REBOOT_PENDING", "pod-reboot")
    return {"success": True, "message": "Pod reboot started"}
