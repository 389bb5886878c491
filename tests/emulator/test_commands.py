"""`pulumi-lium offers` and `doctor` as a person runs them, against the emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.clusters import lost_cluster, market
from tools.emulator import Emulator

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(lium_env: dict[str, str], tmp_path: Path) -> Command:
    """Runs `pulumi-lium` with the emulator's key and address, other variables over them."""

    def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulumi_lium.cli", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lium_env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_offers_shows_each_fabric_with_its_price(command: Command) -> None:
    shown = command("offers", "--nodes", "4", "--gpu-type", "h100")
    assert shown.returncode == 0, shown.stderr
    heading, *lines = shown.stdout.splitlines()
    assert heading.split()[-3:] == ["4", "nodes", "location"]
    (dallas,) = [line for line in lines if "Dallas" in line]
    assert "8 × H100" in dallas
    assert "4 of 4" in dallas
    assert "$66.40/h" in dallas, "the sum of its four machines"
    assert "Oslo" not in shown.stdout, "that fabric has two machines"


def test_offers_as_json_are_the_plain_data_of_get_offers(command: Command) -> None:
    shown = command("offers", "--fabric-type", "infiniband", "--max-price-per-hour", "35", "--json")
    (offer,) = json.loads(shown.stdout)
    assert offer["fabric_type"] == "infiniband"
    assert offer["free_count"] == offer["node_count"] == 4
    assert offer["price_per_hour"] == 32.0
    assert len(offer["machines"]) == 2


def test_offers_of_the_machines_that_a_program_names(command: Command) -> None:
    (dallas, *_) = json.loads(command("offers", "--nodes", "4", "--gpu-type", "H100", "--json").stdout)
    ids = [machine["id"] for machine in reversed(dallas["machines"][1:])]
    (offer,) = json.loads(command("offers", "--machines", ",".join(ids), "--json").stdout)
    assert [machine["id"] for machine in offer["machines"]] == ids, "these, in this order"
    assert offer["price_per_hour"] == sum(machine["price_per_hour"] for machine in dallas["machines"][1:])
    heading = command("offers", "--machines", ", ".join(ids)).stdout.splitlines()[0]
    assert "3 nodes" in heading
    short = command("offers", "--machines", ",".join(ids), "--nodes", "2")
    assert short.returncode == 2
    assert "names 3 machines for 2 nodes" in short.stderr


def test_offers_and_doctor_of_a_named_account(command: Command, lium_env: dict[str, str]) -> None:
    env = {"LIUM_API_KEY": "sk_unknown_0123456789", "LIUM_API_KEY_TEAM_A": lium_env["LIUM_API_KEY"]}
    assert json.loads(command("offers", "--account", "team-a", "--json", env=env).stdout)
    assert _findings(command("doctor", "--account", "team-a", "--json", env=env))["API key"]["status"] == "OK"
    missing = command("offers", "--account", "team-b", env=env)
    assert missing.returncode == 2
    assert "LIUM_API_KEY_TEAM_B" in missing.stderr


def test_offers_says_why_nothing_fits(command: Command) -> None:
    shown = command("offers", "--gpu-type", "B200")
    assert shown.returncode == 0
    assert "B200" in shown.stdout
    assert "Closest" in shown.stdout
    assert json.loads(command("offers", "--gpu-type", "B200", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "env", "code", "said"),
    [
        (["offers", "--nodes", "1"], {}, 2, "nodes"),
        (["offers", "--nodes", "two"], {}, 2, "--nodes"),
        (["offers", "--fabric-type", "token-ring"], {}, 2, "fabric_type"),
        (["offers"], {"LIUM_API_KEY": ""}, 2, "LIUM_API_KEY"),
        (["offers"], {"LIUM_BASE_URL": "lium.example"}, 2, "LIUM_BASE_URL"),
        (["offers"], {"LIUM_BASE_URL": "http://127.0.0.1:1/api"}, 1, "cannot be reached"),
        (["offers"], {"LIUM_API_KEY": "sk_unknown_0123456789"}, 3, "Set a valid key"),
    ],
)
def test_exit_codes_tell_wrong_use_refusal_and_failure_apart(
    command: Command, arguments: list[str], env: dict[str, str], code: int, said: str
) -> None:
    shown = command(*arguments, env=env)
    assert shown.returncode == code
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr
    assert "sk_unknown" not in shown.stderr + shown.stdout


def test_a_gateway_error_is_a_failure_and_not_a_refusal(command: Command, emulator: Emulator) -> None:
    emulator.fault("GET /executors/infiniband-clusters", "status", times=0, code=502)
    assert command("offers").returncode == 1


def _findings(shown: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in json.loads(shown.stdout)}


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """A PATH with programs that say what the Pulumi CLI of a version says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("pulumi", "echo v3.250.0"), ("pulumi-language-python", "true")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_doctor_finds_nothing_wrong_where_nothing_is(command: Command, tools: dict[str, str]) -> None:
    shown = command("doctor", "--json", env=tools)
    assert shown.returncode == 0, shown.stdout
    findings = _findings(shown)
    assert {finding["status"] for finding in findings.values()} == {"OK"}
    assert "$10,000.00" in findings["balance"]["observed"]
    assert findings["running pods"]["observed"] == "nothing bills"
    assert command("doctor", env=tools).returncode == 0


def test_doctor_names_what_would_stop_an_order(command: Command, emulator: Emulator, tmp_path: Path) -> None:
    shown = command("doctor", "--json", env={"LIUM_API_KEY": "sk_unknown_0123456789", "PATH": str(tmp_path)})
    assert shown.returncode == 1
    findings = _findings(shown)
    assert findings["API key"]["status"] == "MUST_FIX"
    assert findings["pulumi CLI"]["status"] == "MUST_FIX"
    assert "sk_unknown" not in shown.stdout


@pytest.mark.parametrize(("balance", "nodes", "status"), [(3, 0, "MUST_FIX"), (15, 0, "OK"), (15, 2, "MUST_FIX")])
def test_doctor_says_when_the_balance_stops_every_order(
    command: Command, emulator: Emulator, tools: dict[str, str], balance: float, nodes: int, status: str
) -> None:
    """A pair is $32.00 an hour: with nothing open more than $8.00 are needed, with such a pair more than $16.00."""
    scenario = market()
    scenario["accounts"][0]["balance"] = balance
    emulator.reset(scenario)
    if nodes:
        lost_cluster(emulator, "open")
    shown = command("doctor", "--json", env=tools)
    found = _findings(shown)["balance"]
    assert (found["status"], shown.returncode) == (status, int(status != "OK"))
    assert f"${balance}.00; the cheapest cluster on sale ($32.00 an hour)" in found["observed"]
    assert f"(${16 * nodes}.00 an hour)" in found["observed"]


def test_doctor_does_not_call_unreadable_good(command: Command, emulator: Emulator, tools: dict[str, str]) -> None:
    emulator.fault("GET /templates", "not_json", times=0)
    shown = command("doctor", "--json", env=tools)
    assert shown.returncode == 1
    assert _findings(shown)["cluster template"]["status"] == "UNKNOWN"
