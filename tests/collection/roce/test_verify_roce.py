"""The playbook verify_roce with real agents against emulated hosts, as `make rehearsal` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collection.conftest import ROOT

pytestmark = pytest.mark.slow


def rehearse(*arguments: str, results: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tools.rehearsal", "--floor", "0.3", "--results", str(results), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert results.exists(), done.stdout + done.stderr
    return done, json.loads(results.read_text())


def test_the_matrix_the_sellable_set_and_the_guilty_part(tmp_path: Path) -> None:
    done, report = rehearse("--hosts", "6", "--leaf-size", "3", "--fault", "path", results=tmp_path / "results.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = report["fabrics"]
    (part,) = verdict["guilty"]
    assert (part["part"], verdict["proven"], verdict["pairs"]) == ("path", 14, 15)
    assert len(verdict["sellable"]["hosts"]) == 5
    screen = done.stdout
    assert "14 of 15 pairs proven" in screen
    assert screen.count(" X") >= 2
    assert "Sellable as one cluster: 5 of 6 hosts" in screen
    assert f"path between {' and '.join(part['hosts'])}" in screen
    assert "To sell more, mend in this order" in screen
    assert "the verdict names what was planted" in screen
    # Ansible's own report has the same facts, host by host.
    assert "MUST_FIX  roce.pairs" in screen


def test_behind_a_cut_link_every_pair_is_measured_and_the_link_is_guilty(tmp_path: Path) -> None:
    """The first host meets all beyond the cut before its own side, so for a while it looks sick."""
    results = tmp_path / "results.json"
    done, report = rehearse("--hosts", "12", "--leaf-size", "6", "--fault", "group", results=results)
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = report["fabrics"]
    assert [(part["part"], len(part["hosts"])) for part in verdict["guilty"]] == [("group", 6)]
    assert verdict["proven"] == 2 * 15
    assert len(verdict["sellable"]["hosts"]) == 6
    assert "THE VERDICT DIFFERS" not in done.stdout


def test_a_second_run_measures_only_what_is_open_and_a_new_host(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done, first = rehearse("--hosts", "4", "--fault", "none", results=results)
    assert done.returncode == 0, done.stdout + done.stderr
    assert first["fabrics"][0]["proven"] == 6
    done, second = rehearse("--hosts", "5", "--fault", "none", results=results)
    assert "5 hosts, 4 pairs, 4 tests in 4 rounds; 6 tests are proven and fresh" in done.stdout
    assert second["fabrics"][0]["proven"] == 10
    assert {row["measured_at"] for row in first["records"]} <= {row["measured_at"] for row in second["records"]}


def until(holds: Callable[[], bool], seconds: float = 180.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def processes_of(folder: Path) -> list[str]:
    """Command lines in which a path below the folder stands."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{folder}/" in command:
            found.append(command)
    return found


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder of the test's own: the path of a socket in pytest's, with several workers, is over 107 bytes long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_rehearsal_that_is_ended_leaves_nothing_and_says_what_it_has(
    short_folder: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "tools.rehearsal", "--hosts", "3", "--floor", "600", "--fault", "none"]
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(short_folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert until(lambda: len(list(short_folder.glob("*/hosts/*/agent/records.jsonl"))) == 3)
    assert processes_of(short_folder)
    started.send_signal(number)
    _, told = started.communicate(timeout=60)
    assert started.returncode == (-number if number == signal.SIGKILL else 128 + number)
    # The outer process of a killed one has gone before the inner ones.
    assert until(lambda: not processes_of(short_folder)), processes_of(short_folder)
    assert until(lambda: not list(short_folder.iterdir())), list(short_folder.rglob("*"))
    word = "SIGHUP" if number == signal.SIGKILL else number.name
    assert f"ended by {word} with 0 of 3 pairs measured, 0 of them failed" in told
