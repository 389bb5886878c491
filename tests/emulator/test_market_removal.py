"""How pods end: deleted, refused, scheduled (contract 3.3, 7.3, 7.6)."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.emulator.wire import iso
from tests.support.market import (
    ANA,
    ANA_TEAM,
    BOB,
    START,
    market,
    members,
    order,
    refusal_of,
    remove,
    rent,
    running,
    statuses,
)

HOUR = 3600.0


# Deletes --------------------------------------------------------------------------------------------------------------


def test_a_delete_is_asynchronous_and_its_texts_are_the_services() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    cluster = rows[0]["cluster_id"]
    answer = here.delete_cluster(ANA, cluster)
    assert answer == {
        "cluster_id": cluster,
        "success": True,
        "message": "Cluster deletion started for every member",
        "pods": [
            {
                "pod_id": row["id"],
                "pod_name": "train",
                "cluster_node_index": row["cluster_node_index"],
                "success": True,
                "message": "Pod deletion started",
            }
            for row in rows
        ],
    }
    assert statuses(here) == ["DELETING", "DELETING"]
    assert {message for _, _, message in remove(here, cluster)} == {"Pod deletion is in progress"}
    here.advance_to(here.now + 5)
    assert members(here) == []
    gone = refusal_of(here.delete_cluster, ANA, cluster)
    assert (gone.status, gone.code, gone.message) == (404, "not_found", "Cluster not found")
    assert here.pod_events(ANA, rows[0]["id"])[-1]["to_status"] == "DELETING"
    assert refusal_of(here.get_pod, ANA, rows[0]["id"]).status == 404


def test_a_member_that_refuses_stays_and_bills_and_the_others_go() -> None:
    here = market()
    rows = running(here, ["a1", "a2", "a3"])
    cluster = rows[0]["cluster_id"]
    here.apply_event({"event": "refuse_delete", "cluster": cluster, "rank": 1, "times": 2})
    answer = here.delete_cluster(ANA, cluster)
    assert answer["success"] is False
    assert answer["message"] == "Cluster deletion failed for 1 of 3 member(s); the others are being removed"
    assert answer["pods"][1]["message"] == (
        "Pod deletion failed; call again to retry this member, or delete the pod on its own"
    )
    here.advance_to(here.now + 60)
    assert [(row["cluster_node_index"], row["cluster_overlay_ip"]) for row in members(here)] == [(1, "10.42.0.2")]
    assert here.state()["billing"] == {"pods": [rows[1]["id"]], "price_per_hour": 16.0}
    assert remove(here, cluster)[0][1] is False
    assert remove(here, cluster) == [(1, True, "Pod deletion started")]


def test_zero_times_refuses_for_ever() -> None:
    here = market()
    here.apply_event({"event": "refuse_delete", "rank": 0, "times": 0})
    rows = running(here, ["a1", "a2"])
    for _ in range(5):
        assert remove(here, rows[0]["cluster_id"])[0][1] is False
    assert refusal_of(here.delete_pod, ANA, rows[0]["id"]).status == 409


def test_a_delete_reaches_a_start_in_flight() -> None:
    here = market()
    order(here, ["a1", "a2"])
    cluster = members(here)[0]["cluster_id"]
    assert remove(here, cluster) == [(0, True, "Pod deletion started"), (1, True, "Pod deletion started")]
    here.advance_to(START + HOUR)
    assert members(here) == []
    assert here.state()["ledger"] == []
    assert all(row["free_gpus"] == 8 for row in here.state()["hosts"])


def test_with_in_flight_cancel_off_nothing_is_removed_before_all_have_started() -> None:
    here = market(settings={"cancel_in_flight_creates": False})
    here.apply_event({"event": "pod_stuck", "rank": 1})
    order(here, ["a1", "a2"])
    here.advance_to(START + 30)
    rows = members(here)
    refusal = refusal_of(here.delete_cluster, ANA, rows[0]["cluster_id"])
    assert (refusal.status, refusal.code) == (409, "conflict")
    assert refusal.envelope("req-51c0") == {
        "success": False,
        "status_code": 409,
        "error": {"code": "conflict", "message": "conflict", "hint": None, "request_id": "req-51c0"},
        "message": {
            "message": "A member of this cluster is still being created; try again later.",
            "cluster_id": rows[0]["cluster_id"],
            "pending_pods": [rows[1]["id"]],
        },
    }
    assert statuses(here) == ["RUNNING", "PENDING"]
    assert refusal_of(here.delete_pod, ANA, rows[1]["id"]).status == 409


def test_anothers_cluster_is_403_and_inside_a_workspace_404() -> None:
    here = market()
    cluster = running(here, ["a1", "a2"])[0]["cluster_id"]
    refusal = refusal_of(here.delete_cluster, BOB, cluster)
    assert (refusal.status, refusal.message) == (403, "You do not have permission to access this pod")
    refusal = refusal_of(here.delete_cluster, ANA_TEAM, cluster)
    assert (refusal.status, refusal.message) == (404, "Cluster not found")
    assert refusal_of(here.delete_cluster, ANA, "e4a2c9d1-7b60-4c35-9f18-6d0b8a3e5c77").status == 404
    assert refusal_of(here.get_pod, BOB, members(here)[0]["id"]).status == 403
    assert statuses(here) == ["RUNNING", "RUNNING"]


def test_members_can_be_deleted_one_by_one() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    assert here.delete_pod(ANA, rows[0]["id"]) == {"success": True, "message": "Pod deletion started"}
    assert here.delete_pod(ANA, rows[0]["id"])["message"] == "Pod deletion is in progress"
    here.advance_to(here.now + 60)
    assert [row["cluster_node_index"] for row in members(here)] == [1]
    assert refusal_of(here.delete_pod, ANA, rows[0]["id"]).status == 404


def test_a_failed_row_can_be_deleted() -> None:
    here = market()
    here.apply_event({"event": "pod_fails", "rank": 0})
    rows = running(here, ["a1", "a2"])
    assert statuses(here) == ["CREATION_FAILED", "RUNNING"]
    order(here, ["a1", "a3"], BOB)
    assert {success for _, success, _ in remove(here, rows[0]["cluster_id"])} == {True}
    here.advance_to(here.now + 5)
    assert members(here) == []
    assert {row["id"]: row["free_gpus"] for row in here.state()["hosts"]}["a1"] == 0, "it is another's by now"


# Scheduled removal ----------------------------------------------------------------------------------------------------


def at(seconds: float) -> dict[str, str]:
    return {"removal_scheduled_at": iso(START + seconds)}


def test_a_pod_is_removed_at_its_time_and_the_last_time_set_counts() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    first, second = (row["id"] for row in rows)
    here.schedule_removal(ANA, first, at(500))
    here.schedule_removal(ANA, first, at(1000))
    here.schedule_removal(ANA, second, at(800))
    here.cancel_removal(ANA, second)
    assert members(here)[0]["removal_scheduled_at"] == at(1000)["removal_scheduled_at"]
    assert members(here)[1]["removal_scheduled_at"] is None
    here.advance_to(START + 999)
    assert statuses(here) == ["RUNNING", "RUNNING"]
    here.advance_to(START + 1000)
    assert statuses(here) == ["DELETING", "RUNNING"]
    assert refusal_of(here.schedule_removal, ANA, first, at(2000)).status == 409
    here.advance_to(START + 1005)
    assert statuses(here) == ["RUNNING"]


def test_of_very_many_times_set_the_last_counts_and_the_others_are_forgotten() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    often, once = (row["id"] for row in rows)
    here.schedule_removal(ANA, once, at(2000))
    for i in range(1000):
        here.schedule_removal(ANA, often, at(10_000 + i))
    here.schedule_removal(ANA, often, at(1000))
    assert len(here._state.agenda) < 600
    here.advance_to(START + 999)
    assert statuses(here) == ["RUNNING", "RUNNING"]
    here.advance_to(START + 1000)
    assert statuses(here) == ["DELETING", "RUNNING"]
    here.advance_to(START + 1999)
    assert statuses(here) == ["RUNNING"]
    here.advance_to(START + 2000)
    assert statuses(here) == ["DELETING"]


def test_a_time_may_be_set_while_a_pod_starts_and_a_past_one_removes_at_once() -> None:
    here = market()
    order(here, ["a1", "a2"])
    pods = [row["id"] for row in members(here)]
    here.schedule_removal(ANA, pods[0], at(10))
    here.schedule_removal(ANA, pods[1], at(-100))
    here.advance_to(START + 0.001)
    assert statuses(here) == ["PENDING", "DELETING"]
    here.advance_to(START + 15)
    assert members(here) == []
    assert here.state()["ledger"] == []


@pytest.mark.parametrize("text", ["", "tomorrow", 5, None, "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_422(text: Any) -> None:
    here = market()
    pod = rent(here, "lone")
    assert refusal_of(here.schedule_removal, ANA, pod, {"removal_scheduled_at": text}).status == 422


@pytest.mark.parametrize("text", ["2026-09-21T16:00:00Z", "2026-09-21T16:00:00", "2026-09-21T18:00:00+02:00"])
def test_times_with_and_without_a_zone_are_one(text: str) -> None:
    here = market()
    pod = rent(here, "lone")
    here.schedule_removal(ANA, pod, {"removal_scheduled_at": text})
    assert here.get_pod(ANA, pod)["removal_scheduled_at"] == "2026-09-21T16:00:00Z"


def test_times_at_the_edge_of_the_calendar_are_taken() -> None:
    here = market()
    late, early = rent(here, "lone"), rent(here, "whole")
    for pod, text in ((late, "9999-12-31T23:59:59-23:59"), (early, "0001-01-01T00:00:00+23:59")):
        here.schedule_removal(ANA, pod, {"removal_scheduled_at": text})
    here.advance_to(START + 60)
    assert [(row["id"], row["removal_scheduled_at"]) for row in here.list_pods(ANA)] == [(late, "9999-12-31T23:59:59Z")]


def test_a_refused_scheduled_removal_is_tried_again() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.apply_event({"event": "refuse_delete", "pod": rows[0]["id"]})
    here.schedule_removal(ANA, rows[0]["id"], at(100))
    here.advance_to(START + 159)
    assert statuses(here)[0] == "RUNNING"
    here.advance_to(START + 160)
    assert statuses(here)[0] == "DELETING"
