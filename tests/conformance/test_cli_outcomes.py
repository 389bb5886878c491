"""Every code and exit of `lium clusters …` that the service causes (contract 8, 11), and the routes beside it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.conformance.client import Cli, requests, scenario, whole_fabric
from tools.emulator import Emulator

ORDER = "POST /executors/cluster/rent"
UP = ("--nodes", "2", "-n", "t", "-y", "--format", "json")


def up(emulator: Emulator, cli: Cli, *options: str) -> Any:
    return cli("clusters", "up", whole_fabric(emulator), *UP, *options)


@pytest.mark.parametrize(
    ("code", "body", "exit_code", "error"),
    [
        (403, None, 6, "permission_denied"),
        (404, None, 5, "cluster_not_found"),
        (409, None, 3, "conflict"),
        (503, None, 3, "server_error"),
        (200, {"success": True, "pods": []}, 3, None),
    ],
    ids=str,
)
def test_each_answer_to_a_removal(
    emulator: Emulator, cli: Cli, code: int, body: object, exit_code: int, error: str | None
) -> None:
    cluster = up(emulator, cli, "--no-wait").json
    emulator.fault("DELETE /clusters/*", "status", code=code, **({} if body is None else {"body": body}))
    result = cli("clusters", "rm", cluster["id"], "-y", "--format", "json")
    assert result.exit == exit_code, result.stderr
    assert error in (None, result.error["code"])
    assert [call for call in requests(emulator) if call.startswith("DELETE")] == [f"DELETE /clusters/{cluster['id']}"]
    assert {pod["status"] for pod in emulator.state()["pods"]} != {"DELETING"}, "it stands as it was"


def test_a_rate_limit_that_stays_is_told(emulator: Emulator, cli: Cli) -> None:
    emulator.fault("GET /executors/infiniband-clusters", "status", code=429, times=0)
    result = cli("clusters", "--format", "json")
    assert (result.exit, result.error["code"]) == (3, "rate_limited")
    assert len(requests(emulator)) == 3


def test_a_member_that_dies_while_the_command_waits(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [0, 0]}))
    emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    result = up(emulator, cli)
    assert (result.exit, result.error["code"]) == (3, "cluster_member_failed")
    statuses = {pod["cluster_node_index"]: pod["status"] for pod in emulator.state()["pods"]}
    assert statuses == {0: "RUNNING", 1: "CREATION_FAILED"}, "no roll-back: the other one bills"
    assert len(emulator.billing()["pods"]) == 1


def test_a_start_beyond_the_timeout(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [3600, 3600]}))
    result = up(emulator, cli, "--timeout", "1")
    assert (result.exit, result.error["code"]) == (3, "cluster_not_ready")
    assert len(emulator.state()["pods"]) == 2


def test_without_the_cluster_image_nothing_is_ordered(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(templates=[{"name": "Plain", "docker_image": "ubuntu", "docker_image_tag": "24.04"}]))
    result = up(emulator, cli)
    assert (result.exit, result.error["code"]) == (3, "not_found")
    assert "daturaai/lium-cluster" in result.error["message"]
    assert ORDER not in requests(emulator)


def test_a_named_template_ports_and_no_backup(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [0, 0]}))
    with urllib.request.urlopen(emulator.base_url + "/templates", timeout=10) as answer:
        template = next(row["id"] for row in json.load(answer) if row["docker_image"] == "daturaai/lium-cluster")
    before = len(requests(emulator))
    result = up(emulator, cli, "-t", template, "-p", "4", "--no-backup")
    assert result.exit == 0, result.stderr
    assert "GET /templates" not in requests(emulator)[before:]
    pods = emulator.state()["pods"]
    assert {pod["template"]["id"] for pod in pods} == {template}
    assert {len(pod["ports_mapping"]) for pod in pods} == {4}


def test_a_fabric_by_its_unique_prefix(emulator: Emulator, cli: Cli) -> None:
    offers = [offer["fabric_id"] for offer in cli("clusters", "--format", "json").json]
    wanted = offers[0]
    length = next(n for n in range(1, len(wanted) + 1) if sum(o.startswith(wanted[:n]) for o in offers) == 1)
    ambiguous = cli("clusters", "up", wanted[: length - 1], *UP, "--no-wait")
    assert (ambiguous.exit, ambiguous.error["code"]) == (5, "fabric_not_found")
    assert ORDER not in requests(emulator)
    ordered = cli("clusters", "up", wanted[:length], *UP, "--no-wait")
    assert ordered.exit == 0, ordered.stderr
    assert len(emulator.state()["pods"]) == 2


def test_ssh_to_a_member_that_is_not_up(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [3600, 3600]}))
    member = up(emulator, cli, "--no-wait").json["pods"][0]
    assert cli("ssh", member["id"]).exit == 4


def test_a_quote(emulator: Emulator, cli: Cli) -> None:
    host = next(host for host in emulator.state()["hosts"] if host.get("fabric") is None)
    quoted = cli("quote", host["id"], "--hours", "2", "--format", "json")
    assert quoted.exit == 0, quoted.stderr
    assert quoted.json["hours"] == 2
    assert quoted.json["total_usd"] == pytest.approx(2 * quoted.json["price_per_hour"])
    assert f"GET /executors/{host['id']}/quote" in requests(emulator)


def test_the_workspace_that_a_key_acts_in(emulator: Emulator, cli: Cli) -> None:
    listed = cli("workspaces", "list", key="sk_emulator_research")
    assert listed.exit == 0, listed.stderr
    name = next(
        key["workspace"] for account in scenario()["accounts"] for key in account["keys"] if key.get("workspace")
    )
    assert name in listed.stdout
    assert "GET /workspaces" in requests(emulator)
    without = cli("workspaces", "list")
    assert without.exit == 3
    assert "not enabled" in without.stdout


def test_a_pod_is_described_and_its_end_too(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [0, 0]}, settings={"delete_seconds": 0}))
    member = up(emulator, cli).json["pods"][0]
    shown = cli("describe", member["id"], "--json")
    assert shown.exit == 0, shown.stderr
    assert member["id"] in shown.stdout
    assert f"GET /pods/{member['id']}" in requests(emulator)
    assert cli("clusters", "rm", "t", "-y").exit == 0
    gone = cli("describe", member["id"], "--json")
    assert gone.exit == 0, gone.stderr
    assert f"GET /pods/{member['id']}/events" in requests(emulator)


def test_a_pod_is_rebooted_and_its_log_read(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [0, 0]}))
    member = up(emulator, cli).json["pods"][1]
    logged = cli("logs", member["id"])
    assert logged.exit == 0, logged.stderr
    assert f"GET /pods/{member['id']}/logs" in requests(emulator)
    rebooted = cli("reboot", member["id"])
    assert rebooted.exit == 0, rebooted.stdout + rebooted.stderr
    assert requests(emulator)[-1] == f"POST /pods/{member['id']}/reboot"
    assert len(emulator.billing()["pods"]) == 2, "a reboot bills through"
