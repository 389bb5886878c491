"""The in-process transport: the same service without a socket, for simulations."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pulumi_lium.api import ClusterOrder, LiumApi, Settings, TransportError
from pulumi_lium.emulator.clock import EmulatorClock
from pulumi_lium.emulator.faults import FaultRule
from pulumi_lium.emulator.inprocess import InProcessTransport
from pulumi_lium.emulator.scenario import load_scenario
from pulumi_lium.emulator.service import Service

BASE = "http://lium.invalid/api"
KEY = {"X-API-KEY": "sk_emulator_owner"}
ORDER = "POST /executors/cluster/rent"


class Simulation:
    """A service on a virtual clock that sleeping moves, and a client of it."""

    def __init__(self) -> None:
        self.clock = EmulatorClock(virtual=True, wall=lambda: 1_800_000_000.0)
        self.service = Service(load_scenario(None), self.clock)
        self.slept: list[float] = []
        self.transport = InProcessTransport(self.service, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        if seconds:
            self.slept.append(seconds)
            self.clock.advance(seconds)

    def get(self, path: str, timeout: float = 30) -> Any:
        answer = self.transport.send("GET", BASE + path, headers=KEY, body=None, timeout=(5, timeout))
        return json.loads(answer.body)

    def fault(self, on: str, **fault: Any) -> None:
        self.service.faults.add(FaultRule.model_validate({"on": on, "fault": fault}))


@pytest.fixture
def simulation() -> Simulation:
    return Simulation()


def client(simulation: Simulation) -> LiumApi:
    settings = Settings.from_env({"LIUM_API_KEY": "sk_emulator_owner", "LIUM_BASE_URL": BASE})
    return LiumApi(settings, transport=simulation.transport, rng=random.Random(1))


def test_the_client_orders_and_deletes(simulation: Simulation) -> None:
    api = client(simulation)
    offer = api.offers.list()[0]
    template = next(row for row in api.templates.list() if row.docker_image == "daturaai/lium-cluster")
    order = ClusterOrder(
        pod_name="train",
        template_id=template.id,
        executor_uuids=[node.id for node in offer.nodes[:2]],
        user_public_key=["ssh-ed25519 AAAA ana"],
    )
    answer = api.clusters.order(order, idempotency_key="k")
    simulation.clock.advance(60)
    pods = api.pods.list()
    assert {pod.id for pod in pods} == set(answer.pod_ids)
    assert all(pod.is_ready for pod in pods)
    assert pods[0].cluster_id is not None
    assert all(row.success for row in api.clusters.delete(pods[0].cluster_id).rows)
    simulation.clock.advance(60)
    assert api.pods.list() == []


def test_the_same_calls_give_the_same_answers() -> None:
    def answers() -> list[tuple[int, bytes]]:
        simulation = Simulation()
        seen = []
        for path in ("/executors/infiniband-clusters", "/pods", "/users/me", "/nothing", "/templates"):
            answer = simulation.transport.send("GET", BASE + path, headers=KEY, body=None, timeout=(5, 30))
            seen.append((answer.status, answer.body))
        return seen

    assert answers() == answers()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "refused"}, ConnectionRefusedError),
        ({"kind": "drop_before_commit"}, ConnectionResetError),
        ({"kind": "drop_after_commit"}, ConnectionResetError),
        ({"kind": "delay", "seconds": 40}, TimeoutError),
    ],
)
def test_lost_answers_are_the_errors_of_a_socket(
    simulation: Simulation, fault: dict[str, Any], error: type[OSError]
) -> None:
    simulation.fault("GET /pods", **fault)
    with pytest.raises(error):
        simulation.get("/pods")
    assert simulation.get("/pods") == []


def test_the_client_takes_them_for_what_they_are(simulation: Simulation) -> None:
    api = client(simulation)
    order = ClusterOrder(
        pod_name="t", template_id="t", executor_uuids=["a", "b"], user_public_key=["ssh-ed25519 AAAA ana"]
    )
    simulation.fault(ORDER, kind="refused")
    with pytest.raises(TransportError) as refused:
        api.clusters.order(order, idempotency_key="k")
    assert not refused.value.outcome_unknown
    simulation.fault(ORDER, kind="drop_before_commit")
    with pytest.raises(TransportError) as dropped:
        api.clusters.order(order, idempotency_key="k")
    assert dropped.value.outcome_unknown


def test_a_delay_passes_on_the_simulations_clock(simulation: Simulation) -> None:
    simulation.fault("GET /pods", kind="delay", seconds=7)
    before = simulation.clock.now()
    simulation.get("/pods")
    assert simulation.slept == [7]
    assert simulation.clock.now() == before + 7
