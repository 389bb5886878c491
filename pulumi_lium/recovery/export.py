"""What a stack's state says of its clusters: `pulumi stack export` read, nothing else of it.

Clusters that the state holds are owned. A create that was cut off stands among the pending operations with the inputs
that `check` made, so its order can be found again although the machine that sent it is gone (design 3.7). Secrets are
ciphertext in an export and stay so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.holder import UNTOLD
from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.lifecycle.listing import parse_moment
from pulumi_lium.lifecycle.state import setting, whole
from pulumi_lium.lifecycle.strangers import marked_by

CLUSTER_TYPE = "pulumi-python:dynamic/lium:Cluster"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key by which the engine marks special values: a secret, an asset."""
_CREATE_TAKES = timedelta(hours=1)
"""A create that had begun when the state was saved has sent its order by then, or never sends it."""


class BadExport(LiumError, ValueError):
    """An export that cannot be read: names the file and the field."""

    def __init__(self, source: str, field: str, why: str) -> None:
        where = f"{source}: {field}" if field else source
        super().__init__(
            f"{where} {why}",
            code="bad_export",
            hint="Nothing was changed. Give the unchanged output of `pulumi stack export`.",
        )


@dataclass(frozen=True)
class OwnedCluster:
    """A cluster in the state. `state` are the resource's outputs as exported."""

    urn: str
    cluster_id: str
    state: Mapping[str, Any]

    @property
    def owner(self) -> str:
        return _text(setting(self.state, "owner"))

    @property
    def name(self) -> str:
        return _text(self.state.get("name")) or self.urn.rpartition("::")[2]

    @property
    def account(self) -> str | None:
        return _text(setting(self.state, "account")) or None

    @property
    def ordered_at(self) -> datetime | None:
        return parse_moment(self.state.get("ordered_at"))

    @property
    def price_per_hour(self) -> float | None:
        return _number(self.state.get("price_per_hour"))


@dataclass(frozen=True)
class PendingCreate:
    """A create that was cut off: its place among the pending operations, its order as an intent, its inputs."""

    urn: str
    place: int
    intent: Intent
    inputs: Mapping[str, Any]

    @property
    def is_telling(self) -> bool:
        """Whether the order's name tells whose it is: it was made for its owner, or begins with the stack's name.

        Any other name that a person chose may be anybody's: what was listed before the order, and whether it left at
        all, stood in the journal that is lost.
        """
        name, stack = self.intent.pod_name, self.urn.removeprefix("urn:pulumi:").partition("::")[0]
        return marked_by(name, self.intent.owner) or bool(stack and name.startswith(f"{stack}-"))


@dataclass(frozen=True)
class StackExport:
    """`document` is the export as it was read; `source` names it for people."""

    source: str
    document: Mapping[str, Any]
    clusters: tuple[OwnedCluster, ...]
    pending: tuple[PendingCreate, ...]
    urns: tuple[str, ...]
    """Of every resource in it."""

    @property
    def owners(self) -> frozenset[str]:
        found = {cluster.owner for cluster in self.clusters} | {create.intent.owner for create in self.pending}
        return frozenset(found - {""})

    @property
    def stacks(self) -> frozenset[str]:
        """`organization/project/stack` by its owners and its resources' names; those do not tell an organization."""
        named = {"/".join(owner.split("/", 3)[:3]) for owner in self.owners}
        for urn in self.urns:
            stack, project = (*urn.removeprefix("urn:pulumi:").split("::"), "")[:2]
            named.add(f"organization/{project}/{stack}")
        return frozenset(named)

    def is_of(self, owner: str) -> bool:
        """Whether this is the state of the owner's stack, by its resources' names; an empty one is nobody's."""
        named = owner.split("/", 3)
        if len(named) < 4:
            return False
        start = f"urn:pulumi:{named[2]}::{named[1]}::"
        return any(urn.startswith(start) for urn in self.urns)

    def holds(self, intent: Intent) -> bool:
        """Whether the state has the cluster of this intent."""
        return any(
            intent.cluster_id == cluster.cluster_id or intent.idempotency_key == cluster.state.get("idempotency_key")
            for cluster in self.clusters
        )


def read_export(path: Path, *, base_url: str, now: datetime, same_key: bool = False) -> StackExport:
    """An export in a file, as `parse_export` reads it. Raises `BadExport`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadExport(str(path), "", f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadExport(str(path), "", "is no text in UTF-8") from error
    return parse_export(text, str(path), base_url=base_url, now=now, same_key=same_key)


def parse_export(text: str, source: str, *, base_url: str, now: datetime, same_key: bool = False) -> StackExport:
    """An export as text. `base_url` is the service that its orders went to, which an export does not tell.

    `same_key`: a person says that creates of which it does not tell whose key ordered them are of the key in use.
    Takes `pulumi stack export`, a checkpoint of the file backend, and a bare deployment.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadExport(source, "", f"is no JSON ({error})") from error
    if not isinstance(document, dict):
        raise BadExport(source, "", "holds no JSON object")
    field, deployment = _deployment(document, source)
    saved_at = _saved_at(deployment)
    clusters, urns = list[OwnedCluster](), list[str]()
    for place, resource in enumerate(_rows(deployment, "resources", source, field)):
        where = f"{field}resources[{place}]"
        urns.append(_required(resource, "urn", source, where))
        if _required(resource, "type", source, where) == CLUSTER_TYPE and not resource.get("pendingReplacement"):
            urn, cluster_id = (_required(resource, name, source, where) for name in ("urn", "id"))
            clusters.append(OwnedCluster(urn, cluster_id, _mapping(resource, "outputs", source, where)))
    pending = []
    for place, operation in enumerate(_rows(deployment, "pending_operations", source, field)):
        where = f"{field}pending_operations[{place}]"
        resource = _mapping(operation, "resource", source, where)
        kind, urn = _required(operation, "type", source, where), _required(resource, "urn", source, f"{where}.resource")
        urns.append(urn)
        if kind != "creating" or _type_of(resource, urn) != CLUSTER_TYPE:
            continue
        inputs = _mapping(resource, "inputs", source, f"{where}.resource")
        if inputs.get("adopt") is not None:
            continue  # nothing was ordered, and the cluster was somebody's before
        intent = _intent(urn, inputs, source, f"{where}.resource.inputs", base_url, saved_at, now)
        # What the state holds by now is no leftover of this create, also where it bears the same chosen name.
        intent = replace(intent, snapshot=tuple(cluster.cluster_id for cluster in clusters))
        if same_key and intent.holder == UNTOLD:
            intent = replace(intent, holder=None)
        pending.append(PendingCreate(urn, place, intent, inputs))
    return StackExport(source, document, tuple(clusters), tuple(pending), tuple(urns))


def deployment_of(document: Mapping[str, Any], source: str = "the export") -> dict[str, Any]:
    """The deployment inside an export."""
    return _deployment(document, source)[1]


def _deployment(document: Mapping[str, Any], source: str) -> tuple[str, dict[str, Any]]:
    """Where the deployment begins, for messages, and the deployment."""
    if "deployment" in document:
        return "deployment.", _mapping(document, "deployment", source, "")
    if "checkpoint" in document:
        checkpoint = _mapping(document, "checkpoint", source, "")
        return "checkpoint.latest.", _mapping(checkpoint, "latest", source, "checkpoint")
    if "resources" in document or "pending_operations" in document:
        return "", dict(document)
    raise BadExport(source, "deployment", "is missing")


def _intent(
    urn: str,
    inputs: Mapping[str, Any],
    source: str,
    where: str,
    base_url: str,
    saved_at: datetime | None,
    now: datetime,
) -> Intent:
    name = _required(inputs, "name", source, where)
    nodes = whole(_plain(inputs, "nodes", source, where))
    if nodes is None:
        raise BadExport(source, f"{where}.nodes", f"is {inputs.get('nodes')!r}: a whole number is needed")
    planned = inputs.get("planned")
    plan: Mapping[str, Any] = planned if isinstance(planned, Mapping) else {}
    return Intent(
        owner=_text(_plain(inputs, "owner", source, where)),
        pod_name=name,
        idempotency_key=_text(_plain(inputs, "idempotency_key", source, where)),
        base_url=base_url,
        account=_text(_plain(inputs, "account", source, where)) or None,
        nodes=nodes,
        price_per_hour=_number(plan.get("price_per_hour")),
        opened_at=saved_at or now,
        stage="sent",
        sent_at=min(saved_at + _CREATE_TAKES, now) if saved_at else now,
        holder=_holder(_plain(inputs, "holder", source, where)),
    )


def _holder(told: Any) -> Mapping[str, str | None]:
    ids = told if isinstance(told, Mapping) else UNTOLD
    return {name: _text(ids[name]) for name in ("user", "workspace") if _text(ids.get(name))}


def _saved_at(deployment: Mapping[str, Any]) -> datetime | None:
    manifest = deployment.get("manifest")
    text = manifest.get("time") if isinstance(manifest, Mapping) else None
    if not isinstance(text, str):
        return None
    # The engine writes nanoseconds and Z, which Python 3.10 does not read.
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", text)
    try:
        return datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")) if found else None
    except ValueError:
        return None


def _type_of(resource: Mapping[str, Any], urn: str) -> str:
    """`urn:pulumi:stack::project::parent$type::name` names the type too."""
    named = resource.get("type")
    parts = urn.split("::")
    return named if isinstance(named, str) else parts[2].rpartition("$")[2] if len(parts) > 3 else ""


def _rows(deployment: Mapping[str, Any], name: str, source: str, field: str) -> list[Mapping[str, Any]]:
    rows = deployment.get(name)
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise BadExport(source, f"{field}{name}", "is no list")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadExport(source, f"{field}{name}[{place}]", "is no object")
    return rows


def _mapping(row: Mapping[str, Any], name: str, source: str, where: str) -> dict[str, Any]:
    value = row.get(name)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise BadExport(source, f"{where}.{name}".lstrip("."), "is no object")
    return value


def _plain(row: Mapping[str, Any], name: str, source: str, where: str) -> Any:
    value = row.get(name)
    if isinstance(value, dict) and _SIGNATURE in value:
        raise BadExport(source, f"{where}.{name}", "is a secret, so the order cannot be found by it")
    return value


def _required(row: Mapping[str, Any], name: str, source: str, where: str) -> str:
    value = _plain(row, name, source, where)
    if not isinstance(value, str) or not value:
        raise BadExport(source, f"{where}.{name}", "is missing" if value is None else "is no text, or an empty one")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
