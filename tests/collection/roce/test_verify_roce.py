"""The playbook verify_roce with real agents against emulated hosts, as `make rehearsal` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_a_second_run_measures_only_what_is_open_and_a_new_host(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done, first = rehearse("--hosts", "4", "--fault", "none", results=results)
    assert done.returncode == 0, done.stdout + done.stderr
    assert first["fabrics"][0]["proven"] == 6
    done, second = rehearse("--hosts", "5", "--fault", "none", results=results)
    assert "5 hosts, 4 pairs, 4 tests in 4 rounds; 6 tests are proven and fresh" in done.stdout
    assert second["fabrics"][0]["proven"] == 10
    assert {row["measured_at"] for row in first["records"]} <= {row["measured_at"] for row in second["records"]}
