"""From the looks at hosts to their plans, and from records to a verdict, all on the control node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Plan
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import budget
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import plan_reruns_of, plan_sweep
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.render import render
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder

from tests.collection.roce.sweeps import NOW, finish, looks, options, rail, verify


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
    assert fabric.fix_first == [{"repair": "host gpu02", "sellable": 6, "exact": True}]
    assert done.host_records["gpu02"][0]["status"] == "MUST_FIX"
    screen = render(fabric)
    assert "host gpu02 (5 pairs)" in screen
    assert "UDP 4791" in screen
    assert "5 of 6 hosts" in screen
    assert "host gpu02: then 6 hosts" in screen
    in_doubt = fabric._replace(fix_first=[{**fabric.fix_first[0], "exact": False}])
    assert "host gpu02: then at least 6 hosts" in render(in_doubt)


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
