"""What the service answers, as the OpenAPI describes it (contract 3 and 4); the market writes the rows.

Nothing here is shared with the client in `pulumi_lium.api`; both are held to the contract on their own.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An answer. Only the OpenAPI is made from these; the market writes the rows."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class Version(Shape):
    version: str
    features: list[str]


class Workspace(Shape):
    id: str
    name: str
    role: str
    billing_owner_user_id: str
    pending_billing_owner_user_id: str | None = None
    created_at: str | None = None
    is_personal: bool | None = None


class WorkspaceMember(Shape):
    user_id: str
    name: str | None
    email: str | None
    role: str
    is_billing_owner: bool
    joined_at: str | None


class User(Shape):
    id: str
    email: str | None
    balance: float = Field(description="USD")
    stripe_customer_id: str | None
    workspace: Workspace | None = Field(default=None, description="absent where workspaces are off")


class KeyScope(Shape):
    """Contract 1.2."""

    scope: str
    title: str
    description: str
    default: bool


class SshKey(Shape):
    id: str
    name: str
    public_key: str
    created_at: str | None


class Template(Shape):
    """Contract 3.4."""

    id: str
    name: str
    docker_image: str
    docker_image_tag: str
    category: str
    status: str
    supports_volume_encryption: bool
    user_id: str | None


class Machine(Shape):
    name: str


class DockerImage(Shape):
    docker_image: str
    docker_image_tag: str


class DeploymentEstimate(Shape):
    estimated_seconds: float
    is_slow_machine: bool
    warning_message: str | None
    is_cached_template: bool
    docker_image_size: float | None


class QuoteLine(Shape):
    item: str
    unit: str
    rate_usd: float
    quantity: float
    amount_usd: float
    note: str | None


class Quote(Shape):
    executor_id: str
    gpu_count: int
    hours: float
    price_per_hour: float = Field(description="USD")
    lines: list[QuoteLine]
    total_usd: float


class NodeRow(Shape):
    """Contract 3.1."""

    id: str
    machine_name: str
    gpu_count: int
    available_gpu_count: int | None = None
    min_gpu_count_for_rental: int | None = None
    price_per_gpu: float = Field(description="USD per GPU and hour")
    status: str
    specs: dict[str, Any]
    location: dict[str, Any]
    executor_ip_address: str


class Offer(Shape):
    """Contract 3.2."""

    fabric_id: str
    fabric_type: Literal["infiniband", "roce"]
    link_rate: str | None
    fabric_measured: bool
    node_count: int
    nodes: list[NodeRow]


class PodTemplate(Shape):
    id: str
    name: str
    docker_image: str
    docker_image_tag: str


class Pod(Shape):
    """Contract 3.3."""

    id: str
    pod_name: str
    status: str
    ssh_connect_cmd: str | None
    ports_mapping: dict[str, int] | None
    created_at: str
    updated_at: str
    price: float = Field(description="USD per hour, the whole pod")
    gpu_count: int | str
    executor: NodeRow | None
    template: PodTemplate | None
    removal_scheduled_at: str | None
    cluster_id: str | None
    cluster_node_index: int | None
    cluster_overlay_ip: str | None
    workspace_id: str | None
    api_key_id: str | None
    estimated_ready_seconds: int | None
    phase: str | None


class PodEvent(Shape):
    created_at: str
    event_type: str
    sub_event_type: str | None
    pod_name: str | None
    from_status: str | None
    to_status: str | None
    reason: str | None
    detail: str | None
    error: str | None


class Done(Shape):
    success: bool


class ScheduledRemoval(Done):
    removal_scheduled_at: str


class RentAnswer(Done):
    """`success: false` is a definite refusal, with its `message`; nothing was rented."""

    pod_id: str | None = None
    message: str | None = None


class ClusterOrderAnswer(Done):
    """`success: false` is a definite refusal, with its `message`; nothing was rented."""

    pod_ids: list[str] | None = None
    message: str | None = None


class MemberRemoval(Shape):
    pod_id: str
    pod_name: str | None
    cluster_node_index: int | None
    success: bool
    message: str | None


class ClusterRemoval(Shape):
    """Contract 4.10; `success` only when every member accepted."""

    cluster_id: str
    success: bool
    message: str
    pods: list[MemberRemoval] = Field(min_length=1)


class ErrorDetail(Shape):
    code: str
    message: str
    hint: str | None
    request_id: str


class Violation(Shape):
    field: str
    message: str


class ErrorEnvelope(Shape):
    """Contract 2.1. `message` may be an object with structured fields."""

    success: Literal[False]
    error: ErrorDetail
    message: str | dict[str, Any]
    status_code: int
    validation_errors: list[Violation] | None = None
