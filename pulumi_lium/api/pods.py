"""Pods: the only view of a running cluster that the service gives (contract 3.3, 4.9, 4.11)."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from ._http import HttpCore, Retry, segment
from ._model import Count, Id, Model, Number, Readable, Text, Usd, UtcTime
from .errors import InvalidArgument, NotFound
from .nodes import Node
from .templates import Template

_SSH_COMMAND = re.compile(r"ssh (?P<user>[^@\s]+)@(?P<host>\S+)(?: -p (?P<port>\d{1,5}))?")

TERMINAL = frozenset(
    {
        "BROKEN",
        "CANCELLED",
        "CREATION_FAILED",
        "DELETED",
        "DELETING",
        "ERROR",
        "FAILED",
        "REBOOT_FAILED",
        "REMOVED",
        "STOPPED",
        "TERMINATED",
    }
)
"""Statuses that never become RUNNING again by themselves (contract 3.3)."""

FREE_OF_CHARGE = TERMINAL - {"REBOOT_FAILED"} | {"PENDING"}
"""Statuses that do not bill (contract 3.3, 7.3). Any other, a new one too, is taken to bill."""


def _status(value: Any) -> Any:
    """Upper case; null is a status that nobody knows."""
    return value.strip().upper() if isinstance(value, str) else "UNKNOWN" if value is None else value


class Pod(Model):
    """A rented machine's container. `price_per_hour` is USD for the whole pod, null when the service does not say."""

    id: Id
    name: Text = Field(default="", validation_alias="pod_name")
    status: Annotated[str, BeforeValidator(_status)] = "UNKNOWN"
    ssh_command: Readable[str] = Field(default=None, validation_alias="ssh_connect_cmd")
    ports: Readable[dict[str, Count]] = Field(default=None, validation_alias="ports_mapping")
    """Port inside the pod (a string) → port outside."""
    price: Readable[Usd] = None
    gpu_count: Readable[Count] = None
    cluster_id: str | None = None
    rank: Count | None = Field(default=None, validation_alias="cluster_node_index")
    overlay_ip: str | None = Field(default=None, validation_alias="cluster_overlay_ip")
    removal_scheduled_at: Readable[UtcTime] = None
    created_at: Readable[UtcTime] = None
    updated_at: Readable[UtcTime] = None
    node: Readable[Node] = Field(default=None, validation_alias="executor")
    template: Readable[Template] = None
    phase: Readable[str] = None
    estimated_ready_seconds: Readable[Number] = None
    eta_basis: Readable[str] = None
    volume_encryption: Readable[bool] = Field(default=None, validation_alias="enable_volume_encryption")
    workspace_id: Readable[str] = None
    api_key_id: Readable[str] = Field(
        default=None, validation_alias=AliasChoices("api_key_id", "created_by_api_key_id")
    )
    api_key_name: Readable[str] = None

    @property
    def price_per_hour(self) -> float | None:
        """The pod's own price; without one, its machine's."""
        if self.price is not None:
            return self.price
        return self.node.price_per_hour if self.node else None

    @property
    def is_billable(self) -> bool:
        """Whether it bills. A status that nobody knows is taken to bill: what may cost money is never left out."""
        return self.status not in FREE_OF_CHARGE

    @property
    def is_terminal(self) -> bool:
        """Whether it will not run again by itself."""
        return self.status in TERMINAL

    @property
    def is_ready(self) -> bool:
        """Whether it runs and can be entered (contract 5.5)."""
        return self.status == "RUNNING" and bool(self.ssh_command)

    @property
    def ssh_host(self) -> str | None:
        """The host of the SSH command; null until there is one that reads `ssh user@host [-p port]`."""
        found = _SSH_COMMAND.fullmatch(self.ssh_command or "")
        return found["host"] if found else None

    @property
    def ssh_port(self) -> int | None:
        """The port of the SSH command, 22 when it names none; null until there is a command."""
        found = _SSH_COMMAND.fullmatch(self.ssh_command or "")
        return int(found["port"] or 22) if found else None


class PodEvent(Model):
    """One step in a pod's life; answered for deleted pods too."""

    created_at: Readable[UtcTime] = None
    event_type: Text = ""
    sub_event_type: Readable[str] = None
    pod_name: Readable[str] = None
    from_status: Readable[str] = None
    to_status: Readable[str] = None
    reason: Readable[str] = None
    detail: Readable[str] = None
    error: Readable[str] = None


class PodsClient:
    """`/pods` and what hangs on one pod."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def get(self, pod_id: str) -> Pod:
        """One pod; raises `NotFound`."""
        return self._http.get(f"/pods/{segment(pod_id, 'pod_id')}").row(Pod)

    def events(self, pod_id: str) -> list[PodEvent]:
        """The pod's events, oldest first; none when the service knows no such pod (contract 4.9)."""
        try:
            answer = self._http.call("GET", f"/pods/{segment(pod_id, 'pod_id')}/events", retry=Retry.NEVER)
        except NotFound:
            return []
        return answer.rows(PodEvent)

    def delete(self, pod_id: str) -> None:
        """Start the removal of one pod. It is gone when the listing no longer shows it."""
        self._http.command("DELETE", f"/pods/{segment(pod_id, 'pod_id')}", retry=Retry.WRITE)

    def schedule_removal(self, pod_id: str, at: datetime) -> None:
        """Have the service delete the pod at this time (aware); overwrites an earlier time (contract 4.11)."""
        if at.tzinfo is None:
            raise InvalidArgument(f"The removal time {at.isoformat()} has no time zone: give an aware datetime.")
        self._http.command(
            "POST",
            f"/pods/{segment(pod_id, 'pod_id')}/schedule-removal",
            retry=Retry.IDEMPOTENT,
            body={"removal_scheduled_at": at.astimezone(timezone.utc).isoformat()},
        )

    def cancel_removal(self, pod_id: str) -> None:
        """Take a scheduled removal back."""
        self._http.command("DELETE", f"/pods/{segment(pod_id, 'pod_id')}/schedule-removal", retry=Retry.WRITE)

    def list(self) -> list[Pod]:
        """Every pod of the key's workspace, in no order. An answer that is no list raises: it never reads as empty."""
        return self._http.get("/pods").rows(Pod)
