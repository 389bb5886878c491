"""`--json` of every command: one document on standard output, also where the command fails (design 4.2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from pulumi_lium.commands import COMMANDS, JSON_FLAG, group
from tests.support.cli_stub import PulumiStub
from tests.support.clusters import live, lost_cluster, market
from tools.emulator import Emulator

Command = Callable[..., "subprocess.CompletedProcess[str]"]
UNKNOWN_KEY = "sk_unknown_0123456789"


@pytest.fixture
def command(lium_env: dict[str, str], tmp_path: Path) -> Command:
    """Runs `pulumi-lium` with the emulator's key and address, other variables over them."""

    def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulumi_lium.cli", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lium_env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_every_command_has_it() -> None:
    for name in COMMANDS:
        made = group.get_command(click.Context(group), name)
        assert made is not None
        assert any(JSON_FLAG in parameter.opts for parameter in made.params), name


@pytest.mark.parametrize(
    ("arguments", "env", "exit_code", "error"),
    [
        (["offers"], {"LIUM_API_KEY": UNKNOWN_KEY}, 3, {"code": "invalid_api_key", "status": 401}),
        (["offers"], {"LIUM_API_KEY": ""}, 2, {"code": "no_api_key"}),
        (["offers"], {"LIUM_BASE_URL": "http://127.0.0.1:1/api"}, 1, {"code": "transport_error"}),
        (["offers", "--nodes", "1"], {}, 2, {"code": "invalid_inputs"}),
        (["offers", "--nodes", "two"], {}, 2, {"code": "wrong_use", "hint": "See `pulumi-lium offers --help`."}),
        (["offers", "--account", "nobody"], {}, 2, {"code": "no_api_key"}),
        (["sweep"], {"LIUM_API_KEY": UNKNOWN_KEY}, 1, {"code": "nothing_known"}),
        (["sweep", "--stack-export", "none.json"], {}, 2, {"code": "wrong_use"}),
        (["sweep", "--name-prefix", " "], {}, 2, {"code": "wrong_use"}),
        (["extend"], {}, 2, {"code": "wrong_use"}),
        (["extend", "no-such-cluster", "--ttl", "8h"], {}, 1, {"code": "gone"}),
        (["extend", "no-such-cluster", "--ttl", "8 parsecs"], {}, 2, {"code": "wrong_use"}),
        (["recover"], {}, 2, {"code": "wrong_use"}),
        (["teardown", "--cwd", "/nowhere", "--stack", "dev"], {}, 2, {"code": "wrong_use"}),
        (["recover", "--stack", "dev"], {"PATH": "/nowhere"}, 1, {}),
        (["emulator", "--port", "99999"], {}, 2, {"code": "wrong_use"}),
        (["emulator", "--port", "0", "--state", "/nowhere/market.db"], {}, 1, {"code": "failed"}),
        (["emulate"], {}, 2, {"code": "wrong_use"}),
    ],
    ids=str,
)
def test_an_error_is_a_document_with_what_to_do(
    command: Command, arguments: list[str], env: dict[str, str], exit_code: int, error: dict[str, Any]
) -> None:
    shown = command(*arguments, "--json", env=env)
    document = json.loads(shown.stdout)
    assert set(document) == {"error"}
    told = document["error"]
    assert {**told, **error} == told
    assert told["code"]
    assert told["message"].rstrip(".").splitlines()[0] in shown.stderr, "a person reads the same"
    assert told["hint"] or exit_code == 1 or told["code"] == "invalid_inputs", "what to do"
    assert (shown.returncode, told["exit_code"]) == (exit_code, exit_code)
    assert "Traceback" not in shown.stderr
    assert UNKNOWN_KEY not in shown.stdout + shown.stderr


def test_a_teardown_without_the_engine_sweeps_and_knows_that_it_knows_nothing(command: Command) -> None:
    shown = command("teardown", "--stack", "dev", "--json", env={"PATH": "/nowhere"})
    document = json.loads(shown.stdout)
    assert (shown.returncode, document["known"], document["may_bill"], document["removed"]) == (1, False, [], [])
    (failure,) = document["failures"]
    assert failure == "The Pulumi CLI is not on PATH [code no_pulumi]. Install it, or mend PATH."
    assert "The stack dev was kept" in shown.stderr


def test_a_service_that_fails_is_told_with_its_request(command: Command, emulator: Emulator) -> None:
    emulator.fault("GET /executors/infiniband-clusters", "status", times=0, code=502)
    shown = command("offers", "--json")
    error = json.loads(shown.stdout)["error"]
    assert (shown.returncode, error["status"], error["exit_code"]) == (1, 502, 1)
    assert error["request_id"].startswith("req-")
    assert error["hint"]
    assert error["outcome_unknown"] is False, "a look changes nothing"


def test_the_emulator_tells_its_address(command: Command) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pulumi_lium.cli", "emulator", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            base_url = json.loads(process.stdout.readline())["base_url"]
            shown = command("offers", "--json", env={"LIUM_BASE_URL": base_url})
            assert json.loads(shown.stdout)
        finally:
            process.kill()


def test_recover_keeps_the_state_that_alone_tells_of_a_cluster(
    command: Command, emulator: Emulator, tmp_path: Path
) -> None:
    """The name was chosen by a person: whether the create ordered the cluster, it does not tell."""
    emulator.reset(market())
    cluster_id = lost_cluster(emulator, "train")
    resource = {
        "urn": "urn:pulumi:dev::web::pulumi-python:dynamic/lium:Cluster::train",
        "inputs": {"name": "train", "nodes": 2, "owner": "acme/web/dev/train"},
    }
    document = {"deployment": {"pending_operations": [{"type": "creating", "resource": resource}]}}
    stub = PulumiStub(tmp_path / "bin", stack_export={"stdout": json.dumps(document)})
    (tmp_path / "Pulumi.yaml").write_text("name: web\nruntime: python\n")
    path = f"{stub.folder}{os.pathsep}{os.environ['PATH']}"
    done = command("recover", "--cwd", str(tmp_path), "--stack", "dev", "--yes", "--json", env={"PATH": path})
    assert done.returncode == 4, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["changed"], [step["action"] for step in told["may_bill"]]) == (False, ["leave"])
    assert told["may_bill"][0]["cluster_id"] == cluster_id
    assert stub.imported is None
    assert "Nothing was changed" in done.stderr
    assert len(live(emulator)) == 2
