"""From the looks at hosts to their plans, and from records to a verdict, all on the control node."""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Plan
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import Reading, read
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import Ends, measured, not_measured
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import budget
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import Conclusion, conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import OPTIONS, plan_reruns_of, plan_sweep
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.render import render
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import ResultsError, load, still_proven
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder

NOW = datetime(2026, 11, 3, 10, 0, tzinfo=timezone.utc)
DROP = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"


def rail(address: str, device: str = "mlx5_0", gid_index: int = 3) -> dict[str, Any]:
    return {
        "device": device,
        "port": 1,
        "gid_index": gid_index,
        "address": address,
        "link_gbps": 200.0,
        "slot": [32.0, 16],
        "numa": 0,
    }


def looks(n: int, rails: int = 1) -> dict[str, Any]:
    return {
        f"gpu{number:02}": {
            "facts": {
                "roce": {"refused": "", "rails": [rail(f"10.20.30.{number + 1}", f"mlx5_{r}") for r in range(rails)]}
            }
        }
        for number in range(n)
    }


def options(**given: Any) -> dict[str, Any]:
    return {**{name: option.get("default") for name, option in OPTIONS.items()}, **given}


def finish(
    folder: RunFolder,
    failing: set[frozenset[str] | tuple[str, str]] = frozenset(),
    pass_name: str = SWEEP,
    lost: set[str] = frozenset(),
    left_out: set[frozenset[str]] = frozenset(),
    at: datetime = NOW,
) -> dict[str, Any]:
    """What agents would send: every test of the plans good at 195 Gb/s, but those of the failing pairs.

    A failing pair may be (server, client): then only that way fails.
    """
    ends = {}
    run = folder.read_run()
    for host in run["planned"]:
        plan = folder.read_plan(pass_name, host)
        if plan is None or host in lost:
            continue
        own = Plan.from_dict(json.loads(json.dumps(plan)))
        rows = []
        for appointment in own.appointments:
            for server, client, number in appointment.tests:
                ends_of = Ends(server, client, own.hosts[server][number], own.hosts[client][number])
                if lost & {server, client}:
                    rows.append(not_measured(ends_of, number, own.settings, "peer_lost", measured_at=at.isoformat()))
                    continue
                if frozenset((server, client)) in left_out:
                    rows.append(not_measured(ends_of, number, own.settings, "quarantined", measured_at=at.isoformat()))
                    continue
                bad = bool({frozenset((server, client)), (server, client)} & failing)
                reading = read(End(1, DROP)) if bad else Reading(195.0, None, 4096)
                rows.append(
                    measured(
                        ends_of,
                        number,
                        own.settings,
                        reading,
                        seconds=1.5,
                        measured_at=at.isoformat(),
                        counters={},
                        alone=appointment.alone,
                    )
                )
        folder.write_records(
            pass_name, host, base64.b64encode(zlib.compress("\n".join(map(json.dumps, rows)).encode())).decode()
        )
        ends[host] = {"ended": "done"}
    return ends


def verify(
    tmp_path: Path,
    n: int = 6,
    failing: set[frozenset[str] | tuple[str, str]] = frozenset(),
    at: datetime = NOW,
    **given: Any,
) -> Conclusion:
    folder = RunFolder(tempfile.mkdtemp(dir=tmp_path))
    planned = plan_sweep(options(**given), looks(n), folder, "run-1", at)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, failing, at=at)
    again = plan_reruns_of(folder, True)
    folder.write_plans(RERUN, again.plans)
    finish(folder, failing, RERUN, at=at)
    return conclude(folder, ends, {"gpu00": "11111111-1111-4111-8111-111111111111"}, at)


def save(path: Path, conclusion: Conclusion) -> Path:
    path.write_text(json.dumps(conclusion.report))
    return path


def test_all_good(tmp_path: Path) -> None:
    done = verify(tmp_path)
    (fabric,) = done.fabrics
    assert (len(fabric.good), fabric.pairs, fabric.guilty, fabric.lost) == (15, 15, [], {})
    assert fabric.sellable.hosts == tuple(f"gpu{number:02}" for number in range(6))
    assert {record["status"] for records in done.host_records.values() for record in records} == {"OK"}
    screen = render(fabric)
    assert "15 of 15 pairs proven" in screen
    assert "all 6 hosts" in screen
    assert "Guilty" not in screen


def test_a_sick_host_is_named_and_left_out(tmp_path: Path) -> None:
    failing = {frozenset(("gpu02", f"gpu{number:02}")) for number in range(6) if number != 2}
    done = verify(tmp_path, failing=failing)
    (fabric,) = done.fabrics
    assert [(part.kind, part.hosts) for part in fabric.guilty] == [("host", ("gpu02",))]
    assert "gpu02" not in fabric.sellable.hosts
    assert len(fabric.sellable.hosts) == 5
    assert fabric.fix_first == [{"repair": "host gpu02", "sellable": 6}]
    assert done.host_records["gpu02"][0]["status"] == "MUST_FIX"
    screen = render(fabric)
    assert "host gpu02 (5 pairs)" in screen
    assert "UDP 4791" in screen
    assert "5 of 6 hosts" in screen


def test_what_a_quarantine_left_out_behind_a_cut_link_is_measured_after_all(tmp_path: Path) -> None:
    """Three of ten hosts stand behind the cut; gpu00 met all beyond it first and left the rest out."""
    cut = {frozenset((f"gpu{a:02}", f"gpu{b:02}")) for a in range(3) for b in range(3, 10)}
    left_out = {frozenset(("gpu00", f"gpu{number:02}")) for number in (1, 2, 3)}
    folder = RunFolder(str(tmp_path))
    folder.write_plans(SWEEP, plan_sweep(options(), looks(10), folder, "run-1", NOW).plans)
    ends = finish(folder, cut, left_out=left_out)
    again = plan_reruns_of(folder, True)
    measured_again = {frozenset(row[1:3]) for plan in again.plans.values() for row in plan["appointments"]}
    # Not the pair beyond the cut: its other host failed with two only.
    caught_up = {frozenset(("gpu00", "gpu01")), frozenset(("gpu00", "gpu02"))}
    assert left_out & measured_again == caught_up
    rows = [row for plan in again.plans.values() for row in plan["appointments"]]
    repeats = {row[0] for row in rows if frozenset(row[1:3]) not in caught_up}
    assert 0 < len(repeats) <= budget(10)
    assert {row[0] for row in rows} - repeats == {again.counts["rounds"] - 2, again.counts["rounds"] - 1}
    folder.write_plans(RERUN, again.plans)
    finish(folder, cut, RERUN)
    (fabric,) = conclude(folder, ends, {}, NOW).fabrics
    assert [(part.kind, part.hosts) for part in fabric.guilty] == [("group", ("gpu00", "gpu01", "gpu02"))]
    assert (len(fabric.good), len(fabric.failed)) == (45 - 21, 21 - 1)
    assert len(fabric.sellable.hosts) == 7


def test_what_a_sick_host_left_out_stays_left_out(tmp_path: Path) -> None:
    failing = {frozenset(("gpu02", f"gpu{number:02}")) for number in range(3, 8)}
    left_out = {frozenset(("gpu02", f"gpu{number:02}")) for number in (0, 1, 8, 9)}
    folder = RunFolder(str(tmp_path))
    folder.write_plans(SWEEP, plan_sweep(options(), looks(10), folder, "run-1", NOW).plans)
    finish(folder, failing, left_out=left_out)
    again = plan_reruns_of(folder, True)
    assert not left_out & {frozenset(row[1:3]) for plan in again.plans.values() for row in plan["appointments"]}


def test_the_file_of_results(tmp_path: Path) -> None:
    report = verify(tmp_path, failing={frozenset(("gpu00", "gpu01"))}).report
    schema = Path(__file__).parents[3] / "docs" / "schema" / "roce.schema.json"
    jsonschema.validate(report, json.loads(schema.read_text()))
    full = verify(tmp_path, 2, mode="full").report
    jsonschema.validate(full, json.loads(schema.read_text()))
    assert {(row["iterations"], row["duration_s"]) for row in full["records"]} == {(None, 10)}
    # The reruns add what they measured: here the failed pair the other way round.
    assert len({(row["a"], row["b"]) for row in report["records"]}) == 15
    entries = report["platform"]["gpu01"]
    assert len(entries) == 5
    failed = next(entry for entry in entries if entry["peer_address"] == "10.20.30.1")
    assert failed == {
        "peer_executor_uuid": "11111111-1111-4111-8111-111111111111",
        "peer_address": "10.20.30.1",
        "gigabits_per_second": None,
        "measured_at": NOW.isoformat(),
    }
    assert all(entry["gigabits_per_second"] == 195.0 for entry in entries if entry is not failed)


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


def test_hosts_meet_in_their_segment_only(tmp_path: Path) -> None:
    seen = looks(4)
    for number, name in enumerate(("gpu02", "gpu03")):
        seen[name]["facts"]["roce"]["rails"] = [rail(f"10.20.31.{number + 1}")]
    planned = plan_sweep(options(), seen, RunFolder(str(tmp_path)), "run-1", NOW)
    assert (planned.counts["pairs"], planned.counts["rounds"]) == (2, 1)


def test_refusals_are_named_and_keep_a_host_out(tmp_path: Path) -> None:
    seen = looks(5)
    seen["gpu00"]["facts"]["roce"] = {"refused": "a rental runs (pod_x)", "rails": []}
    seen["gpu01"] = {"failed": True, "msg": "no python"}
    seen["gpu03"]["facts"]["roce"]["rails"] = seen["gpu02"]["facts"]["roce"]["rails"]
    planned = plan_sweep(options(), seen, RunFolder(str(tmp_path)), "run-1", NOW)
    assert planned.plans == {}
    assert planned.counts["refused"] == {
        "gpu00": "a rental runs (pod_x)",
        "gpu01": "could not be looked at: no python",
        "gpu02": "roce.duplicate_address: 10.20.30.3 on gpu02, gpu03",
        "gpu03": "roce.duplicate_address: 10.20.30.3 on gpu02, gpu03",
    }
    for host, reason in planned.counts["refused"].items():
        assert f"{host}: {reason}" in planned.summary


def test_a_host_that_never_answers_again_is_named_lost(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    planned = plan_sweep(options(), looks(5), folder, "run-1", NOW)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, lost={"gpu04"})
    done = conclude(folder, {**ends, "gpu04": {"unreachable": True, "msg": "timed out"}}, {}, NOW)
    (fabric,) = done.fabrics
    assert list(fabric.lost) == ["gpu04"]
    assert fabric.guilty == []
    assert len(fabric.sellable.hosts) == 4
    assert fabric.fix_first[0]["repair"].startswith("host gpu04")
    assert done.host_records["gpu04"][0]["status"] == "UNKNOWN"
    assert "0 failed, 4 not measured" in render(fabric)


def test_a_host_that_is_lost_in_the_reruns_is_named_and_keeps_what_is_proven(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    folder.write_plans(SWEEP, plan_sweep(options(), looks(5), folder, "run-1", NOW).plans)
    ends = finish(folder, {frozenset(("gpu03", "gpu04"))})
    folder.write_plans(RERUN, plan_reruns_of(folder, True).plans)
    again = finish(folder, pass_name=RERUN, lost={"gpu04"})
    start = {"failure": {"code": "start"}, "msg": "no python"}
    (fabric,) = conclude(folder, ends, {}, NOW, {**again, "gpu04": start}).fabrics
    assert fabric.lost == {"gpu04": "when tests were repeated: no python"}
    assert "when tests were repeated: no python" in render(fabric)
    assert [sorted(pair) for pair in fabric.failed] == [["gpu03", "gpu04"]]
    assert len(fabric.good) == 9
    assert not any("repeated" in step["repair"] for step in fabric.fix_first)


def test_no_pair_disappears_when_both_hosts_are_lost(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    planned = plan_sweep(options(), looks(4), folder, "run-1", NOW)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, lost={"gpu02", "gpu03"})
    done = conclude(folder, ends, {}, NOW)
    assert len(done.report["records"]) == 6
    pair = next(row for row in done.report["records"] if (row["a"], row["b"]) == ("gpu02", "gpu03"))
    assert (pair["status"], pair["class"]) == ("NOT_MEASURED", "not_run")


def test_a_pair_of_which_only_some_tests_came_back_is_not_proven(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    planned = plan_sweep(options(mode="full"), looks(3, rails=2), folder, "run-1", NOW)
    folder.write_plans(SWEEP, planned.plans)
    for plan in planned.plans.values():
        for appointment in plan["appointments"]:
            del appointment[3][1:]
    folder.write_plans(SWEEP, planned.plans)
    (fabric,) = conclude(folder, finish(folder), {}, NOW).fabrics
    assert len(fabric.records) == 12
    assert fabric.good == set()


@pytest.mark.parametrize("given", [{"qps": 4}, {"tclass": 106}, {"iterations": 10}, {"duration_s": 10}])
def test_the_platforms_arguments_are_not_to_be_changed(tmp_path: Path, given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        plan_sweep(options(**given), looks(2), RunFolder(str(tmp_path)), "run-1", NOW)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"pair_timeout_s": 0.0}, "pair_timeout_s: must be more than 0"),
        ({"budget_s": -1.0}, "budget_s"),
        ({"retry": -1}, "retry"),
        ({"prefix_length": 64}, "prefix_length"),
        ({"control_port": 18515}, "control_port: 18515 is a port of the tests"),
        ({"mode": "full", "control_port": 18616}, "control_port"),
        ({"mode": "full", "image": "probe"}, "image"),
    ],
)
def test_options_that_cannot_work_are_named(tmp_path: Path, given: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        plan_sweep(options(**given), looks(2, rails=2), RunFolder(str(tmp_path)), "run-1", NOW)


def test_the_diagnostic_mode(tmp_path: Path) -> None:
    planned = plan_sweep(options(mode="full", tclass=106), looks(3, rails=2), RunFolder(str(tmp_path)), "run-1", NOW)
    assert planned.counts["tests"] == 3 * 2 * 2
    plan = Plan.from_dict(json.loads(json.dumps(planned.plans["gpu00"])))
    assert plan.settings == Settings(18615, 5000, 10, 4, 106, diagnostic=True)
    assert plan.limits.test_s == 40
    assert [plan.settings.port_of(number) for number in (0, 1)] == [18615, 18616]


def test_a_large_fabric_shows_its_open_pairs_instead_of_a_matrix(tmp_path: Path) -> None:
    failing = {frozenset(("gpu07", f"gpu{number:02}")) for number in range(60) if number != 7}
    (fabric,) = verify(tmp_path, 60, failing).fabrics
    screen = render(fabric)
    assert "gpu07: 59 (" in screen
    assert max(map(len, screen.splitlines())) <= 120


def test_the_matrix_is_symmetric(tmp_path: Path) -> None:
    (fabric,) = verify(tmp_path, 4, {frozenset(("gpu00", "gpu03"))}).fabrics
    cells = [line.split()[2:] for line in render(fabric).splitlines() if line[:1].isdigit()]
    assert cells[0] == ["-", ".", ".", "X"]
    assert cells == [list(column) for column in zip(*cells, strict=True)]


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


def test_a_locked_host_is_skipped_for_that_reason(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    planned = plan_sweep(options(), looks(3), folder, "run-1", NOW)
    folder.write_plans(SWEEP, planned.plans)
    ends = finish(folder, lost={"gpu02"})
    busy = {"failure": {"code": "locked"}, "msg": "/run/lock/lium-roce.lock is taken"}
    done = conclude(folder, {**ends, "gpu02": busy}, {}, NOW)
    shown = {(row["a"], row["b"]): (row["status"], row["class"]) for row in done.report["records"]}
    assert shown["gpu00", "gpu02"] == ("SKIPPED", "locked")
    assert shown["gpu00", "gpu01"] == ("OK", None)
    assert done.fabrics[0].lost == {"gpu02": "/run/lock/lium-roce.lock is taken"}
