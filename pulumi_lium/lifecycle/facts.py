"""What machines are, whether on offer or running, and which demands they leave unmet.

A fact that the service did not give is unknown, and an unknown fact is never taken for a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_lium.api.nodes import short_gpu_type

from .inputs import Selectors
from .state import rows_of, whole
from .values import usd


@dataclass(frozen=True)
class Facts:
    """Facts of a set of machines; None where unknown."""

    nodes: int | None = None
    gpu_model: str | None = None
    gpus_per_node: int | None = None
    fabric_type: str | None = None
    fabric_id: str | None = None
    countries: tuple[tuple[str | None, str | None], ...] = ()
    """(name, code) of each machine; both None where unknown."""
    price_per_hour: float | None = None
    machines: tuple[str, ...] | None = None


def facts_of_state(state: Mapping[str, Any]) -> Facts:
    """Facts of a running cluster, from its state of any version; what a state lacks is unknown."""
    members = rows_of(state)
    machines = tuple(str(member["machine_id"]) for member in members if member.get("machine_id"))
    nodes = whole(state.get("nodes"))
    return Facts(
        nodes=nodes,
        gpu_model=_first(members, "gpu_model") or state.get("gpu_type"),
        gpus_per_node=whole(_first(members, "gpu_count")),
        fabric_type=state.get("fabric_type"),
        fabric_id=state.get("fabric_id"),
        countries=tuple((member.get("country"), member.get("country_code")) for member in members),
        price_per_hour=state.get("price_per_hour"),
        machines=machines if len(machines) == nodes else None,
    )


def unmet(wanted: Selectors, facts: Facts) -> list[tuple[str, str]]:
    """Each demand that the machines do not meet: (property, reason)."""
    found: list[tuple[str, str]] = []
    if facts.nodes is not None and facts.nodes != wanted.nodes:
        found.append(("nodes", f"{facts.nodes} nodes, {wanted.nodes} wanted"))
    if wanted.gpu_type and facts.gpu_model and not same_gpu(wanted.gpu_type, facts.gpu_model):
        found.append(("gpu_type", f"{facts.gpu_model}, {wanted.gpu_type} wanted"))
    if _differ(wanted.gpus_per_node, facts.gpus_per_node):
        found.append(("gpus_per_node", f"{facts.gpus_per_node} GPUs per node, {wanted.gpus_per_node} wanted"))
    if _differ(wanted.fabric_type, facts.fabric_type):
        found.append(("fabric_type", f"{facts.fabric_type}, {wanted.fabric_type} wanted"))
    if _differ(wanted.fabric_id, facts.fabric_id):
        found.append(("fabric_id", f"fabric {facts.fabric_id!r}, {wanted.fabric_id!r} wanted"))
    if wanted.country:
        elsewhere = {place for place in facts.countries if any(place) and not in_country(wanted.country, *place)}
        if elsewhere:
            where = ", ".join(sorted(name or code or "" for name, code in elsewhere))
            found.append(("country", f"in {where}, {wanted.country} wanted"))
    limit, price = wanted.max_price_per_hour, facts.price_per_hour
    if limit is not None and price is not None and price > limit + 1e-9:
        found.append(("max_price_per_hour", f"{usd(price)}, at most {usd(limit)} wanted"))
    if wanted.machines is not None and facts.machines is not None and set(wanted.machines) != set(facts.machines):
        others = sorted(set(wanted.machines) - set(facts.machines))
        found.append(("machines", f"not the machines that are named ({', '.join(others) or 'fewer are named'})"))
    return found


def same_gpu(wanted: str, model: str) -> bool:
    """Whether a short or full name (`H100`, `RTX 4090`, `NVIDIA H100 80GB HBM3`) means this model."""
    if _squeezed(wanted) in (_squeezed(model), _squeezed(short_gpu_type(model))):
        return True
    # Of an older state only the short name may be known.
    return _squeezed(short_gpu_type(wanted)) == _squeezed(model)


def in_country(wanted: str, name: str | None, code: str | None) -> bool:
    """Whether a country's name or code is the wanted one."""
    return wanted.casefold() in ((name or "").casefold(), (code or "").casefold())


def _squeezed(name: str) -> str:
    words = name.upper().split()
    return "".join(words[1:] if words[:1] == ["NVIDIA"] else words)


def _differ(wanted: Any, fact: Any) -> bool:
    return wanted is not None and fact is not None and wanted != fact


def _first(rows: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in rows if row.get(name) is not None), None)
