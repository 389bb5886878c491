"""Orders: clusters, all nodes or none, and single pods (contract 4.8, 4.11, 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import billing, idempotency, transitions
from .accounts import ApiKey
from .catalogue import Template, find_host, find_template
from .events import arm_new_pod
from .hosts import Host
from .idempotency import Reply
from .pods import REMOVE, Pod
from .refusal import Refusal, invalid
from .state import Cluster, State

LARGEST_CLUSTER = 254
NOT_ONE_FABRIC = "The nodes of a cluster must share one fabric"
NOT_ALIKE = "The nodes of a cluster must be alike in GPU model and count"
# Each host shows this as `available_port_count`.
PORTS_PER_HOST = 40
# External ports: the first pod of a host begins here, the others a step further each.
FIRST_PORT, PORT_STEP = 20022, 100


class Declined(Exception):
    """An order turned down in the service's other way: 200 with `success: false` (contract 4.8)."""


def order_cluster(
    state: State, key: ApiKey, body: Mapping[str, Any], idempotency_key: str | None, lose_outcome: bool
) -> Reply:
    """Rent every host of the order, or none."""
    request = _cluster_request(body)
    if not state.settings.cluster_feature:
        raise Refusal(404, "not_found", "Cluster rentals are not enabled")
    known = state.tables.hosts
    price = sum([known[name].price for name in request["executor_uuids"] if name in known])
    return _once(state, key, request, price, idempotency_key, lose_outcome, lambda: _rent_cluster(state, key, request))


def rent_host(
    state: State,
    key: ApiKey,
    executor_id: str,
    body: Mapping[str, Any],
    idempotency_key: str | None,
    lose_outcome: bool,
) -> Reply:
    """Rent one host, or a share of its GPUs where it rents by the GPU."""
    request = _pod_request(executor_id, body)
    host = state.tables.hosts.get(executor_id)
    gpus = request["gpu_count"]
    price = host.price * (gpus or host.gpu_count) // host.gpu_count if host else 0
    return _once(state, key, request, price, idempotency_key, lose_outcome, lambda: _rent_pod(state, key, request))


def _once(
    state: State,
    key: ApiKey,
    request: dict[str, Any],
    price: int,
    idempotency_key: str | None,
    lose_outcome: bool,
    rent: Callable[[], dict[str, Any]],
) -> Reply:
    """Balance and budget, then the idempotency record, then the rental itself.

    The balance comes first, so that a replay can be refused although the first order rented (contract 4.8).
    """
    key.payer.require_balance(price)
    key.require_budget(state.now, billing.unsettled(state, list(key.open_pods.values())) if key.limited else 0)
    account = key.account.id
    keyed = idempotency_key if state.settings.idempotency else None
    if keyed:
        reply = idempotency.earlier(state, account, keyed, request)
        if reply is not None:
            return reply
    committed = True
    try:
        answer = rent()
    except Declined as declined:
        answer, committed = {"success": False, "message": str(declined)}, False
    except Refusal as refusal:
        if keyed:
            idempotency.remember(state, account, keyed, request, refusal=None if lose_outcome else refusal)
        raise
    if keyed:
        idempotency.remember(state, account, keyed, request, answer=None if lose_outcome else answer)
    return Reply(answer, {}, committed)


def _rent_cluster(state: State, key: ApiKey, request: dict[str, Any]) -> dict[str, Any]:
    template = find_template(state, key.account.id, request["template_id"])
    if not template.is_cluster_image:
        raise Declined(f"A cluster needs a template of the Lium cluster image, not {template.row['docker_image']}")
    hosts = [find_host(state, name) for name in request["executor_uuids"]]
    group = hosts[0].group
    if group is None:
        raise Declined(NOT_ONE_FABRIC)
    for host in hosts:
        if host.group is not group:
            same_wire = host.group is not None and host.group.fabric is group.fabric
            raise Declined(NOT_ALIKE if same_wire else NOT_ONE_FABRIC)
    for host in hosts:
        if not host.whole:
            if host.free:
                raise Declined("A cluster rental must take whole nodes")
            raise _taken(host)
    _require_ports(request)
    wire = group.fabric.spec
    if wire.type == "infiniband" and wire.udp_51820 == "closed":
        raise Declined("The nodes cannot reach each other: their provider keeps UDP 51820 closed")
    if not group.fabric.is_proven(hosts):
        raise Declined("RDMA between these nodes has not been measured")
    name, cluster_id = request["pod_name"], state.seeded.uuid()
    cluster = Cluster(state.next_seq(), cluster_id, name, key.payer.id, key.tenant_name, group.fabric_id, state.now)
    pods: list[Pod] = []
    for rank, host in enumerate(hosts):
        if host.refusals:
            refusal = _refuse_mid_order(state, host)
            for pod in pods:
                # The pods made for this order are deleted in the same request (contract 7.2.1).
                transitions.set_status(state, pod, "DELETED", "pod-delete", "order_rolled_back")
                transitions.leave(state, pod)
            raise refusal
        pods.append(_make_pod(state, key, host, host.gpu_count, template, request, cluster.id, rank))
    state.tables.clusters[cluster.id] = cluster
    state.touch("clusters", cluster.id)
    if state.armed:
        for pod in pods:
            arm_new_pod(state, pod)
    return {"success": True, "pod_ids": [pod.id for pod in pods]}


def _rent_pod(state: State, key: ApiKey, request: dict[str, Any]) -> dict[str, Any]:
    host = find_host(state, request["executor_id"])
    template = _pod_template(state, key, request)
    gpus = request["gpu_count"] or host.gpu_count
    if gpus > host.gpu_count:
        raise Refusal(400, "bad_request", f"The executor has {host.gpu_count} GPUs, not {gpus}")
    if gpus < (host.spec.min_gpu_count_for_rental or host.gpu_count):
        raise Refusal(400, "bad_request", "The executor does not rent so few GPUs")
    if any(pod.status == "BROKEN" and pod.tenant == key.tenant_name for pod in host.pods.values()):
        raise Refusal(400, "bad_request", "A broken pod of yours is on this executor; delete it first")
    if gpus > host.free:
        raise _taken(host)
    _require_ports(request)
    if host.refusals:
        raise _refuse_mid_order(state, host)
    pod = _make_pod(state, key, host, gpus, template, request, None, None)
    if request["termination_hours"] is not None:
        pod.removal_at = pod.removal_due = state.now + 3600.0 * request["termination_hours"]
        state.at(pod.removal_due, REMOVE, pod)
        pod.row_cache = None
    arm_new_pod(state, pod)
    return {"success": True, "pod_id": pod.id}


def _pod_template(state: State, key: ApiKey, request: dict[str, Any]) -> Template:
    if request["template_id"] is not None:
        return find_template(state, key.account.id, request["template_id"])
    for template in state.tables.templates.values():
        if template.owner is None and not template.is_cluster_image:
            return template
    raise Refusal(400, "bad_request", "There is no default template; send template_id")


def _make_pod(
    state: State,
    key: ApiKey,
    host: Host,
    gpus: int,
    template: Template,
    request: dict[str, Any],
    cluster_id: str | None,
    rank: int | None,
) -> Pod:
    now = state.now
    low, high = state.boot_seconds
    boot = state.seeded.uniform(low, high)
    port = FIRST_PORT
    if host.pods:
        used = {other.port for other in host.pods.values()}
        while port in used:
            port += PORT_STEP
    inner = template.row["internal_ports"]
    pod = Pod(
        seq=state.next_seq(),
        id=state.seeded.uuid(),
        name=request["pod_name"],
        account=key.payer.id,
        tenant=key.tenant_name,
        workspace=key.workspace.id if key.workspace else None,
        key_id=key.id,
        key_name=key.spec.name,
        host_id=host.id,
        gpu_count=gpus,
        price=host.price * gpus // host.gpu_count,
        template=template.in_pod(),
        encrypted=request["enable_volume_encryption"],
        backups=request["enable_backups"],
        port=port,
        ports=inner if 22 in inner else [22, *inner],
        created_at=now,
        updated_at=now,
        boot_from=now,
        eta_at=now + boot,
        cluster_id=cluster_id,
        rank=rank,
        ready_at=now + boot,
    )
    wanted = int(request["initial_port_count"] or 0)
    if wanted > len(pod.ports):
        first = max(20000, *pod.ports) + 1
        pod.ports = [*pod.ports, *range(first, first + wanted - len(pod.ports))]
    pod.note(now, "pod-create", None)
    state.add_pod(pod)
    return pod


def _require_ports(request: dict[str, Any]) -> None:
    if (request["initial_port_count"] or 0) > PORTS_PER_HOST:
        raise Refusal(409, "not_enough_ports", f"A node has {PORTS_PER_HOST} ports")


def _taken(host: Host) -> Refusal:
    text = f"Executor {host.id} is already rented"
    return Refusal(409, "executor_already_rented", text, data={"message": text, "executor_id": host.id})


def _refuse_mid_order(state: State, host: Host) -> Refusal:
    """The host looked free and turns the rental down."""
    if host.refusals > 0:
        host.refusals -= 1
    state.touch("hosts", host.id)
    text = host.refusal_reason or f"Executor {host.id} could not be rented"
    return Refusal(409, "executor_unavailable", text, data={"message": text, "executor_id": host.id})


# Bodies -------------------------------------------------------------------------------------------------------------


def _rental_fields(body: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The fields that both kinds of order have, and what is wrong with them."""
    faults: list[tuple[str, str]] = []
    name = body.get("pod_name")
    if not isinstance(name, str) or not name:
        faults.append(("pod_name", "is required"))
    keys = body.get("user_public_key")
    if not isinstance(keys, list) or not _texts(keys) or not "".join(keys).strip():
        faults.append(("user_public_key", "a list with at least one public key is required"))
    ports = body.get("initial_port_count")
    if ports is not None and not _is_count(ports, 65535):
        faults.append(("initial_port_count", "must be a whole number from 1 to 65535, or null"))
    flags = {}
    for flag in ("enable_volume_encryption", "enable_backups"):
        value = body.get(flag)
        if value is not None and not isinstance(value, bool):
            faults.append((flag, "must be true or false"))
        flags[flag] = True if value is None else value
    return {"pod_name": name, "user_public_key": keys, "initial_port_count": ports, **flags}, faults


def _cluster_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """The order as it is understood; missing flags take their defaults. Raises 422 (contract 12)."""
    request, faults = _rental_fields(body)
    nodes = body.get("executor_uuids")
    if not isinstance(nodes, list) or not _texts(nodes):
        faults.append(("executor_uuids", "a list of executor ids is required"))
    elif len(nodes) < 2:
        faults.append(("executor_uuids", "at least 2 items required"))
    elif len(nodes) > LARGEST_CLUSTER:
        faults.append(("executor_uuids", f"at most {LARGEST_CLUSTER} items allowed"))
    elif len(set(nodes)) != len(nodes):
        faults.append(("executor_uuids", "items must be distinct"))
    template = body.get("template_id")
    if not isinstance(template, str) or not template:
        faults.append(("template_id", "is required"))
    if faults:
        raise invalid(*faults)
    # A copy: what is remembered must not follow the caller's lists.
    request["user_public_key"] = list(request["user_public_key"])
    request["executor_uuids"] = list(body["executor_uuids"])
    request["template_id"] = template
    return request


def _pod_request(executor_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request, faults = _rental_fields(body)
    template = body.get("template_id")
    if template is not None and not isinstance(template, str):
        faults.append(("template_id", "must be text or null"))
    for name, most in (("gpu_count", 64), ("termination_hours", 720)):
        value = body.get(name)
        if value is not None and not _is_count(value, most):
            faults.append((name, f"must be a whole number from 1 to {most}"))
        request[name] = None if value is None else value
    if faults:
        raise invalid(*faults)
    request["user_public_key"] = list(request["user_public_key"])
    counts = {name: int(request[name]) for name in ("gpu_count", "termination_hours") if request[name] is not None}
    return {**request, **counts, "executor_id": executor_id, "template_id": template}


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_count(value: Any, most: int) -> bool:
    """Whether a JSON number is a whole number from 1 to `most`; 2.0 is 2."""
    return not isinstance(value, bool) and isinstance(value, int | float) and 1 <= value <= most and value == int(value)
