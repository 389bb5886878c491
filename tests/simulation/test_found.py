"""Schedules that broke an invariant once, in their shortest form."""

from __future__ import annotations

import pytest

from .network import Fault
from .points import Kill
from .schedule import NAMESAKE, Schedule, Step
from .simulator import run

KILLED_AFTER_ORDER = Step(kill=Kill("order", 0, "after"))
BUSY = (Fault("order", "429", times=2, value=60.0),)
FOUND = {
    "the note of a listed cluster fails, and a sweep takes the running cluster for a leftover": Schedule(
        (Step(faults=(Fault("note", "before", skip=2),)),), finale="sweep"
    ),
    "the intent of a running cluster cannot be closed, and a sweep takes it for a leftover": Schedule(
        (Step(faults=(Fault("close", "before"),)), Step("sweep"))
    ),
    "the process dies after the save, and a sweep takes the cluster for a leftover": Schedule(
        (Step(kill=Kill("save", 1, "after")), Step("sweep"))
    ),
    "two creates of one resource are cut off on disks of their own": Schedule(
        (KILLED_AFTER_ORDER, Step(kill=Kill("order", 0, "after"), bare=True)), finale="recover", bare_finale=True
    ),
    "a failed cluster of somebody else has the name that the program chose": Schedule(
        (Step(kill=Kill("save", 0, "after")),), finale="sweep --stack-export", named=True, foreign=(NAMESAKE,)
    ),
    "an order that was told twice to wait is answered, and its pods are not listed yet": Schedule(
        (Step(kill=Kill("any", 11, "after"), faults=BUSY),), lag=6.0
    ),
    "an order that was told twice to wait dies on its way, and arrives late": Schedule(
        (Step(kill=Kill("order", 2, "late", 290.0), faults=BUSY),), finale="sweep", idempotency=False
    ),
    "a create that does not tell its key is gone, and only a person can say whose it was": Schedule(
        (
            Step(kill=Kill("note", 1), faults=(Fault("me", "503", times=5),)),
            Step("sweep --stack-export"),
        ),
        finale="teardown",
    ),
    "a cluster that has ended has the name that the program chose, and keeps the state from being settled": Schedule(
        (Step(kill=Kill("list", 0)),), finale="recover", named=True, foreign=(NAMESAKE,)
    ),
    "the resource of an interrupted order is renamed": Schedule(
        (KILLED_AFTER_ORDER, Step("up", wait=400.0, resources=("eval",)))
    ),
    "an interrupted order's resource leaves a program whose other cluster runs on": Schedule(
        (
            Step("up", resources=("eval",)),
            Step("up", kill=Kill("order", 0, "after"), resources=("eval", "train")),
            Step("refresh", resources=("eval",)),
        ),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    verdict = run(FOUND[name])
    assert verdict.ok, verdict.notes
