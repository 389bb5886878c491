"""`--state FILE` on a disk that takes nothing more: said in one line, and nothing that was promised is lost."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from pulumi_lium.emulator.clock import EmulatorClock
from pulumi_lium.emulator.exchange import Answer, Cut, Request
from pulumi_lium.emulator.scenario import load_scenario
from pulumi_lium.emulator.service import Service
from pulumi_lium.emulator.store import Store, StoreError
from tests.emulator.test_control import KEY, order_body, pods, send
from tools.emulator import Emulator

Start = Callable[..., Emulator]


class TightStore(Store):
    """A file that SQLite lets grow no further while it is `tight`: its own "database or disk is full"."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tight(True)

    def tight(self, yes: bool) -> None:
        self._db.execute(f"PRAGMA max_page_count = {self._value('page_count') if yes else 1 << 30}")


def register(service: Service, name: str) -> Answer | Cut:
    """Registers an SSH key that fills some pages."""
    body = json.dumps({"name": name, "public_key": f"ssh-ed25519 {name} {'x' * 8000}"}).encode()
    headers = {"x-api-key": KEY["X-API-KEY"]}
    return service.perform(service.admit(Request("POST", ("ssh-keys",), {}, headers, body)))


def key_names(file: Path) -> list[str]:
    service = Service(load_scenario(None), EmulatorClock(virtual=True), Store(file))
    try:
        return [row["name"] for row in service.market.ssh_keys(KEY["X-API-KEY"])]
    finally:
        service.close()


def test_a_change_that_could_not_be_written_is_written_with_the_next(tmp_path: Path) -> None:
    file = tmp_path / "market.db"
    Service(load_scenario(None), EmulatorClock(virtual=True), Store(file)).close()
    store = TightStore(file)
    service = Service(load_scenario(None), EmulatorClock(virtual=True), store)
    with pytest.raises(StoreError, match=r"market\.db: database or disk is full; .*free some"):
        register(service, "one")
    store.tight(False)
    register(service, "two")
    service.close()
    assert key_names(file) == ["one", "two"]


def test_what_was_never_written_is_not_there_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "market.db"
    service = Service(load_scenario(None), EmulatorClock(virtual=True), Store(file))
    register(service, "kept")
    service.close()
    service = Service(load_scenario(None), EmulatorClock(virtual=True), TightStore(file))
    for _ in range(3):
        with pytest.raises(StoreError):
            register(service, "lost")
    service.close()
    assert key_names(file) == ["kept"]


def test_a_market_that_finds_no_room_at_all_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="disk is full"):
        Service(load_scenario(None), EmulatorClock(virtual=True), TightStore(tmp_path / "market.db"))


@pytest.mark.parametrize("log_too", [False, True], ids=["full for the market", "full for the log too"])
def test_an_order_that_is_not_on_disk_is_not_confirmed_and_its_resend_finds_it(
    tmp_path: Path, start_emulator: Start, log_too: bool
) -> None:
    file = tmp_path / "market.db"
    first = start_emulator("--state", str(file), "--clock", "virtual")
    body = order_body(first, "kept")
    room = 0 if log_too else file.with_name(file.name + "-wal").stat().st_size
    resource.prlimit(first.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    refused = send(first, body, "key-1")
    assert refused.status_code == 500
    assert str(file) in refused.json()["error"]["message"]
    listing = requests.get(first.base_url + "/pods", headers=KEY, timeout=10)
    assert listing.status_code == 500, "a listing never shows what a restart would forget"
    with pytest.raises(RuntimeError, match="answered 500"):
        first.event("balance", account="owner", balance=900.0)
    assert "Traceback" not in first.errors()
    assert (str(file) in first.errors()) != log_too

    resource.prlimit(first.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    replay = send(first, body, "key-1")
    assert replay.status_code == 200, replay.text
    assert replay.headers["Idempotent-Replayed"] == "true"
    before = first.state()
    assert len(before["clusters"]) == 1
    first.kill()
    second = start_emulator("--state", str(file), "--clock", "virtual")
    assert second.state() == before
    assert {pod["id"] for pod in pods(second)} == set(replay.json()["pod_ids"])


def test_a_start_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); import sys;"
        f" sys.argv = ['pulumi-lium', 'emulator', '--port', '0', '--state', {str(tmp_path / 'market.db')!r}];"
        " from pulumi_lium.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "market.db" in line
    assert "space" in line


def test_a_file_with_a_damaged_record_is_named(tmp_path: Path) -> None:
    file = tmp_path / "market.db"
    Service(load_scenario(None), EmulatorClock(virtual=True), Store(file)).close()
    with sqlite3.connect(file) as database:
        database.execute("UPDATE record SET value = substr(value, 1, 5) WHERE kind = 'hosts'")
        assert database.total_changes
    database.close()
    with pytest.raises(StoreError, match=r"market\.db: .*damaged"):
        Service(load_scenario(None), EmulatorClock(virtual=True), Store(file))
