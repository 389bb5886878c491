"""A schedule that fails is told by one command, in its shortest form."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest

from pulumi_lium.lifecycle import order
from tools import soak

from .network import Fault
from .points import Kill
from .schedule import Schedule, Step, schedule_of
from .shrink import describe, shrink
from .simulator import run


def test_a_seed_always_stands_for_the_same_life() -> None:
    for seed in range(20):
        assert schedule_of(seed) == schedule_of(seed)
        told: list[list[str]] = [[], []]
        verdicts = [run(schedule_of(seed), say=lines.append) for lines in told]
        assert told[0] == told[1]
        assert verdicts[0] == verdicts[1]


def test_a_failing_schedule_is_shortened_to_what_matters() -> None:
    long = Schedule(
        (
            Step(kill=Kill("order", 0, "after"), faults=(Fault("list", "503", 1, 3), Fault("ttl", "503")), ttl="8h"),
            Step("refresh", wait=40.0, faults=(Fault("list", "drop"),)),
            Step("up", wait=200.0, resources=("train", "eval")),
        ),
        lag=6.0,
        foreign=("prefix", "same mark"),
    )
    with patch.object(order, "resume", lambda *arguments: None):
        assert "doubles" in run(long).kinds
        short = shrink(long, lambda schedule: "doubles" in run(schedule).kinds)
        assert "doubles" in run(short).kinds
    assert short == Schedule((Step(kill=Kill("order", 0, "after")),))
    assert describe(short) == "Schedule(steps=(Step(kill=Kill(label='order', nth=0, when='after')),))"


def test_the_command_of_a_failing_seed_tells_its_story_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(order, "resume", lambda *arguments: None):
        _, failed = soak.run_seeds(range(200))
        seed = failed[0][0]
        capsys.readouterr()
        began = time.process_time()
        assert soak.replay(seed) is False
        spent = time.process_time() - began
    told = capsys.readouterr().out
    assert "$ up" in told
    assert "killed" in told
    assert told.splitlines()[-1] == "fails"
    assert soak.replay_command(seed).endswith(f"-m tools.soak --replay {seed}")
    assert spent < 1


def test_a_soak_sums_up_and_names_each_seed_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    counts, failed = soak.soak(0, 40, jobs=1)
    assert (counts["schedules"], failed) == (40, [])
    with patch.object(order, "resume", lambda *arguments: None):
        counts, failed = soak.soak(0, 300, jobs=1)
    assert counts["schedules"] == 300
    assert failed
    assert soak.replay_command(failed[0][0]) in capsys.readouterr().out
