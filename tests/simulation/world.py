"""What a schedule runs in: one market, one engine's state, one disk at a time, and the processes that come and go."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pulumi_lium.api import LiumApi
from pulumi_lium.emulator.market import Market, load_scenario
from pulumi_lium.emulator.scenario import Scenario
from pulumi_lium.lifecycle.context import Context

from .clock import START, VirtualClock
from .disk import Disk
from .engine import Checkpoint, Engine
from .network import FOREIGN_HOSTS, OTHER, OURS, Network
from .points import Points
from .schedule import NAMESAKE, Schedule, Step
from .wire import FastApi

STACK = "acme/web/dev"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH ana@build01"
Wire = Callable[[Network, VirtualClock, random.Random], LiumApi]


@lru_cache(maxsize=64)
def market_scenario(idempotency: bool, cancel_in_flight: bool, delete_seconds: float, others: bool) -> Scenario:
    """Five H100 machines on one fabric for us; with `others` six A100 on another, for everybody else."""

    def host(name: str, model: str, fabric: str, price: float) -> dict[str, Any]:
        return {
            "id": name,
            "gpu_model": model,
            "gpu_count": 8,
            "price_per_gpu": price,
            "public_ip": "192.0.2.1",
            "fabric": fabric,
        }

    return load_scenario(
        {
            "seed": 1,
            "boot": {"seconds": [30, 30]},
            "settings": {
                "rate_limit": False,
                "delete_seconds": delete_seconds,
                "idempotency": idempotency,
                "cancel_in_flight_creates": cancel_in_flight,
            },
            "accounts": [
                {"id": "ours", "balance": 1e6, "keys": [{"key": OURS}]},
                {"id": "other", "balance": 1e6, "keys": [{"key": OTHER}]},
            ],
            "templates": [{"name": "Cluster", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"}],
            "providers": [
                {
                    "name": "dallas",
                    "fabrics": [
                        {"name": "ib", "type": "infiniband", "subnet_manager": "0x1"},
                        *([{"name": "else", "type": "infiniband", "subnet_manager": "0x2"}] if others else []),
                    ],
                    "hosts": [
                        *(host(f"a{place}", "NVIDIA H100 80GB HBM3", "ib", 2.0) for place in range(1, 6)),
                        *(host(name, "NVIDIA A100-SXM4-80GB", "else", 1.0) for name in FOREIGN_HOSTS if others),
                    ],
                }
            ],
        }
    )


class World:
    """Holds what outlives a process, and starts processes.

    `say` takes a line of the story where somebody reads it. `wire` and `disk` put the whole client and a real disk in
    the place of the fast ones; `scenario` another market.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        say: Callable[[str], None] | None = None,
        wire: Wire = FastApi,
        disk: Callable[[], Disk] = Disk,
        scenario: Scenario | None = None,
    ) -> None:
        self.schedule = schedule
        self._tell = say
        self.clock, self.points = VirtualClock(), Points()
        others = bool(schedule.foreign) or any(f.kind == "namesake" for step in schedule.steps for f in step.faults)
        scenario = scenario or market_scenario(
            schedule.idempotency, schedule.cancel_in_flight, schedule.delete_seconds, others
        )
        self.market = Market(scenario, START)
        tell = self.say if say else None
        self.network = Network(self.market, self.clock, self.points, lag=schedule.lag, say=tell)
        self.checkpoint = Checkpoint()
        self.disk = disk()
        self._processes = 0
        self._living: list[int] = []
        self.told: list[str] = []
        """What the last process told a person, errors included."""
        self.names_told: set[str] = set()
        """Names that an error told a person to sweep by."""
        self.told_same_key = False
        """An error told a person to say that the key in use is the one that ordered."""
        self.gone_wrong: list[str] = []
        self._wire, self._new_disk = wire, disk
        for kind in schedule.foreign:
            self.network.add_foreign(foreign_name(kind), OTHER if kind == "other tenant" else OURS, kind == NAMESAKE)

    def say(self, line: str) -> None:
        """A line of the story."""
        if self._tell:
            self._tell(f"{self.clock.at - START:9.1f} s  {line}")

    def start(self) -> Context:
        """A new process of the provider, or of a command."""
        self._processes += 1
        self._living.append(self._processes)
        self.told = []
        rng = random.Random(self._processes * 1_000_003 + 17)
        return Context(
            api=self._wire(self.network, self.clock, rng),
            clock=self.clock,
            rng=rng,
            report=self._report,
            intents=self.disk.journal(self._processes, self.points, self.network.journal_failure),
            require_caller=self._require_engine,
        )

    def end(self) -> None:
        """The process that was started last is gone."""
        self.disk.end(self._living.pop())

    def lose_disk(self) -> None:
        """Another runner: the journal is gone, the engine's state is not."""
        self.disk = self._new_disk()
        self.network.disks += 1
        held = {resource.id for resource in self.checkpoint.resources.values()}
        for cluster in self.network.ours.values():
            cluster.known = cluster.id in held

    def engine(self, ctx: Context) -> Engine:
        return Engine(ctx, self.checkpoint, self.points, self._enter, self._dropped)

    def program(self, step: Step) -> dict[str, dict[str, Any]]:
        """What the program declares."""
        return {
            name: {
                "nodes": float(step.nodes),
                "gpu_type": "H100",
                "ssh_public_keys": [PUBLIC_KEY],
                "owner": f"{STACK}/{name}",
                "resource": name,
                **({"ttl": step.ttl} if step.ttl else {}),
                **({"name": name} if self.schedule.named else {}),
            }
            for name in step.resources
        }

    def _report(self, line: str) -> None:
        self.told.append(line)
        if self._tell:
            self.say(f"  | {line}")

    def _require_engine(self) -> None:
        if self.points.engine_gone:
            from pulumi_lium.engine_watch import EngineGone

            raise EngineGone

    def _enter(self, resource: str) -> None:
        self.network.resource = resource

    def _dropped(self, cluster_id: str) -> None:
        """The state no longer claims a cluster."""
        if cluster_id not in self.network.ours:
            self.gone_wrong.append(f"the state held {cluster_id}, which is not ours")
        elif self.network.bills(cluster_id):
            self.gone_wrong.append(f"the state says that {cluster_id} is gone, and it bills")


def foreign_name(kind: str) -> str:
    """The pod name of a foreign cluster that looks like ours."""
    mark = hashlib.sha256(f"{STACK}/train".encode()).hexdigest()[:6]
    other = hashlib.sha256(b"acme/web/dev2/train").hexdigest()[:6]
    return {
        "prefix": "train",
        NAMESAKE: "train",
        "other stack": f"train-{other}-0a1b2c",
        "same mark": f"train-{mark}-0a1b2c",
        "mark alone": f"train-{mark}",
        "other tenant": f"train-{mark}-3d4e5f",
    }[kind]
