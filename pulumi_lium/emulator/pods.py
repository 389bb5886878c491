"""Pod: one rental, its life, its row (contract 3.3) and its history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .hosts import Host
from .records import UNSTORED, Record
from .wire import iso, usd

if TYPE_CHECKING:
    from .accounts import ApiKey

# What can be due for a pod, in the order in which things happen that are due at the same moment.
READY, REMOVE, LEAVE = range(3)
# Statuses that bill (contract 3.3).
BILLED = frozenset({"RUNNING", "REBOOT_PENDING", "REBOOT_FAILED"})
STARTING = frozenset({"PENDING", "REBOOT_PENDING"})
OPEN = BILLED | STARTING
# Rows that stay listed though their machine is free again.
VACATED = frozenset({"CREATION_FAILED", "FAILED"})
FAILED = frozenset({"CREATION_FAILED", "FAILED", "BROKEN", "REBOOT_FAILED"})

_PHASES = ("queued", "preparing node", "connecting to node", "pulling image", "starting container", "configuring ssh")
_PHASES_ENCRYPTED = (
    "queued", "preparing node", "connecting to node", "pulling image", "creating volume", "starting container",
    "mounting encrypted volume", "configuring ssh",
)  # fmt: skip

# The fields of a pod row, all null. To fill a copy of it takes half the time of putting so long a dict together.
_BLANK: dict[str, Any] = dict.fromkeys(
    (
        "id", "pod_name", "status", "ssh_connect_cmd", "ports_mapping", "created_at", "updated_at", "price",
        "gpu_count", "executor", "template", "removal_scheduled_at", "cluster_id", "cluster_node_index",
        "cluster_overlay_ip", "enable_volume_encryption", "volume_encryption_status", "local_volume_path",
        "jupyter_url", "jupyter_installation_status", "workspace_id", "api_key_id", "api_key_name",
        "estimated_ready_seconds", "eta_basis", "phase",
    )
)  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Pod(Record):
    """A rental of `gpu_count` GPUs of one host. Times are epoch seconds; money is in millionths of a USD.

    `tenant` is who sees it: an account, or a workspace. `account` pays. `status` is the wire's; a pod that is gone
    keeps its last status and has `gone_at`.

    What will happen: `ready_at` boot ends (None: stuck), `fails_with` then it fails instead of running, `removal_due`
    the scheduled removal is tried, `leave_at` its row disappears.
    `refuse_deletes` deletes are refused (-1: all). `vacated`: its GPUs are free again though the row is still listed.
    """

    id: str
    name: str
    account: str
    tenant: str
    workspace: str | None
    key_id: str
    key_name: str | None
    host_id: str
    gpu_count: int
    price: int
    template: dict[str, Any]
    encrypted: bool
    backups: bool
    port: int
    ports: list[int]
    created_at: float
    updated_at: float
    boot_from: float
    eta_at: float
    status: str = "PENDING"
    cluster_id: str | None = None
    rank: int | None = None
    ready_at: float | None = None
    fails_with: str | None = None
    removal_at: float | None = None
    removal_due: float | None = None
    leave_at: float | None = None
    gone_at: float | None = None
    billed_from: float | None = None
    billed_to: float | None = None
    charged: int = 0
    refuse_deletes: int = 0
    vacated: bool = False
    history: list[tuple[Any, ...]] = field(default_factory=list)
    host: Host = field(metadata=UNSTORED, init=False)
    key: ApiKey = field(metadata=UNSTORED, init=False)
    row_cache: dict[str, Any] | None = field(metadata=UNSTORED, default=None)
    row_base: dict[str, Any] | None = field(metadata=UNSTORED, default=None)

    def to_record(self) -> dict[str, Any]:
        record = Record.to_record(self)
        record["history"] = [list(entry) for entry in self.history]
        return record

    def load(self, record: Mapping[str, Any]) -> Pod:
        Record.load(self, record)
        self.history = [tuple(entry) for entry in record["history"]]
        return self

    @property
    def live(self) -> bool:
        """Whether the row is listed."""
        return self.gone_at is None

    @property
    def holds(self) -> bool:
        """Whether it holds its GPUs."""
        return self.gone_at is None and not self.vacated

    @property
    def bills(self) -> bool:
        """Whether it bills now."""
        return self.gone_at is None and self.status in BILLED

    def awaits(self, kind: int, due: float) -> bool:
        """Whether `kind` is still to happen to it at `due`."""
        if kind == READY:
            return self.ready_at == due
        return (self.leave_at if kind == LEAVE else self.removal_due) == due

    def note(
        self, at: float, kind: str, before: str | None, reason: str | None = None, detail: str | None = None
    ) -> None:
        """Append to the history: at `at` the status went from `before` to the present one."""
        self.history.append((at, kind, before, self.status, reason, detail))

    def events(self) -> list[dict[str, Any]]:
        """The history as the wire tells it, oldest first (contract 4.9)."""
        return [
            {
                "created_at": iso(at),
                "event_type": kind,
                "sub_event_type": f"{kind}-failed" if after in FAILED else None,
                "pod_name": self.name,
                "from_status": before,
                "to_status": after,
                "reason": reason,
                "detail": detail,
                "error": None,
            }
            for at, kind, before, after, reason, detail in self.history
        ]

    def row(self, now: float) -> dict[str, Any]:
        """Pod row (contract 3.3) at `now`. Shared: the reader must not change it."""
        row = self.row_cache
        if self.status not in STARTING:
            if row is None:
                row = self.row_cache = self._row()
            return row
        # A new row: the one before may be in an answer that was given earlier.
        row = self.row_cache = self._row() if row is None else row.copy()
        phases = _PHASES_ENCRYPTED if self.encrypted else _PHASES
        left = self.eta_at - now
        if left > 0.0:
            # How far the start is, by the share of the expected time that has passed.
            row["estimated_ready_seconds"] = math.ceil(left)
            row["phase"] = phases[int((1.0 - left / (self.eta_at - self.boot_from)) * len(phases))]
        else:
            row["estimated_ready_seconds"] = 0
            row["phase"] = phases[-1]
        return row

    def _row(self) -> dict[str, Any]:
        base = self.row_base
        if base is None:
            base = self.row_base = self._base()
        row = base.copy()
        row["status"] = self.status
        row["updated_at"] = iso(self.updated_at)
        if self.status == "RUNNING":
            row["ssh_connect_cmd"] = f"ssh root@{self.host.spec.public_ip} -p {self.port}"
            row["ports_mapping"] = {str(inner): self.port + i for i, inner in enumerate(self.ports)}
        elif self.status in STARTING:
            row["eta_basis"] = "class_median"
        if self.removal_at is not None:
            row["removal_scheduled_at"] = iso(self.removal_at)
        return row

    def _base(self) -> dict[str, Any]:
        """What of the row never changes, and null for the rest."""
        row = _BLANK.copy()
        row["id"] = self.id
        row["pod_name"] = self.name
        row["created_at"] = iso(self.created_at)
        row["price"] = usd(self.price)
        row["gpu_count"] = str(self.gpu_count)
        row["executor"] = self.host.base
        row["template"] = self.template
        row["cluster_id"] = self.cluster_id
        if self.rank is not None:
            row["cluster_node_index"] = self.rank
            row["cluster_overlay_ip"] = f"10.42.0.{self.rank + 1}"
        row["enable_volume_encryption"] = self.encrypted
        if self.template["volumes"]:
            row["local_volume_path"] = self.template["volumes"][0]
        row["workspace_id"] = self.workspace
        row["api_key_id"] = self.key_id
        row["api_key_name"] = self.key_name
        return row
