"""The market alone: one process, no HTTP, no disk.

    python -m bench.bench_market [--seconds 2] [--json]

An operation is one verb of the API; moving the clock is not counted, though its work is. A lifetime of a cluster is
what a client does: look at the offers, list, order two to four nodes, set their removal, list while they start and
run, delete, list until they are gone. Time moves between the polls, so boots, debits and removals fall into the time
measured. The end is checked: every cluster ran, nothing bills, and the ledger explains the balance. On a machine that
does other work too, `operations_per_cpu_second` is the fairer figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

from bench.figure import Figure
from pulumi_lium.emulator.market import Market, load_scenario

KEY = "sk_bench"
POLLS = 10
POLL_SECONDS = 10.0
ORDER = {
    "user_public_key": ["ssh-ed25519 AAAA bench"],
    "initial_port_count": None,
    "enable_volume_encryption": True,
    "enable_backups": True,
}
REMOVAL = {"removal_scheduled_at": "2030-01-01T00:00:00Z"}


def small_market() -> dict[str, Any]:
    """Four hosts on InfiniBand, four on RoCE with every pair measured; the rate limit is off, since the polls of many
    lifetimes share an account."""
    hosts = [
        {"id": f"{wire}-{i}", "gpu_model": "NVIDIA H100 80GB HBM3", "gpu_count": 8, "price_per_gpu": 2.0 + i / 10,
         "public_ip": f"192.0.2.{base + i}", "fabric": wire}
        for wire, base in (("ib0", 10), ("roce0", 20))
        for i in range(4)
    ]  # fmt: skip
    return {
        "seed": 7,
        "boot": {"seconds": [20, 40]},
        "settings": {"rate_limit": False},
        "accounts": [{"id": "bench", "balance": 1e9, "keys": [{"key": KEY}]}],
        "templates": [
            {"name": "Multi-node cluster", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"}
        ],
        "providers": [
            {
                "name": "rack",
                "fabrics": [
                    {"name": "ib0", "type": "infiniband", "subnet_manager": "0x3"},
                    {"name": "roce0", "type": "roce", "segment": "10.20.30.0/24", "measured": "all"},
                ],
                "hosts": hosts,
            }
        ],
    }


def lifetime(market: Market, number: int, template: str) -> int:
    """One cluster from the offers to its end; answers how many verbs were called.

    Written tightly, since its own time counts as the market's.
    """
    list_pods, advance_to, now = market.list_pods, market.advance_to, market.now
    offers = market.offers(KEY)
    list_pods(KEY)
    nodes = [node["id"] for node in offers[number % len(offers)]["nodes"][: 2 + number % 3]]
    order = {**ORDER, "pod_name": f"train-{number}", "template_id": template, "executor_uuids": nodes}
    reply = market.order_cluster(KEY, order, f"key-{number}")
    list_pods(KEY)
    for pod_id in reply.body["pod_ids"]:
        market.schedule_removal(KEY, pod_id, REMOVAL)
    for _ in range(POLLS):
        now += POLL_SECONDS
        advance_to(now)
        rows = list_pods(KEY)
    if [row["status"] for row in rows] != ["RUNNING"] * len(nodes):
        raise AssertionError("a cluster did not start")
    market.delete_cluster(KEY, rows[0]["cluster_id"])
    operations = 5 + len(nodes) + POLLS
    while rows:
        now += POLL_SECONDS
        advance_to(now)
        rows = list_pods(KEY)
        operations += 1
    return operations


def run(seconds: float) -> dict[str, float]:
    """Operations a second over `seconds`, in slices, on a market that grows by what it remembers."""
    market = Market(load_scenario(small_market()), 1_790_000_000.0)
    template = market.templates(KEY)[0]["id"]
    rates: list[float] = []
    total = lifetimes = 0
    end = time.perf_counter() + seconds
    begun, cpu_begun = time.perf_counter(), time.process_time()
    while time.perf_counter() < end:
        begin = time.perf_counter()
        operations = 0
        for _ in range(25):
            operations += lifetime(market, lifetimes, template)
            lifetimes += 1
        rates.append(operations / (time.perf_counter() - begin))
        total += operations
    elapsed, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    state = market.state()
    charged = sum(round(row["usd"] * 1e6) for row in state["ledger"])
    if state["billing"]["pods"] or round(state["accounts"][0]["balance"] * 1e6) != 10**15 - charged:
        raise AssertionError("the ledger does not explain the balance")
    return {
        "operations_per_second": total / elapsed,
        "operations_per_cpu_second": total / cpu,
        "median_slice": statistics.median(rates),
        "fastest_slice": max(rates),
        "operations": float(total),
        "lifetimes": float(lifetimes),
        "ledger_rows": float(len(state["ledger"])),
    }


def figures() -> list[Figure]:
    measured = run(2.0)
    rate = measured["operations_per_second"]
    cpu = f"{measured['operations_per_cpu_second']:,.0f} per second of CPU time"
    return [Figure("operations a second in process", f"{rate:,.0f}", cpu, "at least 100,000", rate >= 100_000)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments.seconds)
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:14,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
