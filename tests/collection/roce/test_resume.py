"""What a later run takes over from the file of results, and what it measures anew."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import plan_sweep
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import ResultsError, load, still_proven
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP, RunFolder

from tests.collection.roce.sweeps import NOW, finish, looks, options, save, verify


def test_what_is_proven_and_fresh_is_not_measured_again(tmp_path: Path) -> None:
    path = save(tmp_path / "results.json", verify(tmp_path, failing={frozenset(("gpu00", "gpu01"))}))
    folder = RunFolder(str(tmp_path))
    again = plan_sweep(options(results_path=str(path)), looks(6), folder, "run-2", NOW + timedelta(hours=1))
    assert (again.counts["pairs"], again.counts["kept"], sorted(again.plans)) == (1, 14, ["gpu00", "gpu01"])
    joined = plan_sweep(options(results_path=str(path)), looks(7), folder, "run-3", NOW + timedelta(hours=1))
    assert joined.counts["pairs"] == 1 + 6
    stale = plan_sweep(options(results_path=str(path)), looks(6), folder, "run-4", NOW + timedelta(hours=7))
    assert stale.counts["pairs"] == 15
    full = plan_sweep(options(results_path=str(path), mode="full"), looks(6), folder, "run-5", NOW)
    assert full.counts["kept"] == 0


@pytest.mark.parametrize("n", [2, 6])
def test_a_pair_that_fails_one_way_is_measured_again(tmp_path: Path, n: int) -> None:
    """The rerun with the roles swapped is good, which proves nothing of the way that failed."""
    first = verify(tmp_path, n, {("gpu01", "gpu00")})
    shown = [(row["direction"], row["status"]) for row in first.report["records"] if row["b"] == "gpu01"]
    assert shown == [("a_to_b", "FAIL"), ("b_to_a", "OK")]
    path = save(tmp_path / "results.json", first)
    again = verify(tmp_path, n, {("gpu01", "gpu00")}, NOW + timedelta(hours=1), results_path=str(path))
    assert [sorted(pair) for pair in again.fabrics[0].failed] == [["gpu00", "gpu01"]]
    assert len(again.report["records"]) == n * (n - 1) // 2 + 1
    mended = verify(tmp_path, n, at=NOW + timedelta(hours=1), results_path=str(path))
    assert len(mended.report["records"]) == len(mended.fabrics[0].good) == n * (n - 1) // 2


def test_what_the_other_mode_saw_before_is_history(tmp_path: Path) -> None:
    """A full run with a bad pair, the fault mended, a run in the platform's mode; then a full run that fails."""
    bad = {frozenset(("gpu00", "gpu01"))}
    path = save(tmp_path / "results.json", verify(tmp_path, 3, bad, mode="full"))
    later = NOW + timedelta(hours=1)
    mended = verify(tmp_path, 3, at=later, results_path=str(path))
    assert len(mended.fabrics[0].sellable.hosts) == 3
    assert {row["mode"] for row in mended.report["records"]} == {"full", "platform"}
    entries = [entry for own in mended.report["platform"].values() for entry in own]
    assert {(entry["gigabits_per_second"], entry["measured_at"]) for entry in entries} == {(195.0, later.isoformat())}
    save(path, mended)
    failed = verify(tmp_path, 3, bad, NOW + timedelta(hours=2), mode="full", results_path=str(path))
    assert sum(entry["gigabits_per_second"] is None for own in failed.report["platform"].values() for entry in own) == 2
    save(path, failed)
    again = plan_sweep(
        options(results_path=str(path)), looks(3), RunFolder(str(tmp_path)), "run-4", NOW + timedelta(hours=3)
    )
    assert (again.counts["pairs"], again.counts["kept"]) == (1, 2)


@pytest.mark.parametrize(
    "other", [{"tclass": 106}, {"qps": 8}, {"iterations": 9, "duration_s": 0}, {"duration_s": 20}, {"mode": "platform"}]
)
def test_what_was_measured_in_another_way_is_measured_again(tmp_path: Path, other: dict[str, Any]) -> None:
    path = save(tmp_path / "results.json", verify(tmp_path, 3, mode="full"))
    given = {"mode": "full", "results_path": str(path)}
    same = plan_sweep(options(**given), looks(3), RunFolder(str(tmp_path)), "run-2", NOW)
    assert (same.counts["pairs"], same.counts["kept"]) == (0, 6)
    changed = plan_sweep(options(**{**given, **other}), looks(3), RunFolder(str(tmp_path)), "run-3", NOW)
    assert (changed.counts["pairs"], changed.counts["kept"]) == (3, 0)


def test_a_run_that_has_nothing_to_measure_keeps_its_verdict(tmp_path: Path) -> None:
    path = save(tmp_path / "results.json", verify(tmp_path))
    folder = RunFolder(str(tmp_path))
    planned = plan_sweep(options(results_path=str(path)), looks(6), folder, "run-2", NOW)
    assert planned.plans == {}
    (fabric,) = conclude(folder, {}, {}, NOW).fabrics
    assert len(fabric.good) == 15


@pytest.mark.parametrize("change", [{"address": "10.20.30.99"}, {"gid_index": 5}, {"device": "mlx5_9"}])
def test_a_rail_that_changed_is_measured_again(tmp_path: Path, change: dict[str, Any]) -> None:
    path = save(tmp_path / "results.json", verify(tmp_path))
    seen = looks(6)
    seen["gpu03"]["facts"]["roce"]["rails"][0].update(change)
    planned = plan_sweep(options(results_path=str(path)), seen, RunFolder(str(tmp_path)), "run-2", NOW)
    assert planned.counts["pairs"] == 5


@pytest.mark.parametrize("text", ["", "[]", '{"records": 1}', "{", '{"records": [1]}'])
def test_a_broken_file_of_results_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"results\.json"):
        load(str(path))


def test_a_record_that_is_not_understood_proves_nothing() -> None:
    rails = {"a": [RailAt("mlx5_0", 1, 3, "10.0.0.1")]}
    odd: list[Any] = [{}, {"measured_at": 3}, {"measured_at": NOW.isoformat(), "a": "a", "b": "b", "rail": "x"}]
    assert still_proven(odd, rails, settings=Settings(), now=NOW, max_age_s=60) == {}


def test_a_run_over_some_hosts_keeps_what_is_known_of_the_others(tmp_path: Path) -> None:
    path = save(tmp_path / "results.json", verify(tmp_path))
    folder = RunFolder(str(tmp_path))
    some = {host: look for host, look in looks(6).items() if host in ("gpu00", "gpu01", "gpu02")}
    later = NOW + timedelta(hours=7)
    planned = plan_sweep(options(results_path=str(path)), some, folder, "run-2", later)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, {frozenset(("gpu00", "gpu01"))})
    report = conclude(folder, ends, {}, later).report
    pairs = {(row["a"], row["b"]): row["status"] for row in report["records"]}
    assert len(pairs) == len(report["records"]) == 15
    assert pairs["gpu00", "gpu01"] == "FAIL"
    assert pairs["gpu04", "gpu05"] == "OK"
    assert len(report["fabrics"][0]["hosts"]) == 3
