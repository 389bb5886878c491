"""Bodies that the service checks, and its answers as the OpenAPI describes them (contract 3 and 4).

Nothing here is shared with the client in `pulumi_lium.api`; both are held to the contract on their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from .wire import epoch


def _whole_number(value: Any) -> Any:
    """JSON has one kind of number: 2.0 is the integer 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _timestamp(value: str) -> str:
    try:
        epoch(value)
    except (ValueError, OverflowError) as error:
        raise ValueError("is not an ISO 8601 timestamp") from error
    return value


def _distinct(value: list[str]) -> list[str]:
    if len(set(value)) != len(value):
        raise ValueError("items must be distinct")
    return value


Whole = Annotated[int, BeforeValidator(_whole_number)]
Timestamp = Annotated[str, AfterValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"})]
Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""Text that is not blank."""
PortCount = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole_number)]


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A query parameter: name, JSON type of its values, and what it means."""

    name: str
    type: Literal["string", "integer", "number", "boolean"]
    description: str
    required: bool = False


EXECUTOR_FILTERS = (
    QueryParameter("view", "string", "summary or full; the emulator answers full rows"),
    QueryParameter("machine_names", "string", "full GPU product names, separated by commas"),
    QueryParameter("gpu_count_gte", "integer", "least number of GPUs"),
    QueryParameter("gpu_count_lte", "integer", "greatest number of GPUs"),
    QueryParameter("nvlink", "boolean", "only hosts with NVLink"),
    QueryParameter("min_download_mbps", "number", "least download speed, Mb/s"),
    QueryParameter("reliable_only", "boolean", "no hosts whose rents fail often"),
    QueryParameter("lat", "number", "latitude, degrees"),
    QueryParameter("lon", "number", "longitude, degrees"),
    QueryParameter("max_distance_mile", "number", "greatest distance, miles"),
)

QUOTE_PARAMETERS = (
    QueryParameter("hours", "number", "h"),
    QueryParameter("volume_gb", "number", "GB"),
    QueryParameter("backup_gb", "number", "GB"),
    QueryParameter("gpu_count", "integer", "GPUs"),
)


# What a client sends


class Body(BaseModel):
    """A request body: types are strict, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)


class ClusterOrderBody(Body):
    """Contract 4.8. `user_public_key` is a list although its name is singular."""

    pod_name: Text
    template_id: Text
    executor_uuids: Annotated[
        list[Text], Field(min_length=2, json_schema_extra={"uniqueItems": True}), AfterValidator(_distinct)
    ]
    user_public_key: list[Text] = Field(min_length=1)
    initial_port_count: PortCount | None = None
    enable_volume_encryption: bool | None = None
    enable_backups: bool | None = None


class RentBody(Body):
    """Contract 4.11, one host."""

    pod_name: Text
    template_id: str | None = None
    dockerfile_content: str | None = None
    volume_id: str | None = None
    user_public_key: list[Text] = Field(min_length=1)
    initial_port_count: PortCount | None = None
    enable_volume_encryption: bool | None = None
    backup_log_id: str | None = None
    restore_path: str | None = None
    enable_backups: bool | None = None
    gpu_count: Annotated[int, Field(ge=1, le=64), BeforeValidator(_whole_number)] | None = None
    termination_hours: Annotated[int, Field(ge=1, le=720), BeforeValidator(_whole_number)] | None = None
    build_context_sha256: str | None = None


class SshKeyBody(Body):
    """Contract 4.3."""

    name: Text
    public_key: Text


class TemplateChange(Body):
    """Contract 4.4: any of a template's fields."""

    name: Text | None = None
    docker_image: Text | None = None
    docker_image_digest: str | None = None
    docker_image_tag: str | None = None
    internal_ports: list[Whole] | None = None
    startup_commands: str | None = None
    category: str | None = None
    container_start_immediately: bool | None = None
    description: str | None = None
    entrypoint: str | None = None
    environment: dict[str, Any] | None = None
    is_private: bool | None = None
    one_time_template: bool | None = None
    is_temporary: bool | None = None
    readme: str | None = None
    volumes: list[str] | None = None


class TemplateBody(Body):
    """Contract 4.4: a new template; what is left out takes the default that the official client sends."""

    name: Text
    docker_image: Text
    docker_image_digest: str = ""
    docker_image_tag: str = "latest"
    internal_ports: list[Whole] = [22, 8000]
    startup_commands: str = ""
    category: str = "UBUNTU"
    container_start_immediately: bool = True
    description: str | None = None
    entrypoint: str = ""
    environment: dict[str, Any] = {}
    is_private: bool = True
    one_time_template: bool = False
    is_temporary: bool = False
    readme: str | None = None
    volumes: list[str] = ["/workspace"]


class ScheduleRemovalBody(Body):
    """Contract 4.11; a time without a zone is UTC."""

    removal_scheduled_at: Timestamp


class RebootBody(Body):
    volume_id: str | None = None


class PodFeedback(Body):
    """What a person says when giving a pod back."""

    feedback_text: str | None = None
    rating: Whole | None = None
    reason: str | None = None


# What the service answers


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
