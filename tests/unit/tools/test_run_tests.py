"""The verdict of `make test`: what is left out is named, and nothing passes that did not run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import run_tests
from tools.run_tests import Result, verdict
from tools.tiers import Need, Tier

PASSED = Result("unit", passed=3)


@pytest.mark.parametrize("require_all", [False, True])
def test_all_passed(require_all: bool) -> None:
    good, lines = verdict([PASSED, Result("lint")], require_all)
    assert good
    assert lines[-1] == "make test: OK: 3 tests passed in 2 tiers"


def test_a_tier_left_out_is_named_with_its_reason_and_fails_only_where_all_are_required() -> None:
    results = [PASSED, Result("engine", left_out="no Go")]
    good, lines = verdict(results, require_all=False)
    assert good
    assert "left out: no Go" in lines[1]
    assert lines[-1] == "make test: OK: 3 tests passed in 1 tiers; left out: engine"
    good, lines = verdict(results, require_all=True)
    assert not good
    assert "FAILED" in lines[-1]
    assert "engine" in lines[-1]


def test_a_skipped_test_counts_as_left_out() -> None:
    results = [Result("unit", passed=3, skipped=1)]
    assert verdict(results, require_all=False)[0]
    assert not verdict(results, require_all=True)[0]


def test_a_failure_fails() -> None:
    good, lines = verdict([PASSED, Result("types", failure="exit code 1 of `mypy`")], require_all=False)
    assert not good
    assert lines[-1].endswith("failed: types")


@pytest.fixture
def tests_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`tests/sample` of an own little tree, in which tiers run."""
    folder = tmp_path / "tests" / "sample"
    folder.mkdir(parents=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    return folder


def sample(limit_s: float = 60) -> Tier:
    command = (sys.executable, "-m", "pytest", "tests/sample", "-q", "-p", "no:cacheprovider")
    return Tier("sample", (command,), limit_s=limit_s, folders=("sample",))


@pytest.mark.parametrize(
    ("body", "passed", "failed", "skipped", "failure"),
    [
        ("def test_a(): pass\ndef test_b(): pass", 2, 0, 0, None),
        ("def test_a(): pass\ndef test_b(): assert False", 1, 1, 0, "exit code 1"),
        ("import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip()", 1, 0, 1, None),
        ("import pytest\ndef test_a(): pytest.skip()", 0, 0, 1, "no test ran"),
        ("", 0, 0, 0, "exit code 5"),
        ("import nothing_of_that_name", 0, 1, 0, "exit code 2"),
    ],
)
def test_a_tier_is_counted(
    tests_folder: Path, body: str, passed: int, failed: int, skipped: int, failure: str | None
) -> None:
    (tests_folder / "test_sample.py").write_text(body)
    result = run_tests.run(sample())
    assert (result.passed, result.failed, result.skipped) == (passed, failed, skipped)
    assert (result.failure or "").startswith(failure or "")
    assert (result.failure is None) == (failure is None)


def test_a_tier_that_hangs_is_ended(tests_folder: Path) -> None:
    (tests_folder / "test_sample.py").write_text("import threading\ndef test_a(): threading.Event().wait(600)")
    result = run_tests.run(sample(limit_s=2))
    assert result.failure is not None
    assert result.failure.startswith("not done after 2 s")


def test_a_missing_need_leaves_the_tier_out(tests_folder: Path) -> None:
    tier = Tier("sample", (("false",),), needs=(Need("thing", lambda: "no thing here"),), folders=("sample",))
    result = run_tests.run(tier)
    assert (result.left_out, result.failure) == ("no thing here", None)


def test_every_command_of_a_tier_runs_though_one_failed(tests_folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    result = run_tests.run(Tier("lint", (("false",), ("touch", str(mark)))))
    assert result.failure == "exit code 1 of `false`"
    assert mark.exists()


def test_a_folder_without_a_tier_is_found(tmp_path: Path) -> None:
    for name in ("unit", "forgotten", "fixtures", "helpers"):
        (tmp_path / name).mkdir()
    for name in ("unit", "forgotten", "fixtures"):
        (tmp_path / name / "test_it.py").touch()
    assert run_tests.unknown_folders(tmp_path) == ["forgotten"]
