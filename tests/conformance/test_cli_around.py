"""The ordinary commands around clusters: one pod, accounts, templates, keys (contract 4.11, 5.9)."""

from __future__ import annotations

from tests.conformance.client import Cli, requests, scenario, whole_fabric
from tools.emulator import Emulator


def test_one_pod_up_and_rm(emulator: Emulator, cli: Cli) -> None:
    emulator.reset(scenario(boot={"seconds": [0, 0]}))
    host = next(host for host in emulator.state()["hosts"] if host.get("fabric") is None)
    up = cli("up", host["id"], "-n", "solo", "--ttl", "2h", "--yes", "--no-ssh", "--json")
    assert up.exit == 0, up.stderr
    calls = requests(emulator)
    order = calls.index(f"POST /executors/{host['id']}/rent")
    assert calls[order - 1] == "GET /pods", "the snapshot stands before the order"
    assert "GET /executors/default-docker-image" in calls[:order]
    assert "GET /executors/deployment-estimate" in calls[:order]
    pod = emulator.state()["pods"][0]
    assert (pod["pod_name"], pod["cluster_id"], pod["status"]) == ("solo", None, "RUNNING")
    assert pod["removal_scheduled_at"] is not None

    listed = cli("ps", "--format", "json")
    assert listed.exit == 0, listed.stderr
    assert [row["id"] for row in listed.json] == [pod["id"]]

    assert cli("rm", "solo", "-y").exit == 0
    assert requests(emulator)[-1] == f"DELETE /pods/{pod['id']}"
    assert emulator.state()["pods"][0]["status"] == "DELETING"


def test_a_member_can_be_removed_alone(emulator: Emulator, cli: Cli) -> None:
    up = cli(
        "clusters", "up", whole_fabric(emulator), "--nodes", "2", "-n", "t", "--no-wait", "-y", "--format", "json"
    ).json
    assert cli("rm", up["pods"][1]["id"], "-y").exit == 0
    rows = {pod["cluster_node_index"]: pod["status"] for pod in emulator.state()["pods"]}
    assert rows == {0: "PENDING", 1: "DELETING"}


def test_a_removal_is_scheduled(emulator: Emulator, cli: Cli) -> None:
    up = cli(
        "clusters", "up", whole_fabric(emulator), "--nodes", "2", "-n", "t", "--no-wait", "-y", "--format", "json"
    ).json
    assert cli("rm", up["pods"][0]["id"], "--in", "2h", "-y").exit == 0
    assert requests(emulator)[-1] == f"POST /pods/{up['pods'][0]['id']}/schedule-removal"


def test_reads(emulator: Emulator, cli: Cli) -> None:
    balance = cli("balance")
    assert balance.exit == 0, balance.stderr
    assert "10,000" in balance.stdout or "10000" in balance.stdout
    assert requests(emulator) == ["GET /users/me"]
    whoami = cli("whoami")
    assert whoami.exit == 0, whoami.stderr
    assert "owner@example.com" in whoami.stdout
    templates = cli("templates")
    assert templates.exit == 0, templates.stderr
    assert "Multi-node" in templates.stdout


def test_offers_of_ordinary_machines(emulator: Emulator, cli: Cli) -> None:
    listed = cli("ls", "--gpu", "H100", "--format", "json")
    assert listed.exit == 0, listed.stderr
    assert listed.json
    assert requests(emulator)[:2] == ["GET /machines", "GET /executors"]


def test_browsing_needs_no_key(emulator: Emulator, cli: Cli) -> None:
    listed = cli("ls", "--format", "json", key="")
    assert listed.exit == 0, listed.stderr
    assert listed.json


def test_ssh_keys_are_registered_once(emulator: Emulator, cli: Cli) -> None:
    assert cli("ssh-keys", "sync").exit == 0
    assert cli("ssh-keys", "sync").exit == 0
    listed = cli("ssh-keys", "list")
    assert listed.exit == 0, listed.stderr
    assert "cli-" in listed.stdout
    assert requests(emulator).count("POST /ssh-keys") == 1
