"""Ordering and removing a cluster (contract 4.8, 4.10)."""

from __future__ import annotations

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
    """An accepted order. `pod_ids` is empty when the service named none; `replayed`: it had answered this key before."""

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

    def order(self, order: ClusterOrder, *, idempotency_key: str) -> OrderAnswer:
        raise NotImplementedError

    def delete(self, cluster_id: str) -> ClusterRemoval:
        raise NotImplementedError
