"""Measurements: a verification report becomes the proof that RoCE offers rest on (contract 7.1.5, host-contract
5.6)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fabrics import Fabric
    from .hosts import Host
    from .state import State

_GOOD = ("OK", "WARN")
_REVERSE = {"a_to_b": "b_to_a", "b_to_a": "a_to_b"}


class MeasurementError(ValueError):
    """A report that cannot be used; the text names the place. Nothing has changed."""


def load_measurements(state: State, report: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the proof of every RoCE fabric that the report speaks of.

    `report["pairs"]` (or `"records"`) holds records as in host-contract 5.6, or [a, b, Gb/s or null]; hosts are named
    by id, by
    their address on the fabric or by their public address. `report["segments"]` names fabrics by IPv4 segment that
    were measured
    even where no pair is left. A pair is proven when each of its measurements (rail, direction; the last of a kind
    counts) has a rate above zero and a status of OK or WARN, if it has one. Of a pair that was measured in both modes
    the one with the newest `measured_at` counts. Raises MeasurementError.
    """
    names = _names(state)
    latest: dict[tuple[str, str, str, str, str], float | None] = {}
    newest: dict[tuple[str, str], tuple[datetime, str]] = {}
    touched: dict[str, Fabric] = {}
    for segment in _items(report, "segments"):
        found = [fabric for fabric in state.tables.fabrics.values() if fabric.spec.segment == segment]
        if not found:
            raise MeasurementError(f"segments: no RoCE fabric has the segment {segment!r}")
        touched.update((fabric.id, fabric) for fabric in found)
    key = "records" if "pairs" not in report and "records" in report else "pairs"
    if "segments" not in report and key not in report:
        raise MeasurementError("pairs: is missing")
    for i, item in enumerate(_items(report, key)):
        where = f"{key}[{i}]"
        record = _record(item, where)
        a, b = (_host(names, record, side, where) for side in "ab")
        fabric = _shared_fabric(a, b, where)
        touched[fabric.id] = fabric
        first, second = sorted((a.id, b.id))
        direction = str(record.get("direction"))
        direction = direction if first == a.id else _REVERSE.get(direction, direction)
        mode = str(record.get("mode"))
        latest[first, second, mode, str(record.get("rail")), direction] = _rate(record, where)
        seen = _measured_at(record, where), mode
        newest[first, second] = max(seen, newest.get((first, second), seen))
    pairs: dict[tuple[str, str], float | None] = {}
    for (first, second, mode, _, _), rate in latest.items():
        if mode != newest[first, second][1]:
            continue
        known = pairs.get((first, second), rate)
        pairs[first, second] = None if rate is None or known is None else min(rate, known)
    answer = []
    for name, fabric in touched.items():
        members = {host.id for group in fabric.groups for host in group.hosts}
        mine = [[a, b, rate] for (a, b), rate in pairs.items() if a in members]
        fabric.measure(mine)
        state.touch("fabrics", name)
        answer.append({"fabric": name, "pairs": len(mine), "proven": sum(rate is not None for _, _, rate in mine)})
    return {"success": True, "fabrics": answer}


def _names(state: State) -> dict[str, list[Host]]:
    """Hosts on RoCE fabrics by every name that a report may use; addresses may be in use in two racks."""
    names: dict[str, list[Host]] = {}
    for host in state.tables.hosts.values():
        if host.group is not None and host.group.fabric.spec.type == "roce":
            for name in {host.id, host.fabric_ip, host.spec.public_ip}:
                if name is not None:
                    names.setdefault(name, []).append(host)
    return names


def _items(report: Mapping[str, Any], key: str) -> list[Any]:
    items = report.get(key, [])
    if not isinstance(items, list):
        raise MeasurementError(f"{key}: must be a list")
    return items


def _record(item: Any, where: str) -> Mapping[str, Any]:
    if isinstance(item, list) and len(item) == 3:
        return {"a": item[0], "b": item[1], "gigabits_per_second": item[2]}
    if isinstance(item, Mapping):
        return item
    raise MeasurementError(f"{where}: must be a record or [host, host, Gb/s or null]")


def _host(names: Mapping[str, list[Host]], record: Mapping[str, Any], side: str, where: str) -> Host:
    told = [name for name in (record.get(side), record.get(f"{side}_address")) if isinstance(name, str) and name]
    for name in told:
        found = names.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            raise MeasurementError(f"{where}.{side}: {name!r} is the address of several hosts; name it by its id")
    names_told = " or ".join(map(repr, told)) or "nothing"
    raise MeasurementError(f"{where}.{side}: no host on a RoCE fabric is called {names_told}")


def _shared_fabric(a: Host, b: Host, where: str) -> Fabric:
    if a is b or a.group is None or b.group is None or a.group.fabric is not b.group.fabric:
        raise MeasurementError(f"{where}: {a.id!r} and {b.id!r} are no two hosts of one fabric")
    return a.group.fabric


def _measured_at(record: Mapping[str, Any], where: str) -> datetime:
    """When it was measured; a record without a time is older than any that has one."""
    told = record.get("measured_at")
    if told is None:
        return datetime.min.replace(tzinfo=timezone.utc)
    try:
        at = datetime.fromisoformat(told)
    except (TypeError, ValueError) as exc:
        raise MeasurementError(f"{where}.measured_at: must be a time in ISO 8601, not {told!r}") from exc
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def _rate(record: Mapping[str, Any], where: str) -> float | None:
    rate, status = record.get("gigabits_per_second"), record.get("status")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
        raise MeasurementError(f"{where}.gigabits_per_second: must be a number or null")
    # Also false for a rate that is not a number: that is no proof.
    good = rate is not None and 0 < rate < float("inf") and (status is None or status in _GOOD)
    return float(rate) if good and rate is not None else None
