"""Runners that die for good, state and disk lost: only the removal time at the service bounds what they cost.

`create` sets it on every pod at once when the answer names the pods, before it looks at anything else. So:

- A pod that has its removal time bills at most until `ttl` after the order, and 60 s.
- A pod whose runner died before its removal time was set is bounded by nothing on our side: the service takes no such
  time with an order (contract 4.8), and whoever knew of the cluster is gone. This takes a death within one exchange for
  the answer and one for each node; nothing else happens in between. `pulumi-lium sweep --stack-export` elsewhere, or a
  person who looks at the listing, is the remedy then. An order whose answer was lost widens that window by the time it
  takes to find the pods.
"""

from __future__ import annotations

import random
from datetime import datetime

import pytest

from pulumi_lium.emulator.state import DEBIT_SECONDS

from .network import LATENCY, Fault
from .points import ANY, Kill
from .schedule import Schedule, Step
from .simulator import Verdict, play
from .world import World

DEATHS, BLOCK = 10_000, 1_000
_LATE = 60.0
_TTLS = {"1m": 60, "10m": 600, "30m": 1800, "1h": 3600}
_EFFECTS = 24
"""More than a first `up` has: a runner that none of them kills dies when it is done."""


def _life(seed: int) -> tuple[Schedule, int]:
    rng = random.Random(seed)
    ttl = rng.choice(tuple(_TTLS))
    kinds = ("504", "500", "lost", "html", "429")
    faults = (Fault("order", rng.choice(kinds)),) if rng.random() < 0.2 else ()
    if rng.random() < 0.1:
        faults += (Fault("ttl", rng.choice(("503", "lost", "drop")), rng.randrange(3)),)
    if rng.random() < 0.1:
        faults += (Fault("list", "503", rng.randrange(3), 3),)
    kill = Kill(ANY, rng.randrange(_EFFECTS), rng.choice(("before", "after")))
    step = Step(kill=kill, faults=faults, nodes=rng.choice((2, 2, 3, 4)), ttl=ttl)
    return Schedule((step,), idempotency=rng.random() < 0.7, lag=rng.choice((0.0, 6.0))), _TTLS[ttl]


@pytest.mark.parametrize("first", range(0, DEATHS, BLOCK))
def test_what_has_a_removal_time_bills_no_longer(first: int) -> None:
    unbounded = bounded = 0
    for seed in range(first, first + BLOCK):
        schedule, ttl = _life(seed)
        world = World(schedule)
        play(world, schedule.steps[0], Verdict())
        died_at, answered = world.clock.at, not any(fault.label == "order" for fault in schedule.steps[0].faults)
        rows = [row for row in world.market.list_pods("sk_ours") if row["id"] in world.network.our_pods]
        without = [row["id"] for row in rows if row["removal_scheduled_at"] is None]
        ordered_at = min((cluster.at for cluster in world.network.ours.values()), default=died_at)
        # Ours bill from the order on at the earliest, and the removal time counts from before the order.
        world.market.advance_to(ordered_at + ttl + _LATE)
        still = {row["id"] for row in world.market.list_pods("sk_ours")} & world.network.our_pods.keys()
        assert still == set(without), f"seed {seed}"
        # Past the next debit, by which a pod that ran on would be charged.
        world.market.advance_to(world.clock.at + ttl + _LATE + 2 * DEBIT_SECONDS)
        charges = [row for row in world.market.state()["ledger"] if row["pod"] in {row["id"] for row in rows}]
        for row in charges:
            if row["pod"] not in without:
                assert datetime.fromisoformat(row["to"]).timestamp() <= ordered_at + ttl + _LATE, f"seed {seed}"
                bounded += 1
        if without:
            unbounded += 1
            if answered and not any(fault.label == "ttl" for fault in schedule.steps[0].faults):
                # Died between the order and the last removal time, with nothing in between.
                assert died_at - ordered_at <= LATENCY * (len(rows) + 1) + 1e-6, f"seed {seed}"
    print(f"{unbounded} of {BLOCK} deaths struck before every pod had its removal time")
    assert 0 < unbounded < BLOCK / 4
    assert bounded > BLOCK


def test_a_death_after_the_order_returned_leaves_nothing_unbounded() -> None:
    schedule = Schedule((Step(ttl="10m", nodes=4),))
    world = World(schedule)
    play(world, schedule.steps[0], Verdict())
    rows = world.market.list_pods("sk_ours")
    assert len(rows) == 4
    assert all(row["removal_scheduled_at"] for row in rows)
    world.market.advance_to(world.clock.at + 660)
    assert world.market.list_pods("sk_ours") == []
