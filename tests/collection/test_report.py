"""The report: no host and no failed look disappears, and the exit code follows MUST_FIX alone."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.lium.cluster.plugins.module_utils._record import STATUSES, Record, merge_by_id, worst_status
from ansible_collections.lium.cluster.plugins.plugin_utils._report import (
    build_report,
    failure_message,
    records_of_host,
    render,
)

from tests.collection.conftest import ROOT

AT = datetime(2026, 11, 30, 8, 0, tzinfo=timezone.utc)


def record(record_id: str = "os.supported", status: str = "OK", severity: str = "blocker") -> Record:
    fix = "" if status in ("OK", "SKIPPED") else "Do it. Why: it matters"
    return Record(record_id, "title", status, "seen", "wanted", fix, "source", severity)


def test_a_failed_check_task_is_a_record_that_must_be_fixed() -> None:
    (row,) = records_of_host({"preflight_result": {"failed": True, "msg": "no python", "module_stderr": "sh: no"}})
    assert (row.id, row.status, row.severity) == ("preflight.ran", "MUST_FIX", "blocker")
    assert "no python: sh: no" in row.observed


@pytest.mark.parametrize(
    "results", [{}, {"preflight_result": {"unreachable": True, "msg": "timed out", "skipped": True}}]
)
def test_a_host_without_an_answer_must_be_fixed(results: dict[str, object]) -> None:
    (row,) = records_of_host(results)
    assert (row.id, row.status) == ("host.reachable", "MUST_FIX")


def test_a_later_look_replaces_an_earlier_one() -> None:
    before, after = record(status="MUST_FIX"), record(status="OK")
    other = record("time.ntp")
    results = {
        "preflight_result": {"records": [before.as_dict(), other.as_dict()]},
        "rdma_result": {"records": [after.as_dict()]},
    }
    assert records_of_host(results) == [after, other]


def test_a_record_from_elsewhere_with_a_wrong_key_is_refused() -> None:
    row = record().as_dict()
    row["stauts"] = row.pop("status")
    with pytest.raises(ValueError, match="stauts"):
        Record.from_dict(row)


@pytest.mark.parametrize("status", ["MUST_FIX", "WARN", "UNKNOWN"])
def test_what_is_not_well_says_what_to_do(status: str) -> None:
    with pytest.raises(ValueError, match="what to do"):
        Record("os.supported", "t", status, "o", "e", "", "s", "info")


def test_worst_status_of_nothing_is_unknown() -> None:
    assert worst_status([]) == "UNKNOWN"
    assert [worst_status([status, "SKIPPED"]) for status in STATUSES] == list(STATUSES)
    assert worst_status(["OK", "UNKNOWN", "WARN"]) == "UNKNOWN"


@pytest.mark.parametrize("status", ["OK", "WARN", "UNKNOWN", "SKIPPED", "MUST_FIX"])
def test_only_must_fix_fails_a_play(status: str) -> None:
    report = build_report({"h1": [record(status=status)], "h2": [record()]}, "audit", AT)
    message = failure_message(report)
    assert message == ("1 of 2 hosts must be fixed: h1 (os.supported)" if status == "MUST_FIX" else "")


def test_before_any_change_only_a_look_that_failed_fails_the_play() -> None:
    """What a bare host lacks is what the real run brings; a role that fails would fail there as well."""
    bare = [record(status="MUST_FIX"), record("rdma.modules", "MUST_FIX")]
    failed = records_of_host({"onboard_result": {"failed": True, "msg": "Install: no such package"}})
    report = build_report({"h1": bare, "h2": [*bare, *failed], "h3": records_of_host({})}, "onboard", AT)
    assert failure_message(report, before_changes=True) == (
        "2 of 3 hosts must be fixed: h2 (onboard.ran); h3 (host.reachable)"
    )
    assert "h1 (os.supported, rdma.modules)" in failure_message(report)


@pytest.mark.parametrize(("mode", "rc", "said"), [(["--check"], 0, True), ([], 2, False)], ids=["check", "real"])
def test_check_mode_passes_with_faults_that_the_real_run_may_mend(
    mode: list[str], rc: int, said: bool, tmp_path: Path, write_inventory, play
) -> None:
    """The report task of onboard itself, on a host that its roles have left as it was."""
    (_first, onboard) = yaml.safe_load((ROOT / "playbooks/onboard.yml").read_text(encoding="utf-8"))
    (report,) = (task for task in onboard["tasks"] if task["name"] == "Report")
    found = {"preflight_result": {"records": [record(status="MUST_FIX").as_dict()]}}
    tasks = [{"ansible.builtin.set_fact": found}, report]
    book = tmp_path / "book.yml"
    book.write_text(json.dumps([{"hosts": "lium_fabric", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    done = play(str(book), write_inventory({"h1": {}}), *mode)
    assert done.returncode == rc, done.stdout + done.stderr
    assert ("the hosts as they are before any change" in done.stdout) is said
    assert "MUST_FIX  os.supported  (h1)" in done.stdout


def test_the_screen_joins_hosts_with_the_same_task() -> None:
    rows = [record(status="MUST_FIX"), record("rdma.modules", "UNKNOWN"), record("time.ntp", "OK")]
    report = build_report({"h2": rows, "h1": rows, "h3": [record("time.ntp")]}, "audit", AT)
    text = render(report)
    lines = text.splitlines()
    assert lines[0].split() == ["host", "os", "rdma", "time"]
    assert lines[2].split() == ["h1", "FIX", "?", "ok"]
    assert lines[4].split() == ["h3", "ok"]
    assert text.count("os.supported") == 1
    assert "os.supported  (h1, h2)" in text
    assert text.index("os.supported") < text.index("rdma.modules")
    assert json.loads(json.dumps(report)) == report


def test_merge_keeps_the_place_of_the_first_look() -> None:
    first, second = record("a.b"), record("c.d")
    again = record("a.b", "WARN")
    assert merge_by_id([first, second], [again]) == [again, second]


def test_a_host_that_does_not_answer_stands_in_the_report(tmp_path: Path, write_inventory, play) -> None:
    closed = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    inventory = write_inventory({"up": {"preflight_become": False}, "down": closed})
    done = play("lium.cluster.audit", inventory, "-e", f"lium_report_path={tmp_path}/report.json")
    assert done.returncode == 2, done.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    hosts = {host["name"]: host for host in report["hosts"]}
    assert [row["id"] for row in hosts["down"]["records"]] == ["host.reachable"]
    assert "Connection refused" in hosts["down"]["records"][0]["observed"]
    assert len(hosts["up"]["records"]) > 1


def test_no_file_of_results_shows_no_pairs() -> None:
    """Empty for none is not the default file, in which an earlier run may stand."""
    shown = [
        line.partition(":")[2].strip().strip('"')
        for path in sorted((Path(__file__).parents[2] / "playbooks").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith("roce_results:")
    ]
    assert len(shown) == 5
    for text in shown:
        template = jinja2.Environment().from_string(text)
        assert (template.render(roce_verify_results=""), template.render()) == ("", "lium-roce.json")


def test_check_mode_writes_no_report(tmp_path: Path, write_inventory, play) -> None:
    inventory = write_inventory({"up": {"preflight_become": False}})
    play("lium.cluster.audit", inventory, "--check", "-e", f"lium_report_path={tmp_path}/report.json")
    assert not (tmp_path / "report.json").exists()


def test_an_empty_group_is_no_silent_success(tmp_path: Path, play) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("lium_fabric: {hosts: {}}\n", encoding="utf-8")
    done = play("lium.cluster.audit", inventory)
    assert done.returncode != 0, done.stdout + done.stderr
