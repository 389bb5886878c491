"""What a client really meets when a fault is in force, and what the market did meanwhile (design 4.3)."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import pytest
import requests

from tests.emulator.test_control import KEY, RENT, order, order_body, pods, send
from tests.support.waiting import wait_for
from tools.emulator import Emulator

DELETE = "DELETE /clusters/*"


def clusters(emulator: Emulator) -> int:
    return len(emulator.state()["clusters"])


def committed(emulator: Emulator) -> list[bool]:
    return [row["committed"] for row in emulator.journal() if row["path"] == "/executors/cluster/rent"]


@pytest.mark.parametrize(("kind", "rented"), [("refused", 0), ("drop_before_commit", 0), ("drop_after_commit", 1)])
def test_cut_orders(emulator: Emulator, kind: str, rented: int) -> None:
    emulator.fault(RENT, kind)
    with pytest.raises(requests.ConnectionError):
        order(emulator)
    assert clusters(emulator) == rented
    assert committed(emulator) == [bool(rented)]
    assert emulator.journal()[-1]["status"] is None
    assert order(emulator, "again").status_code == 200


@pytest.mark.parametrize("commit", [False, True])
def test_a_status_with_and_without_commit(emulator: Emulator, commit: bool) -> None:
    emulator.fault(RENT, "status", code=504, body="<h1>504</h1>", commit=commit)
    answer = order(emulator)
    assert (answer.status_code, answer.text) == (504, "<h1>504</h1>")
    assert clusters(emulator) == int(commit)
    assert committed(emulator) == [commit]


def test_an_order_lost_at_a_gateway_is_replayed(emulator: Emulator) -> None:
    emulator.fault(RENT, "status", code=504, commit=True)
    body = order_body(emulator)
    assert send(emulator, body, "k").status_code == 504
    again = send(emulator, body, "k")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert sorted(again.json()["pod_ids"]) == sorted(pod["id"] for pod in pods(emulator))
    assert clusters(emulator) == 1


def test_an_order_that_the_service_lost_is_in_progress_and_then_unknown(virtual_emulator: Emulator) -> None:
    virtual_emulator.fault(RENT, "status", code=500, commit=True)
    body = order_body(virtual_emulator)
    assert send(virtual_emulator, body, "k").status_code == 500
    assert send(virtual_emulator, body, "k").json()["error"]["code"] == "idempotency_in_progress"
    virtual_emulator.advance(301)
    assert send(virtual_emulator, body, "k").json()["error"]["code"] == "idempotency_outcome_unknown"
    assert clusters(virtual_emulator) == 1


def test_not_json_acts(emulator: Emulator) -> None:
    emulator.fault(RENT, "not_json")
    answer = order(emulator)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    with pytest.raises(json.JSONDecodeError):
        answer.json()
    assert clusters(emulator) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delayed_order_is_made_though_the_caller_has_gone(emulator: Emulator, when: str) -> None:
    emulator.fault(RENT, "delay", seconds=0.5, when=when)
    body = order_body(emulator)
    with pytest.raises(requests.ReadTimeout):
        send(emulator, body, patience=0.1)
    assert clusters(emulator) == (1 if when == "after" else 0)
    wait_for(lambda: clusters(emulator) == 1, what="the order was made")


def test_an_order_on_its_way_keeps_its_idempotency_key_busy(emulator: Emulator) -> None:
    emulator.fault(RENT, "delay", seconds=1.0)
    body = order_body(emulator)
    with pytest.raises(requests.ReadTimeout):
        send(emulator, body, "k", patience=0.1)
    assert send(emulator, body, "k").json()["error"]["code"] == "idempotency_in_progress"
    wait_for(lambda: clusters(emulator) == 1, what="the delayed order was made")
    assert send(emulator, body, "k").headers["Idempotent-Replayed"] == "true"


def test_other_requests_are_served_while_one_is_delayed(emulator: Emulator) -> None:
    emulator.fault("GET /pods", "delay", seconds=3.0)
    with pytest.raises(requests.ReadTimeout):
        requests.get(emulator.base_url + "/pods", headers=KEY, timeout=(5, 0.1))
    begun = time.monotonic()
    assert pods(emulator) == []
    assert time.monotonic() - begun < 2.5


def test_a_refused_connection_is_reset_and_a_dropped_one_closed(emulator: Emulator) -> None:
    address = urlsplit(emulator.base_url)

    def end() -> bytes:
        with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as raw:
            raw.sendall(b"GET /api/pods HTTP/1.1\r\nHost: x\r\n\r\n")
            return raw.recv(100)

    emulator.fault("GET /pods", "refused")
    with pytest.raises(ConnectionResetError):
        end()
    emulator.fault("GET /pods", "drop_before_commit")
    assert end() == b""


def test_a_stale_listing_lags_by_one_change(emulator: Emulator) -> None:
    assert order(emulator, "one").status_code == 200
    emulator.fault("GET /pods", "stale_list", n=2)
    assert [len(pods(emulator)) for _ in range(3)] == [0, 0, 2]
    emulator.fault("GET /pods", "stale_list", n=1)
    assert order(emulator, "two").status_code == 200
    assert {pod["pod_name"] for pod in pods(emulator)} == {"one"}
    assert {pod["pod_name"] for pod in pods(emulator)} == {"one", "two"}


def test_a_hidden_member_is_left_out(emulator: Emulator) -> None:
    assert order(emulator, nodes=3).status_code == 200
    emulator.fault("GET /pods", "hide_member", rank=1)
    assert sorted(pod["cluster_node_index"] for pod in pods(emulator)) == [0, 2]
    assert sorted(pod["cluster_node_index"] for pod in pods(emulator)) == [0, 1, 2]


def test_a_delete_that_failed_after_it_was_done(emulator: Emulator) -> None:
    assert order(emulator).status_code == 200
    cluster = pods(emulator)[0]["cluster_id"]
    emulator.fault(DELETE, "status", code=502, commit=True)
    answer = requests.delete(f"{emulator.base_url}/clusters/{cluster}", headers=KEY, timeout=10)
    assert answer.status_code == 502
    assert {pod["status"] for pod in pods(emulator)} == {"DELETING"}


def test_too_many_requests_say_when_to_come_back(emulator: Emulator) -> None:
    emulator.fault("GET /pods", "status", code=429, headers={"Retry-After": "1"}, times=2)
    answers = [requests.get(emulator.base_url + "/pods", headers=KEY, timeout=10) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "1"


def test_a_request_from_before_a_reset_does_not_act_after_it(emulator: Emulator) -> None:
    emulator.fault(RENT, "delay", seconds=0.5)
    with pytest.raises(requests.ReadTimeout):
        send(emulator, order_body(emulator), patience=0.1)
    emulator.reset()
    emulator.fault("GET /pods", "delay", seconds=0.8)
    assert pods(emulator) == [], "asked after the delayed order's time has come"
    assert emulator.state()["clusters"] == []


@pytest.mark.parametrize("headers", [{"Content-Length": "1"}, {"Transfer-Encoding": "chunked"}])
def test_a_fault_cannot_break_the_framing(emulator: Emulator, headers: dict[str, str]) -> None:
    emulator.fault("GET /pods", "status", code=503, body={"a": "b"}, headers=headers)
    answer = requests.get(emulator.base_url + "/pods", headers=KEY, timeout=10)
    assert (answer.status_code, answer.json()) == (503, {"a": "b"})


def test_an_answer_without_a_body(emulator: Emulator) -> None:
    emulator.fault("GET /pods", "status", code=204)
    answer = requests.get(emulator.base_url + "/pods", headers=KEY, timeout=10)
    assert (answer.status_code, answer.content) == (204, b"")
