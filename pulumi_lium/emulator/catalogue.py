"""Catalogue: templates, SSH keys, GPU models, images and quotes (contract 4.3 to 4.6, 4.11)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import scenario as spec
from .records import UNSTORED, Record
from .refusal import Refusal, invalid, not_found
from .wire import iso, usd

if TYPE_CHECKING:
    from .accounts import ApiKey
    from .hosts import Host
    from .state import State

CLUSTER_IMAGE = "daturaai/lium-cluster"
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Fields of contract 4.4 with the values that the official client sends when nothing is said.
_DEFAULTS: dict[str, Any] = {
    "docker_image_digest": "",
    "docker_image_tag": "latest",
    "internal_ports": [22, 8000],
    "startup_commands": "",
    "category": "UBUNTU",
    "container_start_immediately": True,
    "description": "",
    "entrypoint": "",
    "environment": {},
    "is_private": True,
    "one_time_template": False,
    "is_temporary": False,
    "readme": "",
    "volumes": ["/workspace"],
}


@dataclass(slots=True, eq=False, repr=False)
class Template(Record):
    """A template. `owner` is the account that made it; None: everyone's. `row` is the wire's row (contract 3.4)."""

    id: str
    owner: str | None
    row: dict[str, Any] = field(default_factory=dict)
    row_in_pod: dict[str, Any] | None = field(metadata=UNSTORED, default=None)

    @classmethod
    def from_scenario(cls, seq: int, identity: str, template: spec.Template) -> Template:
        """A template of the scenario."""
        row = {
            **_DEFAULTS,
            "id": identity,
            "name": template.name,
            "docker_image": template.docker_image,
            "docker_image_tag": template.docker_image_tag,
            "category": template.category,
            "status": template.status,
            "supports_volume_encryption": template.supports_volume_encryption,
            "user_id": template.owner,
            "is_private": template.owner is not None,
            "internal_ports": template.internal_ports,
            "volumes": template.volumes,
            "description": template.name,
            "readme": template.name,
        }
        return cls(seq, identity, template.owner, row)

    @property
    def is_cluster_image(self) -> bool:
        """Whether a cluster can start from it: an image that applies the overlay's configuration (contract 7.2.2)."""
        return str(self.row["docker_image"]).startswith(CLUSTER_IMAGE)

    def visible(self, account: str | None) -> bool:
        """Whether the caller sees it: public, or its own (contract 4.4)."""
        return self.owner is None or self.owner == account or not self.row["is_private"]

    def in_pod(self) -> dict[str, Any]:
        """What a pod row says of it. Shared by the pods of one version of the template."""
        if self.row_in_pod is None:
            names = ("id", "name", "docker_image", "docker_image_tag", "volumes")
            self.row_in_pod = {name: self.row[name] for name in names}
        return self.row_in_pod


@dataclass(slots=True, eq=False, repr=False)
class SshKey(Record):
    """A public key that an account registered."""

    id: str
    tenant: str
    row: dict[str, Any]


def list_templates(state: State, account: str | None) -> list[dict[str, Any]]:
    """Rows of the templates that the caller sees."""
    return [template.row for template in state.tables.templates.values() if template.visible(account)]


def find_template(state: State, account: str | None, identity: str) -> Template:
    """A template that the caller sees. Raises 404."""
    template = state.tables.templates.get(identity)
    if template is None or not template.visible(account):
        raise not_found("Template")
    return template


def get_template(state: State, account: str | None, identity: str) -> dict[str, Any]:
    """One row; 404 unknown, 422 where the id is no UUID (contract 4.4)."""
    if identity not in state.tables.templates and not _UUID.fullmatch(identity):
        raise invalid(("template_id", "must be a UUID"))
    return find_template(state, account, identity).row


def create_template(state: State, account: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A template of the account's own; answers the row with status CREATED."""
    missing = [name for name in ("name", "docker_image") if not isinstance(body.get(name), str) or not body[name]]
    if missing:
        raise invalid(*((name, "is required") for name in missing))
    identity = state.seeded.uuid()
    row = {**_DEFAULTS, **_told(body), "id": identity, "status": "CREATED", "user_id": account}
    row.setdefault("supports_volume_encryption", False)
    for name in ("description", "readme"):
        row[name] = row[name] or row["name"]
    state.tables.templates[identity] = Template(state.next_seq(), identity, account, row)
    state.touch("templates", identity)
    return row


def update_template(state: State, account: str, identity: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Put changes into a template of the account's own; answers the row with status UPDATED. 403 on another's."""
    template = find_template(state, account, identity)
    if template.owner != account:
        raise Refusal(403, "permission_denied", "You do not have permission to change this template")
    template.row = {**template.row, **_told(body), "status": "UPDATED"}
    template.row_in_pod = None
    state.touch("templates", identity)
    return template.row


def _told(body: Mapping[str, Any]) -> dict[str, Any]:
    names = {"name", "docker_image", *_DEFAULTS}
    return {name: value for name, value in body.items() if name in names and value is not None}


def list_ssh_keys(state: State, tenant: str) -> list[dict[str, Any]]:
    """The caller's SSH keys."""
    return [key.row for key in state.tables.ssh_keys.values() if key.tenant == tenant]


def create_ssh_key(state: State, tenant: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Register a key; one that is registered already is answered as it stands (contract 4.3)."""
    name, line = body.get("name"), body.get("public_key")
    if not isinstance(name, str) or not isinstance(line, str) or not line.strip():
        raise invalid(("public_key", "name and public_key are required"))
    for key in state.tables.ssh_keys.values():
        if key.tenant == tenant and key.row["public_key"].strip() == line.strip():
            return key.row
    identity = state.seeded.uuid()
    row = {"id": identity, "name": name, "public_key": line, "created_at": iso(state.now)}
    state.tables.ssh_keys[identity] = SshKey(state.next_seq(), identity, tenant, row)
    state.touch("ssh_keys", identity)
    return row


def list_executors(state: State, query: Mapping[str, str]) -> list[dict[str, Any]]:
    """Node rows that can be rented as ordinary pods, filtered as contract 4.5 says."""
    names = {name.strip() for name in query.get("machine_names", "").split(",") if name.strip()}
    least, most = _number(query, "gpu_count_gte", 0), _number(query, "gpu_count_lte", float("inf"))
    download = _number(query, "min_download_mbps", 0)
    nvlink = query.get("nvlink", "").lower() == "true"
    return [
        host.row()
        for host in state.tables.hosts.values()
        if host.rentable
        and (not names or host.spec.gpu_model in names)
        and least <= host.gpu_count <= most
        and (not nvlink or host.spec.nvlink)
        and host.base["effective_download_speed_mbps"] >= download
    ]


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name)
    if text is None or text == "":
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise invalid((name, "must be a number"))
    return number


def list_machines(state: State) -> list[dict[str, Any]]:
    """GPU models, by their full product names (contract 4.6)."""
    return [{"name": name} for name in sorted({host.spec.gpu_model for host in state.tables.hosts.values()})]


def default_docker_images(state: State) -> list[dict[str, Any]]:
    """Images for an ordinary pod without a template: those of the public templates that are not the cluster image."""
    return [
        {"docker_image": template.row["docker_image"], "docker_image_tag": template.row["docker_image_tag"]}
        for template in state.tables.templates.values()
        if template.owner is None and not template.is_cluster_image
    ]


def find_host(state: State, identity: str) -> Host:
    """A host by executor id. Raises 404."""
    host = state.tables.hosts.get(identity)
    if host is None:
        raise not_found("Executor")
    return host


def deployment_estimate(state: State, account: str | None, query: Mapping[str, str]) -> dict[str, Any]:
    """How long a start takes (contract 4.11): the middle of the scenario's boot seconds."""
    find_host(state, query.get("executor_id", ""))
    if query.get("template_id"):
        find_template(state, account, query["template_id"])
    low, high = state.boot_seconds
    return {
        "estimated_seconds": (low + high) / 2,
        "is_slow_machine": False,
        "warning_message": None,
        "is_cached_template": True,
        "docker_image_size": None,
    }


def quote(state: State, key: ApiKey, identity: str, query: Mapping[str, str]) -> dict[str, Any]:
    """What a rental would cost (contract 4.11). Volumes and backups cost nothing here."""
    host = find_host(state, identity)
    hours = _number(query, "hours", 1.0)
    gpus = _number(query, "gpu_count", host.gpu_count)
    if hours <= 0:
        raise invalid(("hours", "must be above 0"))
    if not (gpus == int(gpus) and 1 <= gpus <= host.gpu_count):
        raise invalid(("gpu_count", f"must be a whole number from 1 to {host.gpu_count}"))
    price = host.price * int(gpus) // host.gpu_count
    floor = key.payer.open_price() // 4
    line = {
        "item": "gpu",
        "unit": "GPU hour",
        "rate_usd": float(host.spec.price_per_gpu),
        "quantity": int(gpus) * hours,
        "amount_usd": usd(round(price * hours)),
        "note": None,
    }
    return {
        "executor_id": host.id,
        "gpu_count": int(gpus),
        "hours": hours,
        "price_per_hour": usd(price),
        "lines": [line],
        "total_usd": line["amount_usd"],
        "pod_balance_floor_usd": usd(price // 4),
        "allocation": "whole" if gpus == host.gpu_count else "partial",
        "rent_balance_required_usd": usd(floor + price // 4),
    }
