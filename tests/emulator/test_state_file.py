"""`--state FILE`: what was committed is there after `kill -9` (design 4.3)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from pulumi_lium.emulator.scenario import builtin_scenario
from pulumi_lium.emulator.store import Store, StoreError
from tests.emulator.test_control import KEY, order, order_body, pods, send
from tools.emulator import Emulator

Start = Callable[..., Emulator]


def without_time(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in ("now", "now_s", "clock")}


def test_the_market_survives_a_kill_as_it_was(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    first = start_emulator("--state", str(file), "--clock", "virtual")
    body = order_body(first, "kept")
    answer = send(first, body, "key-1").json()
    first.advance(100)
    requests.post(
        first.base_url + "/ssh-keys", json={"name": "a", "public_key": "ssh-ed25519 AAAA"}, headers=KEY, timeout=10
    )
    first.event("machine_taken", host=body["executor_uuids"][0].replace("b1f01", "b1f04"))
    cluster = pods(first)[0]["cluster_id"]
    requests.delete(f"{first.base_url}/clusters/{cluster}", headers=KEY, timeout=10)
    first.advance(1)
    before = first.state()
    first.kill()

    second = start_emulator("--state", str(file), "--clock", "virtual")
    assert second.state() == before
    assert {pod["status"] for pod in pods(second)} == {"DELETING"}
    replay = send(second, body, "key-1")
    assert (replay.json(), replay.headers["Idempotent-Replayed"]) == (answer, "true")
    second.advance(60)
    assert pods(second) == []
    assert len(second.state()["ledger"]) == 2


def test_an_order_is_on_disk_before_its_answer(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    for number in range(3):
        emulator = start_emulator("--state", str(file))
        assert len(pods(emulator)) == 2 * min(number, 1)
        if number == 0:
            assert order(emulator).status_code == 200
        emulator.kill()


def test_a_torn_transaction_leaves_the_market_before_it(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    emulator = start_emulator("--state", str(file), "--clock", "virtual")
    whole = without_time(emulator.state())
    assert order(emulator).status_code == 200
    emulator.kill()
    log = file.with_name(file.name + "-wal")
    assert log.exists(), "the order stands in the write-ahead log"
    log.write_bytes(log.read_bytes()[:-100])

    again = start_emulator("--state", str(file), "--clock", "virtual")
    assert without_time(again.state()) == whole


def test_the_file_wins_over_the_scenario_and_the_start_says_so(tmp_path: Path, start_emulator: Start) -> None:
    file, scenario = tmp_path / "market.db", tmp_path / "other.yaml"
    scenario.write_text("accounts: [{id: a, email: e@example.com, balance: 1, keys: [{key: sk_mine}]}]")
    first = start_emulator("--state", str(file))
    first.stop()
    second = start_emulator("--state", str(file), "--scenario", str(scenario))
    assert pods(second) == [], "the built-in scenario's key is known"
    assert str(file) in second.errors()
    assert f"{scenario} is not used" in second.errors()


def test_what_a_key_has_spent_survives_a_kill(tmp_path: Path, start_emulator: Start) -> None:
    scenario = yaml.safe_load(builtin_scenario())
    scenario["boot"] = {"seconds": [0, 0]}
    scenario["accounts"][0]["keys"][0]["budget"] = {"daily": 5.0}
    file = tmp_path / "market.db"
    first = start_emulator("--state", str(file), "--clock", "virtual")
    first.reset(scenario)
    assert order(first).status_code == 200
    first.advance(1200)
    requests.delete(f"{first.base_url}/clusters/{pods(first)[0]['cluster_id']}", headers=KEY, timeout=10)
    first.kill()
    second = start_emulator("--state", str(file), "--clock", "virtual")
    second.advance(60)
    refused = order(second)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "API_KEY_BUDGET_EXCEEDED")


def test_a_reset_is_kept_too(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    first = start_emulator("--state", str(file))
    order(first)
    first.reset({"seed": 5, "accounts": [{"id": "a", "email": "e", "balance": 1, "keys": [{"key": "sk_mine"}]}]})
    first.kill()
    second = start_emulator("--state", str(file))
    assert [account["id"] for account in second.state()["accounts"]] == ["a"]
    assert second.state()["pods"] == []


def test_a_real_clock_goes_on_billing_while_it_was_down(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    first = start_emulator("--state", str(file), "--clock", "virtual")
    first.reset({**yaml.safe_load(builtin_scenario()), "boot": {"seconds": [0, 0]}})
    assert order(first).status_code == 200
    first.kill()
    second = start_emulator("--state", str(file), "--clock", "real")
    assert {pod["status"] for pod in pods(second)} == {"RUNNING"}


def test_two_emulators_cannot_share_a_file(tmp_path: Path, start_emulator: Start) -> None:
    file = tmp_path / "market.db"
    start_emulator("--state", str(file))
    done = subprocess.run(
        [sys.executable, "-m", "pulumi_lium.cli", "emulator", "--port", "0", "--state", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "no other emulator" in done.stderr


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("buy milk\n" * 200)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        Store(file)
    assert file.read_text().startswith("buy milk")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE meta (x)")
    database.close()
    with pytest.raises(StoreError, match=r"other\.db"):
        Store(other)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "market.db"
    Store(file).close()
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="format 99"):
        Store(file)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        Store(tmp_path / "missing" / "market.db")
