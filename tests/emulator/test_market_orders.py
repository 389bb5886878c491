"""Orders: all or nothing, refusals, idempotency (contract 4.8, 4.11, 7.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.emulator.market import Market
from pulumi_lium.emulator.refusal import Refusal
from tests.support.market import (
    ANA,
    ANA_TEAM,
    BOB,
    CLUSTER_TEMPLATE,
    OTHER_TEMPLATE,
    fabric_market,
    host,
    market,
    members,
    order,
    order_body,
    rent,
    running,
)


def refused(here: Market, nodes: Any, key: str = ANA, idempotency: str | None = None, **more: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        order(here, nodes, key, idempotency, **more)
    return caught.value


def nothing_is_rented(here: Market) -> bool:
    return here.list_pods(ANA) == [] and all(item["free_gpus"] == 8 for item in here.state()["hosts"])


def test_members_share_id_and_name_and_are_ranked_in_the_orders_order() -> None:
    here = market()
    reply = order(here, ["a3", "a1", "a2"])
    assert reply.committed
    assert reply.headers == {}
    rows = members(here)
    assert [row["id"] for row in rows] == reply.body["pod_ids"]
    assert [row["executor"]["id"] for row in rows] == ["a3", "a1", "a2"]
    assert [row["cluster_node_index"] for row in rows] == [0, 1, 2]
    assert [row["cluster_overlay_ip"] for row in rows] == ["10.42.0.1", "10.42.0.2", "10.42.0.3"]
    assert len({row["cluster_id"] for row in rows}) == 1
    assert {(row["pod_name"], row["status"], row["price"], row["gpu_count"]) for row in rows} == {
        ("train", "PENDING", 16.0, "8")
    }
    assert {row["ssh_connect_cmd"] for row in rows} == {None}


def test_a_start_shows_phases_and_an_estimate_and_ends_with_ssh() -> None:
    here = market()
    order(here, ["a1", "a2"])
    seen = []
    for _ in range(7):
        row = members(here)[0]
        seen.append((row["status"], row["phase"], row["estimated_ready_seconds"], row["eta_basis"]))
        here.advance_to(here.now + 5)
    assert seen[0] == ("PENDING", "queued", 30, "class_median")
    assert [eta for _, _, eta, _ in seen[:6]] == [30, 25, 20, 15, 10, 5]
    assert seen[5][1] == "mounting encrypted volume"
    assert seen[6] == ("RUNNING", None, None, None)
    row = members(here)[0]
    address = row["executor"]["executor_ip_address"]
    assert row["ssh_connect_cmd"] == f"ssh root@{address} -p 20022"
    assert row["ports_mapping"] == {"22": 20022}


def test_rows_answered_before_stay_as_they_were() -> None:
    here = market()
    order(here, ["a1", "a2"])
    before = members(here)[0]
    copy = dict(before)
    here.advance_to(here.now + 40)
    here.delete_cluster(ANA, before["cluster_id"])
    assert members(here)[0]["status"] == "DELETING"
    assert before == copy


def test_ports_asked_for_are_mapped_and_too_many_are_refused() -> None:
    here = market()
    rows = running(here, ["a1", "a2"], initial_port_count=3)
    assert sorted(rows[0]["ports_mapping"].values()) == [20022, 20023, 20024]
    assert refused(here, ["a3", "a4"], initial_port_count=41).status == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"executor_uuids": ["a1"]}, "executor_uuids"),
        ({"executor_uuids": ["a1", "a1"]}, "executor_uuids"),
        ({"executor_uuids": "a1"}, "executor_uuids"),
        ({"executor_uuids": [f"n{i}" for i in range(255)]}, "executor_uuids"),
        ({"user_public_key": []}, "user_public_key"),
        ({"user_public_key": "ssh-ed25519 AAAA"}, "user_public_key"),
        ({"user_public_key": ["  "]}, "user_public_key"),
        ({"pod_name": None}, "pod_name"),
        ({"template_id": None}, "template_id"),
        ({"initial_port_count": 0}, "initial_port_count"),
        ({"initial_port_count": True}, "initial_port_count"),
        ({"initial_port_count": 2.5}, "initial_port_count"),
        ({"enable_backups": "yes"}, "enable_backups"),
    ],
)
def test_a_bad_body_is_422_and_names_the_field(change: dict[str, Any], field: str) -> None:
    here = market()
    with pytest.raises(Refusal) as caught:
        here.order_cluster(ANA, order_body(["a1", "a2"]) | change, "key")
    assert caught.value.status == 422
    assert [fault["field"] for fault in caught.value.violations or []] == [field]
    assert nothing_is_rented(here)


def test_flags_may_be_absent_and_a_whole_float_is_a_whole_number() -> None:
    here = market()
    body = order_body(["a1", "a2"], initial_port_count=2.0)
    for flag in ("enable_volume_encryption", "enable_backups"):
        del body[flag]
    assert here.order_cluster(ANA, body).committed
    assert {row["enable_volume_encryption"] for row in members(here)} == {True}


def test_what_the_service_declines_with_200() -> None:
    here = market()
    for nodes, more, text in (
        (["a1", "r1"], {}, "share one fabric"),
        (["lone", "whole"], {}, "share one fabric"),
        (["a1", "a2"], {"template_id": OTHER_TEMPLATE}, "cluster image"),
    ):
        reply = order(here, nodes, **more)
        assert reply.body["success"] is False
        assert text in reply.body["message"]
        assert not reply.committed
    assert nothing_is_rented(here)


def test_a_split_host_is_declined_with_the_known_text() -> None:
    wire = [{"name": "ib", "type": "infiniband", "subnet_manager": "0x3"}]
    here = fabric_market(wire, [host("a1", "ib"), host("a2", "ib", free_gpus=4), host("a3", "ib", gpu_count=4)])
    assert order(here, ["a1", "a2"]).body == {"success": False, "message": "A cluster rental must take whole nodes"}
    assert "alike" in order(here, ["a1", "a3"]).body["message"]


def test_closed_and_unproven_nodes_are_declined_though_their_ids_are_known() -> None:
    closed = {"name": "ib", "type": "infiniband", "subnet_manager": "0x3", "udp_51820": "closed"}
    roce = {"name": "roce", "type": "roce", "segment": "10.0.0.0/24", "measured": {"pairs": [["r1", "r2", 9.0]]}}
    hosts = [*(host(f"a{i}", "ib") for i in (1, 2)), *(host(f"r{i}", "roce") for i in (1, 2, 3))]
    here = fabric_market([closed, roce], hosts)
    assert "51820" in order(here, ["a1", "a2"]).body["message"]
    assert "not been measured" in order(here, ["r1", "r3"]).body["message"]
    assert order(here, ["r1", "r2"]).committed


def test_unknown_and_taken_nodes_and_templates() -> None:
    here = market()
    order(here, ["a1", "a2"], BOB)
    assert (refused(here, ["a3", "zz"]).status, refused(here, ["a3", "zz"]).message) == (404, "Executor not found")
    missing = refused(here, ["a3", "a4"], template_id="5d0c6c3b-7a1f-4a53-9c0e-000000000000")
    assert (missing.status, missing.message) == (404, "Template not found")
    taken = refused(here, ["a3", "a1"])
    assert (taken.status, taken.code) == (409, "executor_already_rented")
    assert taken.envelope("req-1")["message"]["executor_id"] == "a1"
    here.apply_event({"event": "machine_lost", "host": "a4"})
    assert refused(here, ["a3", "a4"]).status == 409
    assert here.list_pods(ANA) == []


def test_a_host_that_refuses_mid_order_rolls_the_whole_order_back() -> None:
    here = market()
    here.apply_event({"event": "refuse_order", "host": "a3", "reason": "no ports left"})
    refusal = refused(here, ["a1", "a2", "a3", "a4"])
    assert (refusal.status, refusal.message) == (409, "no ports left")
    assert nothing_is_rented(here)
    gone = here.state()["pods"]
    assert [(row["status"], row["gone_at"] is not None) for row in gone] == [("DELETED", True)] * 2
    assert here.state()["ledger"] == []
    here.advance_to(here.now + 1000)
    assert nothing_is_rented(here)
    assert order(here, ["a1", "a2", "a3", "a4"]).committed, "it refused once"


def test_the_feature_flag_stops_orders_and_not_deletes() -> None:
    here = market(settings={"cluster_feature": False})
    assert refused(here, ["a1", "a2"]).status == 404


# Idempotency ----------------------------------------------------------------------------------------------------------


def test_the_same_key_replays_the_first_answer_and_rents_nothing() -> None:
    here = market()
    first = order(here, ["a1", "a2"], idempotency="k")
    again = order(here, ["a1", "a2"], idempotency="k")
    assert again.body == first.body
    assert again.headers == {"Idempotent-Replayed": "true"}
    assert not again.committed
    assert len(here.list_pods(ANA)) == 2


def test_refusals_of_both_kinds_are_replayed() -> None:
    here = market()
    order(here, ["a1", "a2"], BOB)
    first = refused(here, ["a1", "a3"], idempotency="taken")
    rows = running(here, ["a3", "a4"], BOB)
    here.delete_cluster(BOB, rows[0]["cluster_id"])
    here.advance_to(here.now + 60)
    again = refused(here, ["a1", "a3"], idempotency="taken")
    assert (again.status, again.code, again.data) == (first.status, first.code, first.data)
    assert again.headers == {"Idempotent-Replayed": "true"}
    declined = order(here, ["a1", "r1"], idempotency="declined")
    assert order(here, ["a1", "r1"], idempotency="declined") == (declined.body, again.headers, False)


def test_keys_are_per_account() -> None:
    here = market()
    order(here, ["a1", "a2"], ANA, "k")
    assert order(here, ["a3", "a4"], BOB, "k").committed
    assert order(here, ["a1", "a2"], ANA, "k").headers


def test_the_same_key_with_another_body_is_422() -> None:
    here = market()
    order(here, ["a1", "a2"], idempotency="k")
    assert refused(here, ["a3", "a4"], idempotency="k").status == 422
    with pytest.raises(Refusal) as caught:
        here.rent_host(ANA, "lone", {"pod_name": "x", "user_public_key": ["k"]}, "k")
    assert caught.value.code == "idempotency_key_reused"


def test_what_is_remembered_does_not_follow_the_callers_lists() -> None:
    here = market()
    body = order_body(["a1", "a2"])
    here.order_cluster(ANA, body, "k")
    body["executor_uuids"][:] = ["a3", "a4"]
    with pytest.raises(Refusal, match="422"):
        here.order_cluster(ANA, body, "k")


def test_a_record_lasts_24_hours() -> None:
    here = market()
    here.apply_event({"event": "balance", "account": "ana", "balance": 10_000.0})
    rows = running(here, ["a1", "a2"])
    order(here, ["a3", "a4"], idempotency="k")
    here.advance_to(here.now + 86_399)
    assert order(here, ["a3", "a4"], idempotency="k").headers
    here.advance_to(here.now + 1)
    assert refused(here, ["a3", "a4"], idempotency="k").code == "executor_already_rented"
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    here.advance_to(here.now + 60)
    assert order(here, ["a1", "a2"], idempotency="other").committed


def test_an_unrecorded_outcome_is_in_progress_and_then_unknown() -> None:
    here = market()
    here.order_cluster(ANA, order_body(["a1", "a2"]), "k", lose_outcome=True)
    assert len(here.list_pods(ANA)) == 2
    assert refused(here, ["a1", "a2"], idempotency="k").code == "idempotency_in_progress"
    here.advance_to(here.now + 299)
    assert refused(here, ["a1", "a2"], idempotency="k").code == "idempotency_in_progress"
    here.advance_to(here.now + 1)
    unknown = refused(here, ["a1", "a2"], idempotency="k")
    assert (unknown.status, unknown.code) == (409, "idempotency_outcome_unknown")
    here.advance_to(here.now + 86_100)
    assert refused(here, ["a1", "a2"], idempotency="k").code == "executor_already_rented", "after 24 h it is a new rent"


def test_a_lost_refusal_is_unknown_too() -> None:
    here = market()
    order(here, ["a1", "a2"], BOB)
    with pytest.raises(Refusal, match="executor_already_rented"):
        here.order_cluster(ANA, order_body(["a1", "a2"]), "k", lose_outcome=True)
    assert refused(here, ["a1", "a2"], idempotency="k").code == "idempotency_in_progress"


def test_a_held_key_is_in_progress_until_its_request_runs() -> None:
    here = market()
    here.hold_idempotency_key(ANA, "k")
    assert refused(here, ["a1", "a2"], idempotency="k").code == "idempotency_in_progress"
    here.release_idempotency_key(ANA, "k")
    first = order(here, ["a1", "a2"], idempotency="k")
    here.hold_idempotency_key(ANA, "k")
    here.release_idempotency_key(ANA, "k")
    assert order(here, ["a1", "a2"], idempotency="k").body == first.body, "a known outcome stays known"


def test_a_replay_can_be_refused_for_money_that_the_first_order_had() -> None:
    here = market()
    order(here, ["a1", "a2"], idempotency="k")
    here.apply_event({"event": "balance", "account": "ana", "balance": 9.0})
    refusal = refused(here, ["a1", "a2"], idempotency="k")
    assert (refusal.status, refusal.code) == (403, "insufficient_balance")
    assert len(here.list_pods(ANA)) == 2


def test_without_the_feature_the_key_means_nothing() -> None:
    here = market(settings={"idempotency": False})
    assert here.version()["features"] == []
    order(here, ["a1", "a2"], idempotency="k")
    assert refused(here, ["a1", "a2"], idempotency="k").code == "executor_already_rented"
    assert "rent_idempotency" in market().version()["features"]


# Single pods ----------------------------------------------------------------------------------------------------------


def test_a_host_is_rented_by_the_gpu_where_it_allows_it() -> None:
    here = market()
    first, second = rent(here, "lone", gpu_count=3), rent(here, "lone", gpu_count=5)
    here.advance_to(here.now + 30)
    rows = {row["id"]: row for row in here.list_pods(ANA)}
    assert (rows[first]["price"], rows[first]["gpu_count"]) == (6.0, "3")
    assert rows[first]["cluster_id"] is None
    assert rows[first]["ssh_connect_cmd"] != rows[second]["ssh_connect_cmd"]
    assert "lone" not in {row["id"] for row in here.executors({})}
    with pytest.raises(Refusal) as caught:
        rent(here, "lone", gpu_count=1)
    assert caught.value.status == 409
    here.delete_pod(ANA, first)
    here.advance_to(here.now + 60)
    assert {row["id"]: row["available_gpu_count"] for row in here.executors({})}["lone"] == 3


@pytest.mark.parametrize(("name", "gpus"), [("whole", 4), ("lone", 9)])
def test_impossible_shares_are_refused(name: str, gpus: int) -> None:
    with pytest.raises(Refusal) as caught:
        rent(market(), name, gpu_count=gpus)
    assert caught.value.status == 400


def test_a_single_rent_keeps_its_key_and_its_end() -> None:
    here = market()
    body = {"pod_name": "solo", "user_public_key": ["k"], "termination_hours": 2}
    first = here.rent_host(ANA, "lone", body, "k")
    assert here.rent_host(ANA, "lone", body, "k") == (first.body, {"Idempotent-Replayed": "true"}, False)
    here.advance_to(here.now + 7199)
    [row] = here.list_pods(ANA)
    assert row["removal_scheduled_at"] is not None
    assert row["template"]["docker_image"] == "daturaai/pytorch"
    here.advance_to(here.now + 6)
    assert here.list_pods(ANA) == []


def test_a_broken_pods_node_is_not_rented_again_before_the_pod_is_deleted() -> None:
    here = market()
    pod = rent(here, "lone", gpu_count=2)
    here.advance_to(here.now + 60)
    here.apply_event({"event": "machine_lost", "host": "lone"})
    here.apply_event({"event": "machine_back", "host": "lone"})
    with pytest.raises(Refusal) as caught:
        rent(here, "lone", gpu_count=2)
    assert caught.value.status == 400
    here.delete_pod(ANA, pod)
    here.advance_to(here.now + 60)
    assert rent(here, "lone", gpu_count=2)


def test_private_templates_are_their_owners() -> None:
    here = market()
    mine = here.create_template(ANA, {"name": "mine", "docker_image": "daturaai/lium-cluster"})["id"]
    assert refused(here, ["a1", "a2"], BOB, template_id=mine).status == 404
    assert order(here, ["a1", "a2"], template_id=mine).committed
    assert order(here, ["a3", "a4"], ANA_TEAM, template_id=CLUSTER_TEMPLATE).committed
