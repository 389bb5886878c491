"""What pods do as time goes on, what they cost, and how they end (contract 3.3, 7.3, 7.5, 7.6)."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from pulumi_lium.emulator.events import EventError
from pulumi_lium.emulator.market import Market
from tests.support.market import (
    ANA,
    BOB,
    START,
    balance,
    charged,
    market,
    members,
    order,
    refusal_of,
    remove,
    running,
    statuses,
)

HOUR = 3600.0


# Money ----------------------------------------------------------------------------------------------------------------


def test_starting_is_free_and_running_bills_by_the_second() -> None:
    here = market()
    order(here, ["a1", "a2"])
    here.advance_to(START + 30)
    assert balance(here) == 1000.0
    assert here.state()["ledger"] == []
    here.advance_to(START + 30 + HOUR)
    cluster = members(here)[0]["cluster_id"]
    here.delete_cluster(ANA, cluster)
    assert balance(here) == 1000.0 - 2 * 16.0
    here.advance_to(START + 3 * HOUR)
    assert balance(here) == 1000.0 - 2 * 16.0


def test_debits_come_every_five_minutes() -> None:
    here = market(boot={"seconds": [0, 0]})
    running(here, ["a1", "a2"])
    here.advance_to(START + 299)
    assert balance(here) == 1000.0
    here.advance_to(START + 300)
    assert balance(here) == pytest.approx(1000.0 - 2 * 16.0 / 12)
    here.advance_to(START + 1500)
    rows = here.state()["ledger"]
    assert len(rows) == 10
    assert {(row["from"], row["to"]) for row in rows[:2]} == {("2026-09-21T14:13:20Z", "2026-09-21T14:18:20Z")}
    assert {row["account"] for row in rows} == {"ana"}


@pytest.mark.parametrize("seed", range(6))
def test_who_is_debited_first_does_not_hang_on_who_came_up_first(seed: int) -> None:
    here = market(seed=seed, boot={"seconds": [5, 90]})
    order(here, ["a1", "a2", "a3"])
    here.advance_to(START + 100)
    stored = Market.restore(json.loads(json.dumps(here.snapshot())))
    for one in (here, stored):
        one.advance_to(START + 1000)
    assert stored.snapshot() == here.snapshot()


def test_one_long_step_and_many_short_ones_cost_the_same() -> None:
    one, many = market(), market()
    for here in (one, many):
        order(here, ["a1", "a2", "a3"])
    one.advance_to(START + 10_000)
    for second in range(0, 10_001, 7):
        many.advance_to(START + second)
    many.advance_to(START + 10_000)
    assert one.state() == many.state()


def test_the_ledger_explains_the_balance_and_no_second_is_charged_twice() -> None:
    here = market(boot={"seconds": [3.3, 77.7]})
    for start, nodes in ((0.0, ["a1", "a2"]), (123.45, ["r1", "r2", "r3"])):
        here.advance_to(START + start)
        order(here, nodes)
    here.advance_to(START + 4567.891)
    for cluster in {row["cluster_id"] for row in members(here)}:
        here.delete_cluster(ANA, cluster)
    assert round((1000.0 - balance(here)) * 1e6) == charged(here, "ana")
    for pod in here.state()["pods"]:
        rows = [row for row in here.state()["ledger"] if row["pod"] == pod["id"]]
        assert all(first["to"] == second["from"] for first, second in pairwise(rows))
        assert pod["charged_usd"] == pytest.approx(sum(row["usd"] for row in rows), abs=1e-9)


def test_an_emptied_account_goes_on() -> None:
    here = market()
    running(here, ["a1", "a2"])
    here.apply_event({"event": "balance", "account": "ana", "balance": 0.5})
    here.advance_to(here.now + HOUR)
    assert balance(here) < 0
    assert statuses(here) == ["RUNNING", "RUNNING"]
    assert round((1000.0 - balance(here)) * 1e6) == charged(here, "ana"), "the event's change is a row too"


def test_a_workspaces_pods_are_charged_to_its_owner() -> None:
    here = market()
    running(here, ["a1", "a2"], "sk_bob_team")
    here.advance_to(here.now + HOUR)
    assert balance(here, BOB) == 1000.0
    assert balance(here, ANA) < 1000.0


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_failed_start_is_listed_for_three_minutes_and_frees_its_machine() -> None:
    here = market()
    order(here, ["a1", "a2"])
    pods = members(here)
    here.advance_to(START + 10)
    here.apply_event({"event": "pod_fails", "pod": pods[1]["id"], "reason": "no active RDMA port"})
    assert statuses(here) == ["PENDING", "CREATION_FAILED"]
    here.advance_to(START + 189)
    assert statuses(here) == ["RUNNING", "CREATION_FAILED"]
    here.advance_to(START + 190)
    assert statuses(here) == ["RUNNING"]
    assert {row["pod"] for row in here.state()["ledger"]} <= {pods[0]["id"]}
    assert order(here, ["a2", "a3"], BOB).committed
    last = here.pod_events(ANA, pods[1]["id"])[-1]
    assert (last["event_type"], last["from_status"], last["to_status"], last["detail"]) == (
        "pod-lifecycle",
        "PENDING",
        "CREATION_FAILED",
        "no active RDMA port",
    )


def test_an_event_by_rank_waits_for_the_next_order() -> None:
    here = market()
    here.apply_event({"event": "pod_fails", "rank": 1, "pod_name": "train", "reason": "driver"})
    order(here, ["r1", "r2"], pod_name="other")
    order(here, ["a1", "a2"])
    here.advance_to(START + 30)
    by_name = {(row["pod_name"], row["cluster_node_index"]): row["status"] for row in here.list_pods(ANA)}
    assert by_name == {
        ("other", 0): "RUNNING",
        ("other", 1): "RUNNING",
        ("train", 0): "RUNNING",
        ("train", 1): "CREATION_FAILED",
    }
    order(here, ["a3", "a4"])
    here.advance_to(START + 60)
    assert [row["status"] for row in members(here)].count("CREATION_FAILED") == 1, "it happened once"


def test_a_stuck_pod_stays_pending_and_overdue() -> None:
    here = market()
    here.apply_event({"event": "pod_stuck", "rank": 0})
    order(here, ["a1", "a2"])
    here.advance_to(START + 10 * HOUR)
    row = members(here)[0]
    assert (row["status"], row["estimated_ready_seconds"], row["phase"]) == ("PENDING", 0, "configuring ssh")
    assert row["id"] not in {entry["pod"] for entry in here.state()["ledger"]}
    remove(here, row["cluster_id"])
    here.advance_to(here.now + 60)
    assert members(here) == []


def test_a_lost_pod_vanishes_without_a_word() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 330)
    here.apply_event({"event": "pod_lost", "cluster": rows[0]["cluster_id"], "rank": 1})
    assert [row["cluster_node_index"] for row in members(here)] == [0]
    spent = [row["usd"] for row in here.state()["ledger"] if row["pod"] == rows[1]["id"]]
    assert sum(spent) == pytest.approx(16.0 / 12)


def test_a_lost_machine_breaks_its_pod_which_is_credited() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 30 + HOUR)
    here.apply_event({"event": "machine_lost", "host": "a2"})
    assert statuses(here) == ["RUNNING", "BROKEN"]
    broken = [row for row in here.state()["ledger"] if row["pod"] == rows[1]["id"]]
    assert sum(round(row["usd"] * 1e6) for row in broken) == 0
    assert broken[-1]["kind"] == "credit"
    for act in (here.reboot_pod, here.cancel_removal):
        assert refusal_of(act, ANA, rows[1]["id"]).status == 400
    here.advance_to(here.now + HOUR)
    assert statuses(here) == ["RUNNING", "BROKEN"], "only a delete ends it"
    assert remove(here, rows[0]["cluster_id"]) == [(0, True, "Pod deletion started"), (1, True, "Pod deletion started")]
    assert round((1000.0 - balance(here)) * 1e6) == charged(here, "ana")


def test_a_machine_lost_under_a_start_fails_it() -> None:
    here = market()
    order(here, ["a1", "a2"])
    here.apply_event({"event": "machine_lost", "host": "a1"})
    assert statuses(here) == ["CREATION_FAILED", "PENDING"]


def test_a_reboot_bills_through() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.reboot_pod(ANA, rows[0]["id"])
    assert members(here)[0]["status"] == "REBOOT_PENDING"
    assert members(here)[0]["estimated_ready_seconds"] == 30
    here.advance_to(START + 60)
    assert statuses(here) == ["RUNNING", "RUNNING"]
    here.advance_to(START + 30 + HOUR)
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    assert balance(here) == 1000.0 - 32.0


def test_a_pod_whose_reboot_failed_goes_on_billing() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.reboot_pod(ANA, rows[0]["id"])
    here.apply_event({"event": "pod_fails", "pod": rows[0]["id"], "reason": "no active RDMA port"})
    assert statuses(here) == ["REBOOT_FAILED", "RUNNING"]
    assert len(here.state()["billing"]["pods"]) == 2
    here.advance_to(START + 30 + HOUR)
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    assert balance(here) == 1000.0 - 32.0


def test_events_that_mean_nothing_change_nothing() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    before = here.snapshot()
    for event in (
        {"event": "pod_fails", "pod": "nobody"},
        {"event": "pod_stuck", "pod": rows[0]["id"]},
        {"event": "refuse_delete", "cluster": "nobody", "rank": 0},
        {"event": "pod_fails", "cluster": rows[0]["cluster_id"], "rank": 7},
        {"event": "balance", "account": "nobody", "balance": 1},
        {"event": "machine_lost", "host": "nobody"},
        {"event": "rival_order", "fabric": "nobody"},
        {"event": "rival_order", "fabric": "ib", "nodes": 3},
        {"event": "pod_fails"},
        {"event": "earthquake"},
        {"event": "balance", "account": "ana"},
        {"event": "balance", "account": "ana", "balance": float("nan")},
        {"event": "machine_lost", "host": "a1", "why": "x"},
        {"event": "machine_lost", "host": "a1", "at_s": 3},
        {},
    ):
        with pytest.raises(EventError):
            here.apply_event(event)
    assert here.snapshot() == before


def test_time_never_runs_back() -> None:
    here = market()
    here.advance_to(START + 100)
    here.advance_to(START + 50)
    assert here.now == START + 100


def test_next_due_tells_what_comes_next() -> None:
    here = market(events=[{"at_s": 1000, "event": "machine_taken", "host": "a1"}])
    assert here.next_due() == START + 1000
    order(here, ["a1", "a2"])
    assert here.next_due() == START + 30
    here.advance_to(START + 30)
    assert here.next_due() == START + 300
