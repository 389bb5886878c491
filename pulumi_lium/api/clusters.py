"""Ordering and removing a cluster (contract 4.8, 4.10)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool

from ._http import HttpCore, Retry, segment
from ._model import Count, Id, Model, Readable, WholeNumber
from .errors import InvalidArgument, OrderRefused


class ClusterOrder(Model):
    """The body of an order, field names as on the wire. The rank of a node follows its place in `executor_uuids`."""

    pod_name: str
    template_id: str
    executor_uuids: list[str]
    user_public_key: list[str]
    initial_port_count: WholeNumber | None = None
    """Ports to expose per node."""
    enable_volume_encryption: bool | None = True
    enable_backups: bool = True


class OrderAnswer(Model):
    """An accepted order. `pod_ids` is empty when the service named none; `replayed`: this key was answered before."""

    pod_ids: list[str] = Field(default_factory=list)
    replayed: bool = False


def _false_if_null(value: Any) -> Any:
    return False if value is None else value


class MemberRemoval(Model):
    """What the service did with one member. `message` is the reason when `success` is false."""

    pod_id: Id
    pod_name: Readable[str] = None
    rank: Readable[Count] = Field(default=None, validation_alias="cluster_node_index")
    success: Annotated[StrictBool, BeforeValidator(_false_if_null)] = False
    message: Readable[str] = None


class ClusterRemoval(Model):
    """The answer to a removal: one row per member, never none."""

    rows: list[MemberRemoval]

    @property
    def refused(self) -> list[MemberRemoval]:
        """Members whose removal was not accepted: they stay, and bill."""
        return [row for row in self.rows if not row.success]


class ClustersClient:
    """`/executors/cluster/rent` and `/clusters`."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def order(
        self, order: ClusterOrder, *, idempotency_key: str, before_repeat: Callable[[], None] | None = None
    ) -> OrderAnswer:
        """Send one order; on 429 it goes again with the same key and body, on nothing else. `before_repeat` is called
        each time before it does: minutes may have passed since it left first.

        Raises `OrderRefused` for a definite no. Where `outcome_unknown` is true on what it raises, machines may be
        rented: settle it by contract 5.3, never by another key.
        """
        _check(order, idempotency_key)
        answer = self._http.call(
            "POST",
            "/executors/cluster/rent",
            retry=Retry.WRITE,
            body=order.model_dump(),
            headers={"Idempotency-Key": idempotency_key},
            before_repeat=before_repeat,
        )
        body = answer.object()
        success, pod_ids = body.get("success"), body.get("pod_ids")
        if not isinstance(success, bool | None):
            raise answer.undecodable("`success` is neither true nor false")
        if pod_ids is None:
            pod_ids = []
        if not isinstance(pod_ids, list) or not all(isinstance(pod, str) and pod for pod in pod_ids):
            raise answer.undecodable("`pod_ids` is not a list of ids")
        if success is False:
            if pod_ids:
                raise answer.undecodable("it says that the order was refused, and names pods")
            raise self._http.refusal(OrderRefused, answer)
        replayed = answer.headers.get("idempotent-replayed", "").strip().lower() == "true"
        return OrderAnswer(pod_ids=pod_ids, replayed=replayed)

    def delete(self, cluster_id: str) -> ClusterRemoval:
        """Start the removal of every member; one row each says whether it was accepted (contract 4.10).

        The cluster is gone when `GET /pods` shows no member. Raises `Conflict` with `pending_pods` when nothing may be
        removed yet, and `NotFound`, which the listing has to confirm before it means gone.
        """
        answer = self._http.call("DELETE", f"/clusters/{segment(cluster_id, 'cluster_id')}", retry=Retry.WRITE)
        rows = answer.object().get("pods")
        if not rows:
            raise answer.undecodable(f"it has no row per member. {self._http.reason(answer)}".rstrip(" ."))
        return ClusterRemoval(rows=replace(answer, document=rows).rows(MemberRemoval))


def _check(order: ClusterOrder, idempotency_key: str) -> None:
    """What the service would refuse, or would take for another order, is refused here first (contract 5.2)."""
    wrong = {
        "pod_name is empty": not order.pod_name,
        "template_id is empty": not order.template_id,
        "executor_uuids names fewer than two machines": len(order.executor_uuids) < 2,
        "executor_uuids names a machine twice": len(set(order.executor_uuids)) < len(order.executor_uuids),
        "executor_uuids has an empty id": not all(order.executor_uuids),
        "user_public_key has no key": not order.user_public_key,
        "user_public_key has an empty line": not all(key.strip() for key in order.user_public_key),
        "idempotency_key is not a plain word": not re.fullmatch(r"[!-~]{1,255}", idempotency_key),
    }
    if faults := [fault for fault, present in wrong.items() if present]:
        raise InvalidArgument(f"The order cannot be sent: {'; '.join(faults)}.")
