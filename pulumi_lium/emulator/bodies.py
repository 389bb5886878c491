"""What a client sends, as the service checks it (contract 4).

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
