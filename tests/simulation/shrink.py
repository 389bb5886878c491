"""From a schedule that fails to the shortest one that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

from .schedule import Schedule, Step


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool], *, most_runs: int = 400) -> Schedule:
    """The shortest schedule that `fails`, found by leaving out one thing at a time; `schedule` itself must fail."""
    runs = 0
    while True:
        for candidate in _simpler(schedule):
            runs += 1
            if fails(candidate):
                schedule = candidate
                break
            if runs >= most_runs:
                return schedule
        else:
            return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Every schedule that lacks one thing, the largest things first."""
    steps = schedule.steps
    for place in reversed(range(len(steps))):
        yield replace(schedule, steps=steps[:place] + steps[place + 1 :])
    for changed in _plainer(schedule, skip=("steps",)):
        yield changed
    for place, step in enumerate(steps):
        for changed in _simpler_step(step):
            yield replace(schedule, steps=(*steps[:place], changed, *steps[place + 1 :]))


def _simpler_step(step: Step) -> Iterator[Step]:
    yield from _plainer(step, skip=("verb", "faults", "kill"))
    if step.kill:
        yield replace(step, kill=None)
        for kill in _plainer(step.kill, skip=("label", "nth")):
            yield replace(step, kill=kill)
        if step.kill.nth:
            yield replace(step, kill=replace(step.kill, nth=step.kill.nth - 1))
    for place, fault in enumerate(step.faults):
        rest = (step.faults[:place], step.faults[place + 1 :])
        yield replace(step, faults=rest[0] + rest[1])
        for plain in _plainer(fault, skip=("label", "kind")):
            yield replace(step, faults=(*rest[0], plain, *rest[1]))


def _plainer(thing: Any, skip: tuple[str, ...]) -> Iterator[Any]:
    """The same with one field at its default."""
    for one in _other_than_default(thing, skip):
        yield replace(thing, **{one.name: one.default})


def _other_than_default(thing: Any, skip: tuple[str, ...] = ()) -> list[Field[Any]]:
    return [one for one in fields(thing) if one.name not in skip and getattr(thing, one.name) != one.default]


def describe(thing: Any) -> str:
    """A schedule, a step, a kill or a fault in one line, without what is at its default."""
    if isinstance(thing, tuple):
        return f"({', '.join(map(describe, thing))}{',' if len(thing) == 1 else ''})"
    if not is_dataclass(thing):
        return repr(thing)
    told = ", ".join(f"{one.name}={describe(getattr(thing, one.name))}" for one in _other_than_default(thing))
    return f"{type(thing).__name__}({told})"
