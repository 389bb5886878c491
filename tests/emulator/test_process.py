"""`pulumi-lium emulator` as a process: its first line, its ends, its errors (design 4.2)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.emulator.test_control import KEY, order
from tools.emulator import ControlPlane, Emulator

COMMAND = [sys.executable, "-m", "pulumi_lium.cli", "emulator"]
ENVIRON = {**os.environ, "PYTHONUNBUFFERED": "1"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=ENVIRON)


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An emulator's process, and the first line that it wrote."""
    with subprocess.Popen(
        [*COMMAND, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRON
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_answers_and_ends_quietly(number: signal.Signals) -> None:
    with started() as (process, line):
        prefix, _, url = line.strip().partition(": ")
        assert prefix == "Lium API emulator"
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/api")
        assert requests.get(url + "/version", timeout=10).status_code == 200
        process.send_signal(number)
        rest, errors = process.communicate(timeout=15)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_it_ends_although_a_request_is_being_delayed() -> None:
    with started() as (process, line):
        control = ControlPlane(line.strip().partition(": ")[2])
        control.fault("GET /pods", "delay", seconds=600)
        with pytest.raises(requests.ReadTimeout):
            requests.get(control.base_url + "/pods", headers=KEY, timeout=(5, 0.2))
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=15) == ("", "")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        done = run("--port", str(port))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: [", ["not YAML"]),
        ("seed: 1", ["accounts", "missing"]),
        (
            "accounts: [{id: a, email: e, balance: 1, keys: [{key: k, scopes: [rad]}]}]",
            ["accounts[0].keys[0].scopes[0]"],
        ),
    ],
)
def test_a_wrong_scenario_is_named_with_its_path(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "market.yaml"
    file.write_text(text)
    done = run("--port", "0", "--scenario", str(file))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(file) in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_a_scenario_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    done = run("--scenario", str(tmp_path / "none.yaml"))
    assert done.returncode == 2
    assert "none.yaml" in done.stderr


def test_an_own_scenario_is_served(tmp_path: Path, start_emulator: Callable[..., Emulator]) -> None:
    file = tmp_path / "market.yaml"
    file.write_text("accounts: [{id: a, email: e@example.com, balance: 1, keys: [{key: sk_mine}]}]")
    emulator = start_emulator("--scenario", str(file))
    me = requests.get(emulator.base_url + "/users/me", headers={"X-API-KEY": "sk_mine"}, timeout=10)
    assert me.json()["email"] == "e@example.com"


def test_the_version_of_ip_is_the_hosts(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator("--host", "::1")
    assert emulator.base_url.startswith("http://[::1]:")
    assert order(emulator).status_code == 200
