"""The lifecycle against the emulated service in one process: one clock for both, no socket, no waiting."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pydantic import SecretStr

from pulumi_lium.api import LiumApi, Settings
from pulumi_lium.emulator.faults import FaultRule
from pulumi_lium.emulator.inprocess import InProcessTransport
from pulumi_lium.emulator.market import load_scenario
from pulumi_lium.emulator.script import Script, ScriptStory
from pulumi_lium.emulator.service import Service
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.context import Claims, Context
from pulumi_lium.lifecycle.intents import Intent, IntentLog, NullIntents
from pulumi_lium.lifecycle.order import Created, order

START = 1_790_000_000.0
KEY = "sk_ana"
OWNER = "acme/web/dev/train"
HOURLY = 16.0
"""USD an hour of each machine of `scenario()`."""


def public_key(fill: int = 7, comment: str = "ana@build01") -> str:
    """An SSH public key of the right form that nobody has the private half of."""
    parts = (b"ssh-ed25519", bytes([fill]) * 32)
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} {comment}"


def host(name: str, fabric: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "gpu_count": 8,
        "price_per_gpu": HOURLY / 8,
        "public_ip": f"192.0.2.{sum(name.encode()) % 250}",
        "fabric": fabric,
        **more,
    }


def scenario(**more: Any) -> dict[str, Any]:
    """InfiniBand in the United States (a1 to a4), RoCE in Norway at 20 USD a machine (r1, r2); pods boot in 30 s."""
    return {
        "seed": 1,
        "boot": {"seconds": [30, 30]},
        "settings": {"rate_limit": False, "delete_seconds": 5},
        "accounts": [
            {"id": "ana", "balance": 10000.0, "keys": [{"key": KEY}]},
            {
                "id": "bob",
                "balance": 10000.0,
                "keys": [
                    {"key": "sk_bob"},
                    {"key": "sk_lab", "workspace": "lab"},
                    {"key": "sk_shop", "workspace": "shop"},
                ],
            },
        ],
        "templates": [
            {"name": "Cluster", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.7"},
            {"name": "Cluster", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"},
            {"name": "PyTorch", "docker_image": "daturaai/pytorch", "docker_image_tag": "9.9"},
        ],
        "providers": [
            {
                "name": "dallas",
                "location": {"country": "United States", "country_code": "US"},
                "fabrics": [{"name": "ib", "type": "infiniband", "subnet_manager": "0x3", "link_rate": "400 Gb/sec"}],
                "hosts": [host(f"a{i}", "ib") for i in range(1, 5)],
            },
            {
                "name": "oslo",
                "location": {"country": "Norway", "country_code": "NO"},
                "fabrics": [{"name": "roce", "type": "roce", "segment": "10.20.30.0/24", "measured": "all"}],
                "hosts": [host(f"r{i}", "roce", price_per_gpu=2.5) for i in range(1, 3)],
            },
        ],
        **more,
    }


class WorldClock:
    """One time for the client and for the emulator; it passes only by sleeping."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> Any:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += max(0.0, seconds)

    def restart(self) -> None: ...

    def resume(self, at: float) -> None: ...


@dataclass
class ClientClock:
    """The same time as the client's `Clock` protocol has it."""

    clock: WorldClock

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.at, timezone.utc)

    def monotonic(self) -> float:
        return self.clock.at

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


@dataclass
class RecordedIntents(NullIntents):
    """What became of each intent, by idempotency key."""

    open_ones: dict[str, Intent] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)

    def open(self, intent: Intent) -> None:
        self.open_ones[intent.idempotency_key] = intent
        self.stages[intent.idempotency_key] = [intent.stage]

    def note(self, intent: Intent) -> None:
        self.open_ones[intent.idempotency_key] = intent
        self.stages[intent.idempotency_key].append(intent.stage)

    def close(self, idempotency_key: str) -> None:
        self.open_ones.pop(idempotency_key, None)

    def close_cluster(self, cluster_id: str) -> None:
        for key, intent in list(self.open_ones.items()):
            if intent.cluster_id == cluster_id:
                self.close(key)


class World:
    """A service, an account, and the surroundings of the verbs. `told` is what a person was told."""

    def __init__(self, told_scenario: Mapping[str, Any] | None = None, *, key: str = KEY) -> None:
        self.clock = WorldClock()
        self.service = Service(load_scenario(told_scenario or scenario()), self.clock)
        self.told: list[str] = []
        self.intents = RecordedIntents()
        self.claims = Claims()
        self.ctx = self.context(key)

    def context(self, key: str = KEY, intents: IntentLog | None = None) -> Context:
        clock = ClientClock(self.clock)
        transport = InProcessTransport(self.service, sleep=self.clock.sleep)
        api = LiumApi(
            Settings("http://lium.test/api", SecretStr(key)), transport=transport, clock=clock, rng=random.Random(3)
        )
        return Context(api, clock, random.Random(5), self.told.append, intents or self.intents, self.claims)

    # What a test does.

    def check(self, olds: Mapping[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
        """Checked inputs; a failure is the test's."""
        checked, failures = check(self.ctx, olds or {}, wanted(**inputs))
        assert failures == []
        return checked

    def order(self, **inputs: Any) -> Created:
        """An ordered cluster, its state as the engine gives it back."""
        created = order(self.ctx, self.check(**inputs))
        return replace(created, state=over_the_wire(created.state))

    def running(self, **inputs: Any) -> Created:
        """A cluster whose nodes run."""
        created = self.order(**inputs)
        self.pass_time(60)
        return created

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def event(self, event: str, **fields: Any) -> None:
        self.service.change(lambda market: market.apply_event({"event": event, **fields}))

    def fault(self, on: str, kind: str, *, times: int = 1, after: int = 0, **fields: Any) -> None:
        rule = {"on": on, "times": times, "after": after, "fault": {"kind": kind, **fields}}
        self.service.faults.add(FaultRule.model_validate(rule))

    def script(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Tells a story in the format of the field cases."""
        story = ScriptStory.model_validate({"steps": [dict(step) for step in steps]})
        self.service.script = Script.of(story)

    # What a test looks at.

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.service.look(lambda market: market.state()))

    @property
    def journal(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.service.journal.rows()]

    def calls(self, method: str, path: str) -> int:
        return sum(row["method"] == method and row["path"].endswith(path) for row in self.journal)

    def requests(self) -> list[str]:
        return [f"{row['method']} {row['path']}" for row in self.journal]

    def listed(self) -> list[dict[str, Any]]:
        """Pods that are not gone."""
        return [pod for pod in self.state["pods"] if not pod.get("gone_at")]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.told)


def over_the_wire(value: Any) -> Any:
    """A value as it comes back from the engine: numbers are floats, and what is None is missing."""
    if isinstance(value, Mapping):
        return {name: over_the_wire(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [over_the_wire(item) for item in value]
    return float(value) if type(value) is int else value


def wanted(**inputs: Any) -> dict[str, Any]:
    """Inputs as `LiumCluster` sends them; two H100 machines unless the test says otherwise."""
    defaults = {
        "nodes": 2,
        "gpu_type": "H100",
        "ssh_public_keys": [public_key()],
        "owner": OWNER,
        "resource": "train",
    }
    return {name: value for name, value in {**defaults, **inputs}.items() if value is not None}
