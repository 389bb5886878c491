"""The price that a preview shows against the ledger, over whole lifetimes: they agree to the cent."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest

from pulumi_lium.emulator.scenario import Scenario

from .network import OURS
from .schedule import Schedule, Step
from .simulator import Verdict, play
from .world import World, market_scenario

LIFETIMES, BLOCK = 10_000, 1_000
_BOOT = 30.0


@lru_cache(maxsize=64)
def _market(number: int) -> Scenario:
    """Machines whose prices have nothing in common."""
    rng = random.Random(number)
    scenario = market_scenario(True, True, 5.0, False)
    (provider,) = scenario.providers
    hosts = [host.model_copy(update={"price_per_gpu": round(rng.uniform(0.01, 12.0), 4)}) for host in provider.hosts]
    return scenario.model_copy(update={"providers": [provider.model_copy(update={"hosts": hosts})]})


@pytest.mark.parametrize("first", range(0, LIFETIMES, BLOCK))
def test_the_preview_and_the_ledger_agree_to_the_cent(first: int) -> None:
    for seed in range(first, first + BLOCK):
        rng = random.Random(seed)
        ttl = rng.choice((None, None, "1h", "30h"))
        schedule = Schedule((Step(nodes=rng.choice((2, 3, 4, 5)), ttl=ttl), Step("destroy", wait=_lifetime(rng))))
        world = World(schedule, scenario=_market(rng.randrange(64)))
        up, destroy = schedule.steps
        assert play(world, up, Verdict())
        (resource,) = world.checkpoint.resources.values()
        planned = resource.inputs["planned"]["price_per_hour"]
        (cluster,) = world.network.ours.values()
        assert play(world, destroy, Verdict())
        state = world.market.state()
        rows = [row for row in state["ledger"] if row["pod"] in cluster.pods]
        began = cluster.at + _BOOT
        removed = min(cluster.removed_at or began, _ttl_end(resource.state, began))
        hours = max(0.0, removed - began) / 3600
        assert abs(sum(row["usd"] for row in rows) - planned * hours) < 0.005, f"seed {seed}"
        assert {row["account"] for row in rows} <= {world.market.account_of(OURS).removeprefix("account:")}


def _lifetime(rng: random.Random) -> float:
    return rng.choice((rng.uniform(0, 60), rng.uniform(60, 3600), rng.uniform(3600, 40 * 3600)))


def _ttl_end(state: dict[str, object], otherwise: float) -> float:
    from datetime import datetime

    ends = state.get("expires_at")
    return datetime.fromisoformat(ends).timestamp() if isinstance(ends, str) else float("inf")
