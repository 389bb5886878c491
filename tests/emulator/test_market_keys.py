"""Who may do what, and what may be spent (contract 1.2, 1.5, 2.2, 4.2 to 4.6, 4.11, 4.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pulumi_lium.emulator.market import Market, load_scenario
from tests.support.market import (
    ANA,
    ANA_READER,
    ANA_RENTER,
    ANA_TEAM,
    BILLER,
    BOB,
    BOB_TEAM,
    CLUSTER_TEMPLATE,
    OTHER_TEMPLATE,
    PUBLIC_KEY,
    START,
    market,
    members,
    order,
    order_body,
    refusal_of,
    rent,
    running,
)

Act = Callable[[Market, str | None], Any]
READS: dict[str, Act] = {
    "offers": lambda here, key: here.offers(key),
    "list_pods": lambda here, key: here.list_pods(key),
    "me": lambda here, key: here.me(key),
    "ssh_keys": lambda here, key: here.ssh_keys(key),
    "workspaces": lambda here, key: here.workspaces(key),
    "quote": lambda here, key: here.quote(key, "lone", {}),
}
RENTS: dict[str, Act] = {
    "order_cluster": lambda here, key: here.order_cluster(key, order_body(["a1", "a2"])),
    "rent_host": lambda here, key: here.rent_host(key, "lone", {"pod_name": "x", "user_public_key": [PUBLIC_KEY]}),
    "create_ssh_key": lambda here, key: here.create_ssh_key(key, {"name": "k", "public_key": PUBLIC_KEY}),
}


@pytest.mark.parametrize("act", [*READS.values(), *RENTS.values()], ids=[*READS, *RENTS])
@pytest.mark.parametrize("key", [None, "", "sk_wrong"])
def test_no_key_and_a_wrong_key_are_401_and_not_repeated(act: Act, key: str | None) -> None:
    refusal = refusal_of(act, market(), key)
    assert (refusal.status, refusal.code) == (401, "invalid_api_key")
    assert "sk_wrong" not in str(refusal.envelope("req-1"))


@pytest.mark.parametrize("name", READS)
def test_reading_needs_the_read_scope(name: str) -> None:
    here = market()
    READS[name](here, ANA_READER)
    refusal = refusal_of(READS[name], here, BILLER)
    assert (refusal.status, refusal.code) == (403, "missing_scope")
    assert "does not have the 'read' scope" in refusal.message


@pytest.mark.parametrize("name", RENTS)
def test_renting_needs_the_rent_scope(name: str) -> None:
    here = market()
    RENTS[name](here, ANA_RENTER)
    assert "does not have the 'rent' scope" in refusal_of(RENTS[name], here, ANA_READER).message


def test_what_answers_without_a_key() -> None:
    here = market()
    assert here.executors({})
    assert here.machines() == [{"name": "NVIDIA H100 80GB HBM3"}]
    assert [row["scope"] for row in here.key_scopes()] == ["read", "rent", "manage", "billing"]
    assert {row["id"] for row in here.templates(None)} == {CLUSTER_TEMPLATE, OTHER_TEMPLATE}
    assert here.version()["version"]


def test_manage_is_needed_only_for_what_the_key_did_not_make() -> None:
    here = market()
    mine = running(here, ["a1", "a2"], ANA_RENTER)
    theirs = [row for row in running(here, ["a3", "a4"], ANA) if row["api_key_id"] == "key-ana"]
    for act in (
        lambda: here.delete_cluster(ANA_RENTER, theirs[0]["cluster_id"]),
        lambda: here.delete_pod(ANA_RENTER, theirs[0]["id"]),
        lambda: here.cancel_removal(ANA_RENTER, theirs[0]["id"]),
        lambda: here.reboot_pod(ANA_RENTER, theirs[0]["id"]),
    ):
        refusal = refusal_of(act)
        assert (refusal.status, refusal.code) == (403, "missing_scope")
        assert "'manage'" in refusal.message
    assert here.delete_cluster(ANA_RENTER, mine[0]["cluster_id"])["success"]
    assert here.delete_cluster(ANA, theirs[0]["cluster_id"])["success"]


def test_one_foreign_member_stops_the_delete_of_all() -> None:
    """Ownership and scope of every member come before the first delete (contract 7.5.2)."""
    here = market()
    cluster = running(here, ["a1", "a2"], ANA)[0]["cluster_id"]
    assert refusal_of(here.delete_cluster, ANA_READER, cluster).code == "missing_scope"
    assert {row["status"] for row in members(here)} == {"RUNNING"}


def test_pods_can_be_listed_by_key() -> None:
    here = market()
    order(here, ["a1", "a2"], ANA)
    order(here, ["a3", "a4"], ANA_RENTER)
    assert len(here.list_pods(ANA)) == 4
    rows = here.list_pods(ANA, {"api_key_id": "key-ana"})
    assert [row["api_key_name"] for row in rows] == ["main", "main"]


# Workspaces -----------------------------------------------------------------------------------------------------------


def test_a_workspace_key_acts_in_its_workspace_alone() -> None:
    here = market()
    order(here, ["a1", "a2"], ANA)
    order(here, ["a3", "a4"], BOB_TEAM)
    assert {row["executor"]["id"] for row in here.list_pods(ANA_TEAM)} == {"a3", "a4"}
    assert {row["executor"]["id"] for row in here.list_pods(ANA)} == {"a1", "a2"}
    assert here.list_pods(BOB) == []
    place = here.me(BOB_TEAM)["workspace"]
    assert (place["name"], place["role"], place["billing_owner_user_id"]) == ("Team", "member", "ana")
    assert {row["workspace_id"] for row in here.list_pods(ANA_TEAM)} == {place["id"]}
    assert "workspace" not in here.me(BOB)
    assert [row["name"] for row in here.workspaces(ANA_TEAM)] == ["Team"]
    assert here.workspaces(ANA) == []
    assert here.get_workspace(ANA_TEAM, place["id"])["role"] == "owner"
    people = here.workspace_members(ANA_TEAM, place["id"])
    assert [(row["user_id"], row["is_billing_owner"]) for row in people] == [("ana", True), ("bob", False)]
    assert refusal_of(here.get_workspace, ANA, place["id"]).status == 404


def test_a_workspaces_pods_are_403_from_outside() -> None:
    here = market()
    order(here, ["a3", "a4"], ANA_TEAM)
    cluster = here.list_pods(ANA_TEAM)[0]["cluster_id"]
    assert refusal_of(here.delete_cluster, ANA, cluster).status == 403


# Money ----------------------------------------------------------------------------------------------------------------


def test_a_rental_needs_more_than_15_minutes_of_it_and_of_every_open_pod() -> None:
    here = market()
    here.apply_event({"event": "balance", "account": "ana", "balance": 8.0})
    refusal = refusal_of(order, here, ["a1", "a2"])
    assert (refusal.status, refusal.code, refusal.message) == (403, "insufficient_balance", "Insufficient balance")
    text = refusal.envelope("req-1")["message"]
    assert "requires at least $8.00" in text
    assert "balance is $8.00" in text
    here.apply_event({"event": "balance", "account": "ana", "balance": 8.01})
    order(here, ["a1", "a2"])
    assert "requires at least $12.00" in refusal_of(rent, here, "lone").envelope("req-1")["message"]
    assert order(here, ["a3", "a4"], BOB).committed


def test_pods_that_will_not_bill_ask_for_no_balance() -> None:
    here = market()
    rows = running(here, ["a1", "a2"])
    here.delete_pod(ANA, rows[0]["id"])
    here.apply_event({"event": "machine_lost", "host": "a2"})
    here.apply_event({"event": "balance", "account": "ana", "balance": 4.01})
    assert {row["status"] for row in members(here)} == {"DELETING", "BROKEN"}
    assert rent(here, "lone")


def budget_market(budget: dict[str, float]) -> Market:
    keys = [{"key": ANA, "id": "key-ana", "budget": budget}, {"key": ANA_RENTER}]
    return market(accounts=[{"id": "ana", "balance": 1e6, "keys": keys}])


@pytest.mark.parametrize("window", ["daily", "monthly", "max"])
def test_a_spent_budget_is_402_with_its_window(window: str) -> None:
    here = budget_market({window: 32.0})
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 30 + 3599)
    assert order(here, ["r1", "r2"]).committed
    here.advance_to(START + 30 + 3600)
    refusal = refusal_of(order, here, ["r3", "r4"])
    assert (refusal.status, refusal.code) == (402, "API_KEY_BUDGET_EXCEEDED")
    assert refusal.envelope("req-1")["message"] == {
        "message": f"{window} budget reached",
        "window": window,
        "budget_usd": 32.0,
        "spent_usd": pytest.approx(32.0, abs=0.1),
        "api_key_id": "key-ana",
    }
    assert order(here, ["r3", "r4"], ANA_RENTER).committed, "budgets are per key"
    pod = rows[0]["id"]
    soon, late = "2026-09-22T00:00:00Z", "2026-09-23T00:00:00Z"
    here.schedule_removal(ANA, pod, {"removal_scheduled_at": soon})
    for act in (
        lambda: here.schedule_removal(ANA, pod, {"removal_scheduled_at": late}),
        lambda: here.cancel_removal(ANA, pod),
    ):
        assert refusal_of(act).status == 402, "it would run longer"


def test_a_daily_budget_is_new_the_next_day() -> None:
    here = budget_market({"daily": 32.0})
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 2 * 3600)
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    assert refusal_of(order, here, ["a3", "a4"]).status == 402
    here.advance_to(START + 24 * 3600)
    assert order(here, ["a3", "a4"]).committed


def test_what_was_spent_yesterday_does_not_count_today() -> None:
    here = budget_market({"daily": 40.0})
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 3600)  # $32 on the first day
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    here.advance_to(START + 24 * 3600)
    rows = running(here, ["a1", "a2"])
    here.advance_to(START + 25 * 3600)  # and $32 on the second
    assert order(here, ["a3", "a4"]).committed


# Rate limit -----------------------------------------------------------------------------------------------------------


def test_sixty_listings_a_minute_for_each_account() -> None:
    here = market()
    for second in range(60):
        here.advance_to(START + second * 0.5)
        here.list_pods(ANA if second % 2 else ANA_READER)
    refusal = refusal_of(here.list_pods, ANA)
    assert (refusal.status, refusal.code) == (429, "rate_limited")
    wait = int(refusal.headers["Retry-After"])
    assert here.list_pods(BOB) == []
    here.advance_to(here.now + wait - 1)
    here.advance_to(here.now + 1)
    assert here.list_pods(ANA) == []


def test_the_rate_limit_can_be_switched_off() -> None:
    here = market(settings={"rate_limit": False})
    for _ in range(200):
        here.list_pods(ANA)


# Around clusters ------------------------------------------------------------------------------------------------------


def test_ssh_keys_are_registered_once() -> None:
    here = market()
    first = here.create_ssh_key(ANA, {"name": "one", "public_key": PUBLIC_KEY + "\n"})
    assert here.create_ssh_key(ANA, {"name": "two", "public_key": PUBLIC_KEY}) == first
    assert here.ssh_keys(ANA) == [first]
    assert here.ssh_keys(BOB) == []
    assert refusal_of(here.create_ssh_key, ANA, {"name": "x"}).status == 422


def test_templates_are_made_seen_and_changed_by_their_owner() -> None:
    here = market()
    row = here.create_template(ANA, {"name": "mine", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "1"})
    assert (row["status"], row["user_id"], row["internal_ports"], row["readme"]) == (
        "CREATED",
        "ana",
        [22, 8000],
        "mine",
    )
    assert here.get_template(ANA, row["id"]) == row
    assert row["id"] not in {template["id"] for template in here.templates(BOB)}
    assert refusal_of(here.get_template, BOB, row["id"]).status == 404
    changed = here.update_template(ANA, row["id"], {"docker_image_tag": "2", "id": "stolen"})
    assert (changed["id"], changed["docker_image_tag"], changed["status"]) == (row["id"], "2", "UPDATED")
    assert row["docker_image_tag"] == "1"
    assert refusal_of(here.update_template, BOB, CLUSTER_TEMPLATE, {"name": "x"}).status == 403
    assert refusal_of(here.get_template, ANA, "not-a-uuid").status == 422
    assert refusal_of(here.get_template, ANA, CLUSTER_TEMPLATE[:-1] + "f").status == 404
    assert refusal_of(here.create_template, ANA, {"name": "x"}).status == 422


def test_executors_are_filtered_as_the_contract_says() -> None:
    here = Market(load_scenario(None), START)
    names = "NVIDIA GeForce RTX 4090,NVIDIA H200"
    rows = here.executors({"view": "summary", "machine_names": names})
    assert {row["machine_name"] for row in rows} == set(names.split(","))
    four = here.executors({"machine_names": names, "gpu_count_gte": "4", "gpu_count_lte": "4"})
    assert [row["gpu_count"] for row in four] == [4]
    assert all(row["nvlink"] for row in here.executors({"nvlink": "true"}))
    for bad in ("x", "nan", "inf"):
        assert refusal_of(here.executors, {"gpu_count_gte": bad}).status == 422


def test_a_quote_adds_up() -> None:
    here = market()
    quote = here.quote(ANA, "lone", {"hours": "2.5", "gpu_count": "4"})
    assert (quote["price_per_hour"], quote["total_usd"], quote["allocation"]) == (8.0, 20.0, "partial")
    assert quote["pod_balance_floor_usd"] == 2.0
    order(here, ["a1", "a2"])
    assert here.quote(ANA, "lone", {})["rent_balance_required_usd"] == 8.0 + 4.0
    assert refusal_of(here.quote, ANA, "nobody", {}).status == 404
    for bad in ({"hours": "0"}, {"gpu_count": "9"}, {"gpu_count": "1.5"}, {"hours": "nan"}):
        assert refusal_of(here.quote, ANA, "lone", bad).status == 422


def test_the_ordinary_paths_helpers() -> None:
    here = market()
    assert here.default_docker_images(None, {}) == [{"docker_image": "daturaai/pytorch", "docker_image_tag": "latest"}]
    estimate = here.deployment_estimate(ANA, {"executor_id": "lone", "template_id": OTHER_TEMPLATE})
    assert estimate["estimated_seconds"] == 30
    assert refusal_of(here.deployment_estimate, ANA, {}).status == 404
    pod = rent(here, "lone")
    assert here.get_pod(ANA, pod)["last_event"]["event_type"] == "pod-create"
    assert "PENDING" in here.pod_logs(ANA, pod)
    assert here.volumes(ANA) == []


def test_state_and_refusals_never_show_a_keys_text() -> None:
    here = market()
    order(here, ["a1", "a2"])
    assert "sk_" not in str(here.state())
    assert here.identify(ANA) == "key-ana"
    assert here.identify("sk_wrong") is None
