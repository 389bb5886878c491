"""`make soak` as a person starts it: its two variables, its last line, its exit code."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest

from pulumi_lium.lifecycle import order
from tools import soak


def _soak(monkeypatch: pytest.MonkeyPatch, **variables: str) -> object:
    """The exit code of `make soak`, or the line that it ends with."""
    monkeypatch.setattr("sys.argv", ["soak", "--jobs", "1"])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        soak.main()
    return ended.value.code


def test_the_last_line_of_a_soak_sums_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _soak(monkeypatch, SCHEDULES="12", SEED="300") == 0
    *_, seeds, last = capsys.readouterr().out.splitlines()
    assert seeds.startswith("seeds 300 to 311: killed ")
    assert re.fullmatch(
        r"schedules 12, orphans 0, foreign touched 0, double orders 0, schedules a second [1-9]\d*", last
    )
    with patch.object(order, "resume", lambda *arguments: None):
        assert _soak(monkeypatch, SCHEDULES="200", SEED="0") == 1
    said = capsys.readouterr().out.splitlines()
    assert int(re.findall(r"double orders (\d+)", said[-1])[0]) > 0
    assert any("tools.soak --replay" in line for line in said)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SCHEDULES", "0", "too small: at least 1"),
        ("SCHEDULES", "1e6", "no whole number"),
        ("SEED", "-1", "too small: at least 0"),
        ("SEED", "x", "no whole number"),
    ],
)
def test_a_soak_of_no_number_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    assert str(_soak(monkeypatch, **{name: value})).startswith(f"{name}={value} is {why}")
