"""Every point at which a command can die, and every pair of such a point and one of the recovery that follows.

What the seeds of `test_schedules` meet by chance is gone through here one by one: the effects of a command are counted
by letting it die at the first, the second, …, until it ends before it would have died.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from .points import Kill
from .schedule import Schedule, Step
from .simulator import Verdict, run

WRITES = ("open", "order", "note", "ttl", "save", "delete", "close")
"""Effects that leave something behind. Nothing that lasts differs between two of them: what only reads is left out."""
DIES_AT = {
    "up": "open order note ttl save close",
    "destroy": "delete save close",
    "recover": "note ttl save close",
    "sweep": "note delete close",
    "sweep --stack-export": "note delete close",
    "teardown": "note delete save close",
}
"""Writes at which a recovery on the same disk has died, if its test was worth anything."""

Play = Callable[[Kill], Verdict]


def deaths(play: Play, *, before: int = 0) -> Iterator[tuple[Kill, Verdict]]:
    """Each death at a write that `play` meets, with what it came to.

    `before`: kills that strike ahead of it. The second death of a pair is that of the whole process, with
    nothing on its way.
    """
    for label in WRITES:
        for nth in itertools.count():
            kills = [Kill(label, nth), Kill(label, nth, "after")]
            if not before:
                kills.append(Kill(label, nth, engine=True))
            if label == "order" and not before:
                kills += [Kill(label, nth, "late", delay=delay) for delay in (20.0, 290.0)]
            found = [(kill, play(kill)) for kill in kills]
            struck = [(kill, verdict) for kill, verdict in found if verdict.kills > before]
            yield from struck
            if not struck:
                break


def schedule(first: Kill | None, verb: str, second: Kill | None, *, bare: bool) -> Schedule:
    """`up` with `first`, then `verb` with `second` (on a bare disk), then `verb` until it says that it is done."""
    steps = (Step(kill=first, ttl="8h"), Step(verb, wait=40.0, kill=second, ttl="8h", bare=bare))
    return Schedule(steps, finale=verb)


@pytest.mark.parametrize("bare", [False, True], ids=["same disk", "bare disk"])
@pytest.mark.parametrize("verb", DIES_AT)
def test_a_recovery_that_dies_as_well_leaves_nothing(verb: str, bare: bool) -> None:
    met = set[str]()
    for first, verdict in deaths(lambda kill: run(schedule(kill, verb, None, bare=bare))):
        assert verdict.ok, (first, verdict.notes)

        def again(kill: Kill, first: Kill = first) -> Verdict:
            return run(schedule(first, verb, kill, bare=bare))

        for second, both in deaths(again, before=1):
            met.add(second.label)
            assert both.ok, (first, second, both.notes)
    assert bare or met >= set(DIES_AT[verb].split())


@pytest.mark.parametrize("verb", ["destroy", "teardown"])
def test_a_removal_that_dies_is_finished_by_the_next(verb: str) -> None:
    for kill, verdict in deaths(lambda kill: run(schedule(None, verb, kill, bare=False))):
        assert verdict.ok, (kill, verdict.notes)
