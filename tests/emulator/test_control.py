"""The control plane (design 4.3)."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tools.emulator import ControlPlane, Emulator

KEY = {"X-API-KEY": "sk_emulator_owner"}
RENT = "POST /executors/cluster/rent"


def control(emulator: ControlPlane, method: str, name: str, **options: Any) -> requests.Response:
    return requests.request(
        method, emulator.base_url.removesuffix("/api") + "/_emulator/" + name, timeout=10, **options
    )


def pods(emulator: ControlPlane) -> list[dict[str, Any]]:
    answer = requests.get(emulator.base_url + "/pods", headers=KEY, timeout=10)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def order_body(emulator: ControlPlane, name: str = "train", *, nodes: int = 2) -> dict[str, Any]:
    """An order of the first machines on sale."""
    offers = requests.get(emulator.base_url + "/executors/infiniband-clusters", headers=KEY, timeout=10).json()
    templates = requests.get(emulator.base_url + "/templates", headers=KEY, timeout=10).json()
    return {
        "pod_name": name,
        "template_id": next(row["id"] for row in templates if row["docker_image"] == "daturaai/lium-cluster"),
        "executor_uuids": [node["id"] for node in offers[0]["nodes"][:nodes]],
        "user_public_key": ["ssh-ed25519 AAAA ana"],
    }


def send(
    emulator: ControlPlane, body: dict[str, Any], key: str | None = None, *, patience: float = 10
) -> requests.Response:
    """Send an order, with an idempotency key or without; `patience` is the read timeout in seconds."""
    return requests.post(
        emulator.base_url + "/executors/cluster/rent",
        json=body,
        headers={**KEY, **({"Idempotency-Key": key} if key else {})},
        timeout=(5, patience),
    )


def order(emulator: ControlPlane, name: str = "train", *, nodes: int = 2) -> requests.Response:
    """Order the first machines on sale."""
    return send(emulator, order_body(emulator, name, nodes=nodes))


def statuses(emulator: ControlPlane) -> list[str]:
    return sorted(pod["status"] for pod in emulator.state()["pods"])


def test_reset_takes_yaml_and_starts_everything_over(emulator: Emulator) -> None:
    order(emulator)
    emulator.fault("GET /pods", "refused", times=0)
    emulator.script([{"on": "GET /pods", "answer": {"status": 500, "json": {}}}])
    text = "seed: 3\naccounts:\n  - {id: ana, email: a@example.com, balance: 5.0, keys: [{key: sk_emulator_owner}]}\n"
    assert control(emulator, "POST", "reset", data=text).json()["seed"] == 3
    assert emulator.journal() == []
    assert control(emulator, "GET", "faults").json() == []
    assert pods(emulator) == []
    assert [account["id"] for account in emulator.state()["accounts"]] == ["ana"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: [", "not YAML"),
        ("- a", "mapping"),
        ("seed: 1", "accounts"),
        ("accounts: []\nsettngs: {}", "settngs"),
        ("\x00", "not YAML"),
        ("[" * 20_000, "nested too deeply"),
    ],
)
def test_a_wrong_scenario_is_refused_and_changes_nothing(emulator: Emulator, text: str, words: str) -> None:
    assert order(emulator).status_code == 200
    answer = control(emulator, "POST", "reset", data=text.encode())
    assert answer.status_code == 422
    assert words in answer.json()["message"]
    assert len(emulator.state()["pods"]) == 2


def test_a_virtual_clock_moves_only_by_the_control_plane(virtual_emulator: Emulator) -> None:
    assert order(virtual_emulator).status_code == 200
    assert statuses(virtual_emulator) == ["PENDING", "PENDING"]
    before = virtual_emulator.state()["now_s"]
    virtual_emulator.advance(60)
    assert virtual_emulator.state()["now_s"] == before + 60
    assert statuses(virtual_emulator) == ["RUNNING", "RUNNING"]


def test_a_real_clock_cannot_be_moved(emulator: Emulator) -> None:
    answer = control(emulator, "POST", "clock", json={"advance_s": 60})
    assert answer.status_code == 409
    assert "--clock virtual" in answer.json()["message"]


@pytest.mark.parametrize("body", [{}, {"advance_s": -1}, {"advance_s": "x"}, {"advance": 1}, {"advance_s": 1e300}])
def test_a_wrong_move_is_refused(virtual_emulator: Emulator, body: dict[str, Any]) -> None:
    answer = control(virtual_emulator, "POST", "clock", json=body)
    assert answer.status_code in (409, 422)
    assert "advance" in answer.json()["message"]


@pytest.mark.parametrize("name", ["faults", "events", "script", "clock", "measurements"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'"x"'])
def test_a_body_that_is_no_object_is_refused(virtual_emulator: Emulator, name: str, body: bytes) -> None:
    answer = control(virtual_emulator, "POST", name, data=body)
    assert answer.status_code in (400, 422)
    assert "body" in answer.json()["message"]


def test_unknown_calls_name_those_there_are(emulator: Emulator) -> None:
    answer = control(emulator, "GET", "fault")
    assert answer.status_code == 404
    assert "faults" in answer.json()["message"]
    assert control(emulator, "PUT", "faults").status_code == 405


def test_a_wrong_event_is_named(emulator: Emulator) -> None:
    answer = control(emulator, "POST", "events", json={"event": "machine_lost", "host": "nowhere"})
    assert answer.status_code == 422
    assert "nowhere" in answer.json()["message"]
    answer = control(emulator, "POST", "events", json={"event": "explode"})
    assert answer.status_code == 422


def test_faults_are_listed_and_cleared(emulator: Emulator) -> None:
    row = emulator.fault("GET /pods", "status", code=503, times=0)
    assert [fault["id"] for fault in control(emulator, "GET", "faults").json()] == [row["id"]]
    emulator.clear_faults()
    assert pods(emulator) == []


def test_a_wrong_fault_is_named(emulator: Emulator) -> None:
    answer = control(emulator, "POST", "faults", json={"on": "pods", "fault": {"kind": "refused"}})
    assert answer.status_code == 422
    assert "DELETE /clusters/*" in answer.json()["message"], "the message shows how it is written"


def test_the_journal_tells_what_committed_and_never_a_key(emulator: Emulator) -> None:
    body = order_body(emulator)
    assert send(emulator, body, "k-1").status_code == 200
    assert send(emulator, body, "k-1").headers["Idempotent-Replayed"] == "true"
    emulator.fault(RENT, "status", code=503)
    assert send(emulator, body, "k-2").status_code == 503
    requests.get(emulator.base_url + "/pods", headers={"X-API-KEY": "sk_wrong"}, timeout=10)
    rows = emulator.journal()
    assert all(set(row) == {"method", "path", "key_id", "idempotency_key", "status", "committed"} for row in rows)
    orders = [row for row in rows if row["path"] == "/executors/cluster/rent"]
    assert [(row["idempotency_key"], row["status"], row["committed"]) for row in orders] == [
        ("k-1", 200, True),
        ("k-1", 200, False),
        ("k-2", 503, False),
    ]
    assert rows[-1]["key_id"] is None
    assert orders[0]["key_id"]
    assert "sk_" not in str(rows)


def test_a_script_answers_and_ends(emulator: Emulator) -> None:
    emulator.script([{"on": "GET /pods", "answer": {"status": 200, "json": [{"id": "x"}]}}])
    assert pods(emulator) == [{"id": "x"}]
    emulator.script([])
    assert pods(emulator) == []


def test_a_wrong_script_leaves_the_one_before(emulator: Emulator) -> None:
    emulator.script([{"on": "GET /pods", "answer": {"status": 200, "json": [{"id": "x"}]}}])
    answer = control(emulator, "POST", "script", json={"steps": [{"on": "GET /pods", "answr": {}}]})
    assert answer.status_code == 422
    assert "steps.0" in answer.json()["message"]
    assert pods(emulator) == [{"id": "x"}]
