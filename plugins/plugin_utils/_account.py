# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of an account as inventory hosts and groups. Pure: rows of the service in, names and variables out.

For internal use of this collection; may change in any release.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_SSH_COMMAND = re.compile(r"ssh (?P<user>[^@\s]+)@(?P<host>\S+)(?: -p (?P<port>\d{1,5}))?")
_RTX = re.compile(r"\bRTX\s*(PRO)?\s*(\d+D?)\b")
_DATA_CENTRE = re.compile(r"\b([A-Z]{1,2}\d{2,4}[A-Z]?)\b")


class RowError(ValueError):
    """A row of the listing is not what the service promises; names the row."""


@dataclass(frozen=True)
class Host:
    """One pod. `ready` is false while it cannot be entered."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]
    ready: bool
    status: str


@dataclass(frozen=True)
class _Row:
    """What of a pod row the inventory uses (API contract 3.3)."""

    pod_id: str
    pod_name: str
    status: str
    cluster_id: str | None
    rank: int | None
    ssh: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)


def hosts_of(rows: Iterable[Any]) -> list[Host]:
    """Every pod as a host, clusters in rank order.

    Group names hold letters, digits and `_` only. An empty value gives no group. Where two different values of one kind
    clean to the same name, each whose cleaning changed it gets the first four hex digits of its SHA-256 behind it, so
    that they stay apart, and a value that was clean keeps its name.
    """
    parsed = sorted(
        (_parse(row, number) for number, row in enumerate(rows)),
        key=lambda row: (row.cluster_id or "", row.rank if row.rank is not None else 1 << 30, row.pod_id),
    )
    unique = {row.pod_id: row for row in parsed}
    names = _host_names(list(unique.values()))
    cluster_names: dict[str, str] = {}
    for row in unique.values():
        if row.cluster_id:
            cluster_names.setdefault(row.cluster_id, row.pod_name or row.cluster_id)
    labels = {row.pod_id: _labels(row, cluster_names) for row in unique.values()}
    group_names = _group_names(label for pod in labels.values() for label in pod)
    return [
        Host(
            name=names[row.pod_id],
            groups=(
                "lium_pods",
                *(("lium_clusters",) if row.cluster_id else ()),
                *(group_names[label] for label in labels[row.pod_id]),
            ),
            variables=_variables(row),
            ready=row.status == "RUNNING" and bool(row.ssh),
            status=row.status,
        )
        for row in unique.values()
    ]


def short_gpu_type(model: str) -> str:
    """`NVIDIA H100 80GB HBM3` → `H100` (API contract 3.1)."""
    model = model.upper()
    found = _RTX.search(model)
    if found:
        return f"RTX{found[1] or ''}{found[2]}"
    found = _DATA_CENTRE.search(model)
    if found:
        return found[1]
    return model.split()[-1] if model.split() else ""


def _parse(row: Any, number: int) -> _Row:
    if not isinstance(row, dict):
        raise RowError(f"row {number} of the pod listing is {type(row).__name__}, not an object")
    pod_id = row.get("id")
    if not isinstance(pod_id, str) or not pod_id:
        raise RowError(f"row {number} of the pod listing has no id")
    rank = row.get("cluster_node_index")
    if isinstance(rank, float) and rank.is_integer():
        rank = int(rank)
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int)):
        raise RowError(f"pod {pod_id}: cluster_node_index {rank!r} is no whole number")
    command = _SSH_COMMAND.fullmatch(_text(row.get("ssh_connect_cmd")))
    return _Row(
        pod_id=pod_id,
        pod_name=_text(row.get("pod_name")),
        status=_text(row.get("status")).upper() or "UNKNOWN",
        cluster_id=_text(row.get("cluster_id")) or None,
        rank=rank,
        ssh={key: value for key, value in command.groupdict().items() if value} if command else {},
        raw=row,
    )


def _host_names(rows: list[_Row]) -> dict[str, str]:
    """`<pod name>-<rank>`; where two pods would share a name, the first eight of the pod's id behind it as well."""
    wanted = {}
    for row in rows:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", row.pod_name).strip("-.") or row.pod_id
        wanted[row.pod_id] = name if row.rank is None else f"{name}-{row.rank}"
    uses = Counter(wanted.values())
    names = {pod: name if uses[name] == 1 else f"{name}-{pod[:8]}" for pod, name in wanted.items()}
    uses = Counter(names.values())
    return {pod: name if uses[name] == 1 else f"{wanted[pod]}-{pod}" for pod, name in names.items()}


def _labels(row: _Row, cluster_names: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(kind, identity, raw name) of each group that the pod belongs to; two identities never share a group."""
    fabric = _text(row.raw.get("fabric_id"))
    executor = row.raw.get("executor")
    model = _text(executor.get("machine_name")) if isinstance(executor, dict) else ""
    labels = [("lium_status", row.status, row.status.lower())]
    if row.cluster_id:
        labels.append(("lium_cluster", row.cluster_id, cluster_names[row.cluster_id]))
    if fabric:
        labels.append(("lium_on_fabric", fabric, fabric))
    if model:
        gpu = short_gpu_type(model).lower()
        labels.append(("lium_gpu", gpu, gpu))
    return labels


def _group_names(labels: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    distinct = sorted(set(labels))
    plain = {label: f"{label[0]}_{re.sub(r'[^A-Za-z0-9_]', '_', label[2])}" for label in distinct}
    uses = Counter(plain.values())
    names = {}
    for label, name in plain.items():
        kind, identity, raw = label
        # Two clusters may have one name: then neither is the clean one, and the identity tells them apart.
        twins = sum(1 for other in distinct if other[0] == kind and other[2] == raw)
        keeps = uses[name] == 1 or (name == f"{kind}_{raw}" and twins == 1)
        names[label] = name if keeps else f"{name}_{hashlib.sha256(identity.encode()).hexdigest()[:4]}"
    return names


def _variables(row: _Row) -> dict[str, Any]:
    executor = row.raw.get("executor")
    node = executor if isinstance(executor, dict) else {}
    model = _text(node.get("machine_name"))
    found = {
        "lium_pod_id": row.pod_id,
        "lium_pod_name": row.pod_name,
        "lium_status": row.status,
        "lium_cluster_id": row.cluster_id,
        "lium_rank": row.rank,
        "lium_overlay_ip": _text(row.raw.get("cluster_overlay_ip")) or None,
        "lium_machine_id": _text(node.get("id")) or None,
        "lium_gpu_type": short_gpu_type(model) or None,
        "lium_gpu_model": model or None,
        "lium_price_per_hour": row.raw.get("price"),
        "lium_removal_scheduled_at": _text(row.raw.get("removal_scheduled_at")) or None,
        "lium_public_host": row.ssh.get("host"),
        "lium_ssh_port": int(row.ssh.get("port", 22)) if row.ssh else None,
    }
    if row.ssh:
        found["ansible_user"] = row.ssh["user"]
    return {name: value for name, value in found.items() if value is not None}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
