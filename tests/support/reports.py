"""Reports of a rack as a verification and an audit would leave them, for tests of what a person sees."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.plugin_utils._report import build_report
from ansible_collections.lium.cluster.plugins.plugin_utils._sale import sale

AT = datetime(2026, 11, 30, 8, 0, tzinfo=timezone.utc)
CHECKS = (
    ("os.supported", "Operating system"),
    ("kernel.headers_match", "Kernel headers"),
    ("time.ntp", "Clock"),
    ("rdma.modules", "RDMA modules"),
    ("roce.single_segment", "One RoCE segment"),
    ("roce.pairs", "Every pair of the fabric is proven"),
    ("wg.port_free", "UDP port of the overlay is free"),
    ("docker.present", "Docker"),
)


def record(record_id: str = "os.supported", status: str = "OK", *, title: str = "title", **values: str) -> Record:
    """A record that is well, or one with something to do."""
    fix = "" if status in ("OK", "SKIPPED") else "Do it. Why: it matters"
    rest = {"observed": "seen", "expected": "wanted", "remediation": fix, "evidence_source": "source", **values}
    return Record(record_id, title, status, severity=rest.pop("severity", "blocker"), **rest)


def host_records(**broken: Record) -> list[Record]:
    """All checks well, but those given; a key is an id with `__` for the dot."""
    mended = {key.replace("__", "."): row for key, row in broken.items()}
    return [mended.get(record_id) or record(record_id, title=title) for record_id, title in CHECKS]


def measured(
    hosts: list[str], rates: Mapping[tuple[str, str], float | None], segment: str = "10.77.0.0/24"
) -> dict[str, Any]:
    """Results of a verification: 92 Gb/s on a link of 100 for each pair but those in `rates`; None has failed."""
    records = []
    blocking: dict[str, list[str]] = {}
    pairs = [(a, b) for number, a in enumerate(hosts) for b in hosts[number + 1 :]]
    for a, b in pairs:
        rate = rates.get((a, b), 92.0)
        if rate is None:
            blocking.setdefault(a, []).append(b)
            blocking.setdefault(b, []).append(a)
        cause = "" if rate is not None else "packets are dropped on the way"
        status = "FAIL" if rate is None else "OK"
        share = None if rate is None else rate / 100
        records.append({"a": a, "b": b, "status": status, "gigabits_per_second": rate, "share": share, "cause": cause})
    failed = sum(rates.get(pair, 92.0) is None for pair in pairs)
    guilty = [
        {
            "name": f"host {host}",
            "pairs": len(peers),
            "cause": "packets are dropped on the way",
            "fix": "Look at its port",
        }
        for host, peers in blocking.items()
        if len(peers) > 1
    ]
    fabric = {
        "segment": segment,
        "hosts": hosts,
        "pairs": len(pairs),
        "proven": len(pairs) - failed,
        "failed": failed,
        "not_measured": 0,
        "guilty": guilty,
        "blocking": blocking,
    }
    return {"generated_at": "2026-11-30T07:58:00+00:00", "fabrics": [fabric], "records": records}


def report_of(
    records: Mapping[str, list[Record]], roce: Mapping[str, Any] | None = None, playbook: str = "audit"
) -> dict[str, Any]:
    """The report of hosts that stand in one segment."""
    groups = {"segment 10.77.0.0/24": sorted(records)}
    return build_report(records, playbook, AT, sale(groups, records, roce["fabrics"] if roce else ()))


def three_faults(size: int = 6) -> tuple[dict[str, Any], dict[str, Any]]:
    """A rack, of six, with three planted faults: a module, a port that is taken, a host whose pairs fail."""
    hosts = [f"host{number}" for number in range(1, size + 1)]
    module = record(
        "rdma.modules",
        "MUST_FIX",
        title="RDMA modules",
        observed="ib_uverbs, rdma_ucm are not loaded",
        remediation="Load them now and at boot (the role rdma does both). Why: no program can use the cards",
    )
    taken = record(
        "wg.port_free",
        "MUST_FIX",
        title="UDP port of the overlay is free",
        observed="UDP 51820: WireGuard interface wg0 of this host",
        remediation="Give wg0 another port. Why: Docker cannot publish the port a second time; no pod is created",
    )
    roce = measured(hosts, dict.fromkeys(_with("host5", hosts)))
    pairs = record(
        "roce.pairs",
        "MUST_FIX",
        title="Every pair of the fabric is proven",
        observed=f"0 of {size - 1} pairs proven",
        remediation="host host5: Look at its port. Why: the platform lists only hosts whose every pair is measured",
    )
    records = {host: host_records() for host in hosts}
    records["host2"] = host_records(rdma__modules=module)
    records["host3"] = host_records(wg__port_free=taken)
    records["host5"] = host_records(roce__pairs=pairs)
    return report_of(records, roce), roce


def _with(host: str, hosts: list[str]) -> list[tuple[str, str]]:
    return [(a, b) for number, a in enumerate(hosts) for b in hosts[number + 1 :] if host in (a, b)]
