"""`lium clusters …` end to end: calls, JSON and exit codes (contract 5 and 11)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.client import H100, OWNER_KEY, Cli, Result, requests, scenario, whole_fabric
from tools.emulator import Emulator

INSTANT = {"seconds": [0, 0]}
LISTING = "GET /executors/infiniband-clusters"
ORDER = "POST /executors/cluster/rent"

OFFER_KEYS = {
    "fabric_id", "fabric_type", "link_rate", "fabric_measured", "node_count", "free_count", "gpu_type", "gpus_per_node",
    "price_per_node_hour", "nodes",
}  # fmt: skip
NODE_KEYS = {"id", "huid", "gpu_type", "gpu_count", "price_per_hour", "country", "tier"}
CLUSTER_KEYS = {"id", "name", "status", "size", "master_addr", "price_per_hour", "hostfile", "pods"}
MEMBER_KEYS = {
    "id", "huid", "name", "status", "node_rank", "overlay_ip", "ssh_cmd", "host", "ssh_port", "ports", "gpu_type",
    "gpu_count", "price_per_hour",
}  # fmt: skip


def fabric(cli: Cli, **wanted: Any) -> dict[str, Any]:
    """The first offer that has what is wanted."""
    offers = cli("clusters", "--format", "json").json
    return next(offer for offer in offers if all(offer[key] == value for key, value in wanted.items()))


def test_listing(emulator: Emulator, cli: Cli) -> None:
    result = cli("clusters", "--format", "json")
    assert result.exit == 0
    offers = result.json
    assert requests(emulator) == [LISTING]
    assert all(set(offer) == OFFER_KEYS for offer in offers)
    assert all(set(node) == NODE_KEYS for offer in offers for node in offer["nodes"])
    whole = [offer for offer in offers if offer["free_count"] == offer["node_count"] == 4]
    assert any(offer["gpu_type"] == H100 and offer["gpus_per_node"] == 8 for offer in whole)
    assert {offer["fabric_type"] for offer in offers} == {"infiniband", "roce"}
    assert all(offer["free_count"] >= 2 for offer in offers)
    assert all(offer["price_per_node_hour"] == min(n["price_per_hour"] for n in offer["nodes"]) for offer in offers)
    oslo = [offer for offer in offers if offer["nodes"][0]["country"] == "Norway"]
    assert {offer["gpu_type"] for offer in oslo} == {"H100", "H200"}, "a fabric with two models makes two offers"


def test_an_empty_listing_is_no_error(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(providers=[]))
    result = cli("clusters", "--format", "json")
    assert (result.exit, result.json) == (0, [])


def test_up_ps_show_rm(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot=INSTANT))
    offer = fabric(cli, free_count=4)
    ordered = cli("clusters", "up", "1", "--nodes", "2", "-n", "train", "--yes", "--format", "json")
    assert ordered.exit == 0, ordered.stderr
    cluster = ordered.json
    assert set(cluster) == CLUSTER_KEYS | {"removal_scheduled_at"}
    assert all(set(pod) == MEMBER_KEYS for pod in cluster["pods"])
    assert (cluster["name"], cluster["status"], cluster["size"]) == ("train", "RUNNING", 2)
    assert cluster["master_addr"] == "10.42.0.1"
    assert cluster["removal_scheduled_at"] is None
    assert [(pod["node_rank"], pod["overlay_ip"]) for pod in cluster["pods"]] == [(0, "10.42.0.1"), (1, "10.42.0.2")]
    assert all(re.fullmatch(r"ssh root@\S+ -p \d+", pod["ssh_cmd"]) for pod in cluster["pods"])
    cheapest = sorted(node["price_per_hour"] for node in offer["nodes"])[:2]
    assert cluster["price_per_hour"] == pytest.approx(sum(cheapest))

    calls = requests(emulator)
    assert calls[1:7] == [LISTING, "GET /ssh-keys", "POST /ssh-keys", "GET /templates", "GET /pods", ORDER]
    assert set(calls[7:]) == {"GET /pods"}
    order = next(row for row in emulator.journal() if row["path"] == "/executors/cluster/rent")
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", order["idempotency_key"]
    )
    assert order["committed"] is True

    assert fabric(cli, fabric_id=offer["fabric_id"])["free_count"] == 2
    assert [row["id"] for row in cli("clusters", "ps", "--format", "json").json] == [cluster["id"]]
    assert cli("clusters", "show", "train", "--format", "json").json["id"] == cluster["id"]
    assert cli("clusters", "show", cluster["id"][:8], "--hostfile").stdout.split("\n")[:2] == [
        "10.42.0.1 slots=8",
        "10.42.0.2 slots=8",
    ]
    assert cli("clusters", "show", "train", "--torchrun", "1").stdout.strip() == (
        "--nnodes 2 --node_rank 1 --master_addr 10.42.0.1 --master_port 29500"
    )

    removed = cli("clusters", "rm", "train", "-y", "--format", "json")
    assert removed.exit == 0, removed.stderr
    assert (removed.json["ok"], removed.json["error"]) == (True, None)
    assert [row["node_rank"] for row in removed.json["results"]] == [0, 1]
    assert {row["message"] for row in removed.json["results"]} == {"Pod deletion started"}
    assert requests(emulator)[-1] == f"DELETE /clusters/{cluster['id']}"


def test_removing_what_is_gone_finds_nothing(emulator: Emulator, cli: Cli) -> None:
    result = cli("clusters", "rm", "train", "-y", "--format", "json")
    assert (result.exit, result.error["code"]) == (5, "cluster_not_found")
    assert "DELETE" not in " ".join(requests(emulator))


def test_ttl_is_set_on_every_member_before_any_waiting(emulator: Emulator, cli: Cli) -> None:
    ordered = up(emulator, cli, "--nodes", "3", "--ttl", "2h")
    assert ordered.exit == 0, ordered.stderr
    assert ordered.json["removal_scheduled_at"] is not None
    assert ordered.json["status"] == "PENDING"
    assert all(pod["ssh_cmd"] is None and pod["ssh_port"] == 22 for pod in ordered.json["pods"])
    members = [pod["id"] for pod in ordered.json["pods"]]
    assert requests(emulator)[-3:] == [f"POST /pods/{pod}/schedule-removal" for pod in members]
    assert all(pod["removal_scheduled_at"] for pod in emulator.state()["pods"])

    listed = cli("schedules", "list")
    assert listed.exit == 0, listed.stderr
    assert cli("schedules", "rm", "1").exit == 0
    assert sum(pod["removal_scheduled_at"] is None for pod in emulator.state()["pods"]) == 1


def test_a_member_without_its_ttl_is_named(emulator: Emulator, cli: Cli) -> None:
    emulator.fault("POST /pods/*/schedule-removal", "status", code=404, after=1)
    ordered = up(emulator, cli, "--ttl", "2h")
    assert ordered.exit == 3
    assert ordered.json["ok"] is False
    assert [row["node_rank"] for row in ordered.json["unscheduled"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("clusters", "up", "no-such-fabric", "--nodes", "2", "-n", "t", "-y"), 5, "fabric_not_found"),
        (("clusters", "up", "FABRIC", "--nodes", "5", "-n", "t", "-y"), 1, "not_enough_nodes"),
        (("clusters", "up", "FABRIC", "--nodes", "2", "-n", "t"), 2, "confirmation_required"),
        (("clusters", "up", "FABRIC", "--nodes", "1", "-n", "t", "-y"), 2, "invalid_arguments"),
        (("clusters", "up", "1", "--nodes", "2", "-n", "t", "-y"), 1, "no_clusters_cached"),
    ],
)
def test_what_the_client_refuses_orders_nothing(
    emulator: Emulator, cli: Cli, arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    named = [whole_fabric(emulator) if argument == "FABRIC" else argument for argument in arguments]
    result = cli(*named, "--format", "json")
    assert (result.exit, result.error["code"]) == (exit_code, code)
    assert ORDER not in requests(emulator)


def test_without_a_key_nothing_is_sent(emulator: Emulator, cli: Cli) -> None:
    result = cli("clusters", "--format", "json", key="")
    assert (result.exit, result.error["code"]) == (2, "no_api_key")
    assert requests(emulator) == []


def test_a_no_at_the_prompt_spends_nothing(emulator: Emulator, cli: Cli) -> None:
    name = whole_fabric(emulator)
    declined = cli.at_a_terminal("clusters", "up", name, "--nodes", "2", "-n", "t", "--format", "json", answers="n\n")
    assert (declined.exit, declined.stdout) == (0, "")
    assert "$" in declined.stderr, "the prompt names the price"
    assert ORDER not in requests(emulator)


def test_a_name_that_looks_like_markup_is_shown_as_it_is(emulator: Emulator, cli: Cli) -> None:
    assert up(emulator, cli, "-n", "j[v2]").exit == 0
    assert {pod["pod_name"] for pod in emulator.state()["pods"]} == {"j[v2]"}
    assert "j[v2]" in cli("clusters", "ps").stdout
    assert cli("clusters", "rm", "j[v2]", "-y").exit == 0
    assert {pod["status"] for pod in emulator.state()["pods"]} == {"DELETING"}


UP = ("--nodes", "2", "-n", "t", "--no-wait", "-y", "--format", "json")


def up(emulator: Emulator, cli: Cli, *options: str, key: str = OWNER_KEY) -> Result:
    """Order two machines of the first fabric, by its id; `options` come last and so win."""
    return cli("clusters", "up", whole_fabric(emulator), *UP, *options, key=key)


@pytest.mark.parametrize(
    ("key", "exit_code", "code"),
    [
        ("sk_nobody", 3, "invalid_api_key"),
        ("sk_emulator_readonly", 6, "missing_scope"),
        ("sk_poor", 6, "insufficient_balance"),
        ("sk_thrifty", 6, "API_KEY_BUDGET_EXCEEDED"),
    ],
)
def test_refusals_by_key(emulator: Emulator, cli: Cli, key: str, exit_code: int, code: str) -> None:
    accounts = [
        *scenario()["accounts"],
        {"id": "poor", "email": "p@example.com", "balance": 3.0, "keys": [{"key": "sk_poor"}]},
        {
            "id": "thrifty",
            "email": "t@example.com",
            "balance": 900.0,
            "keys": [{"key": "sk_thrifty", "budget": {"daily": 0.0}}],
        },
    ]
    emulator.reset(scenario(accounts=accounts))
    result = up(emulator, cli, key=key)
    assert (result.exit, result.error["code"]) == (exit_code, code)
    assert emulator.state()["pods"] == []


def test_a_host_taken_meanwhile_is_a_definite_refusal(emulator: Emulator, cli: Cli) -> None:
    offer = fabric(cli, free_count=4)
    emulator.fault("GET /executors/infiniband-clusters", "stale_list", n=5)
    cheapest = min(offer["nodes"], key=lambda node: (node["price_per_hour"], node["id"]))
    emulator.event("machine_taken", host=cheapest["id"])
    result = up(emulator, cli)
    assert result.exit == 3
    calls = requests(emulator)
    assert calls[-1] == ORDER, "a definite refusal is looked up by nobody"
    assert emulator.state()["pods"] == []


def test_a_member_that_refuses_stays_and_is_removed_the_second_time(emulator: Emulator, cli: Cli) -> None:
    cluster = up(emulator, cli).json
    emulator.event("refuse_delete", cluster=cluster["id"], rank=1, times=1)
    first = cli("clusters", "rm", "t", "-y", "--format", "json")
    assert first.exit == 3
    assert first.json["ok"] is False
    assert [row["success"] for row in first.json["results"]] == [True, False]
    assert first.json["results"][1]["error"].startswith("Pod deletion failed; call again to retry this member")
    second = cli("clusters", "rm", cluster["id"], "-y", "--format", "json")
    assert second.exit == 0, second.stdout + second.stderr
    messages = {row["node_rank"]: row["message"] for row in second.json["results"]}
    assert messages[1] == "Pod deletion started"
    assert messages.get(0, "Pod deletion is in progress") == "Pod deletion is in progress"


def test_a_create_in_flight_is_not_cancelled_where_that_is_off(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(settings={"cancel_in_flight_creates": False}))
    assert up(emulator, cli).exit == 0
    result = cli("clusters", "rm", "t", "-y", "--format", "json")
    assert (result.exit, result.error["code"]) == (3, "conflict")
    assert "still being created" in result.error["message"]
    assert {pod["status"] for pod in emulator.state()["pods"]} == {"PENDING"}


def test_a_member_that_fails_is_reported_and_keeps_the_others(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [3600, 3600]}))
    cluster = up(emulator, cli).json
    emulator.event("pod_fails", pod=cluster["pods"][1]["id"], reason="no active RDMA port")
    shown = cli("clusters", "show", "t", "--format", "json").json
    assert [pod["status"] for pod in shown["pods"]] == ["PENDING", "CREATION_FAILED"]


def test_lost_orders_end_in_one_cluster(emulator: Emulator, cli: Cli) -> None:
    emulator.fault(ORDER, "drop_after_commit")
    ordered = up(emulator, cli)
    assert ordered.exit == 0, ordered.stderr
    rows = [row for row in emulator.journal() if row["path"] == "/executors/cluster/rent"]
    assert [row["status"] for row in rows] == [None, 200]
    assert [row["committed"] for row in rows] == [True, False], "the second was a replay"
    assert len({row["idempotency_key"] for row in rows}) == 1
    assert len(emulator.state()["clusters"]) == 1
    assert "GET /version" in requests(emulator)


def test_lost_orders_are_looked_up_where_replays_are_not_offered(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(settings={"idempotency": False}))
    emulator.fault(ORDER, "status", code=504, body="<h1>504</h1>", commit=True)
    ordered = up(emulator, cli)
    assert ordered.exit == 0, ordered.stderr
    assert requests(emulator).count(ORDER) == 1
    assert [pod["name"] for pod in ordered.json["pods"]] == ["t", "t"]


def test_an_order_that_was_never_made_is_uncertain(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(settings={"idempotency": False}))
    emulator.fault(ORDER, "drop_before_commit")
    result = up(emulator, cli)
    assert (result.exit, result.error["code"]) == (3, "cluster_rent_uncertain")
    assert emulator.state()["pods"] == []


def test_a_member_hidden_too_long_is_rented_but_not_listed(emulator: Emulator, cli: Cli) -> None:
    emulator.fault("GET /pods", "hide_member", rank=1, times=0)
    result = up(emulator, cli)
    assert (result.exit, result.error["code"]) == (3, "cluster_rented_not_listed")
    assert len(emulator.state()["pods"]) == 2
