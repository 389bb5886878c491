"""What is on sale: fabrics with at least two free machines (contract 3.2, 4.7)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ._http import HttpCore
from ._model import Count, Model, Readable, Text
from .nodes import Node


def _fabric_type(value: Any) -> Any:
    """Absent means InfiniBand (contract 3.2)."""
    return value.strip().lower() if isinstance(value, str) else "infiniband" if value is None else value


def _is_true(value: Any) -> bool:
    return value is True


def _each_with_id(nodes: list[Node]) -> list[Node]:
    if not all(node.id for node in nodes):
        raise ValueError("a machine without an id cannot be ordered")
    return nodes


class Offer(Model):
    """A fabric card: machines of one GPU model and count, of which `nodes` are free now."""

    fabric_id: Text = ""
    fabric_type: Annotated[str, BeforeValidator(_fabric_type)] = "infiniband"
    """`infiniband` or `roce`."""
    link_rate: Readable[str] = None
    """For display only, e.g. `400 Gb/sec (4X NDR)`."""
    fabric_measured: Annotated[bool, BeforeValidator(_is_true)] = False
    node_count: Readable[Count] = None
    """Machines of the whole fabric, rented ones included."""
    nodes: Annotated[list[Node], AfterValidator(_each_with_id)] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        nodes = row.get("nodes")
        row = {**row, "nodes": [] if nodes is None else nodes}
        if not row.get("node_count") and isinstance(row["nodes"], list):
            row["node_count"] = len(row["nodes"])
        return row

    @property
    def free_count(self) -> int:
        """Machines that can be ordered now."""
        return len(self.nodes)

    @property
    def gpu_model(self) -> str:
        """The full product name: `NVIDIA H100 80GB HBM3`."""
        return self.nodes[0].gpu_model if self.nodes else ""

    @property
    def gpu_type(self) -> str:
        """The short name: `H100`."""
        return self.nodes[0].gpu_type if self.nodes else ""

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each machine; all machines of an offer are alike (contract 7.1)."""
        return self.nodes[0].gpu_count if self.nodes else 0


class OffersClient:
    """`GET /executors/infiniband-clusters`, which serves RoCE too."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def list(self) -> list[Offer]:
        """Every offer of this moment. A null answer means that nothing is on sale (contract 4.7)."""
        answer = self._http.get("/executors/infiniband-clusters")
        return [] if answer.document is None else answer.rows(Offer)
