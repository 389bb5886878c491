"""A schedule: one seed's life of a stack, as plain data that can be read, replayed and shortened."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from .network import Fault
from .points import ANY, Kill

HOUR = 3600.0


@dataclass(frozen=True)
class Step:
    """One command, `wait` seconds after the last.

    `verb`: `up`, `destroy`, `refresh`, `sweep`, `sweep --stack-export`, `recover` or `teardown`. `bare`: the runner's
    disk is a new one. `foreign_key`: the command runs with the key of another account; never `up`. `busy`: others hold
    the two machines that an order would take first. `nodes`, `ttl` and `resources` are what the program asks for.
    """

    verb: str = "up"
    wait: float = 0.0
    kill: Kill | None = None
    faults: tuple[Fault, ...] = ()
    bare: bool = False
    foreign_key: bool = False
    busy: bool = False
    nodes: int = 2
    ttl: str | None = None
    resources: tuple[str, ...] = ("train",)


@dataclass(frozen=True)
class Schedule:
    """The service's settings, who else is there, and what happens. `finale` is the recovery that has to mend it.

    `named`: the program chooses the names of its pods, and uses them again.
    """

    steps: tuple[Step, ...]
    finale: str = "up"
    bare_finale: bool = False
    idempotency: bool = True
    cancel_in_flight: bool = True
    delete_seconds: float = 5.0
    lag: float = 0.0
    wait_ready: bool = False
    named: bool = False
    foreign: tuple[str, ...] = ()


FOREIGN = ("prefix", "other stack", "same mark", "mark alone", "other tenant")
NAMESAKE = "dead namesake"
"""Kinds of clusters that look like ours and are not; see `world.foreign_name`."""
_LABELS = ("order", "order", "order", "list", "ttl", "delete", "open", "note", "close", "save", "version", "me")
_PROGRAMS = (("train",), ("eval",), ("eval",), ("train", "eval"))
"""The resources that a program has from one step to the next: one is renamed, goes, or comes back."""
_VERBS = ("up", "up", "up", "up", "destroy", "refresh", "sweep", "sweep --stack-export", "recover", "teardown")
_FINALES = ("up", "up", "destroy", "sweep", "sweep --stack-export", "recover", "teardown")
_LOST = ("504", "504", "500", "lost", "html", "slow", "drop", "refused", "503", "429")
_WAITS = (*5 * (0.0, 0.0, 5.0, 40.0, 200.0, 400.0), 23.5 * HOUR, 25 * HOUR)


def schedule_of(seed: int) -> Schedule:
    """The schedule that a seed stands for."""
    rng = random.Random(seed)
    draw = rng.random
    ttl = "8h" if draw() < 0.4 else None
    resources = ("train", "eval") if draw() < 0.15 else ("train",)
    nodes = 3 if draw() < 0.1 else 2
    # Drawn apart, so that a seed's other draws do not depend on it.
    keys = random.Random(f"keys of {seed}")
    programs = random.Random(f"programs of {seed}")
    steps = []
    for place in range(rng.choice((1, 1, 2, 2, 2, 3, 4))):
        verb = "up" if place == 0 else rng.choice(_VERBS)
        if place and draw() < 0.15:
            nodes = 5 - nodes
        if place and draw() < 0.1:
            ttl = rng.choice(("8h", "30h", None))
        if place and programs.random() < 0.12:
            resources = programs.choice(_PROGRAMS)
        steps.append(
            Step(
                verb,
                wait=rng.choice(_WAITS) if place else 0.0,
                kill=_kill(rng) if draw() < 0.65 else None,
                faults=tuple(_fault(rng) for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2)))),
                bare=place > 0 and draw() < 0.15,
                foreign_key=verb != "up" and keys.random() < 0.15,
                busy=draw() < 0.3,
                nodes=nodes,
                ttl=ttl,
                resources=resources,
            )
        )
    foreign = tuple(kind for kind in FOREIGN if draw() < 0.15)
    named = draw() < 0.1
    if named:
        # A running cluster of that name keeps an order from being placed at all; a failed one does not. Without the
        # journal a chosen name does not tell whose a cluster is (docs/guarantees.md).
        foreign = tuple(kind for kind in foreign if kind != "prefix") + ((NAMESAKE,) if draw() < 0.5 else ())
        steps = [replace(step, bare=False) for step in steps]
    return Schedule(
        tuple(steps),
        finale=rng.choice(_FINALES),
        bare_finale=not named and draw() < 0.3,
        idempotency=draw() < 0.7,
        cancel_in_flight=draw() < 0.8,
        delete_seconds=rng.choice((0.0, 5.0, 5.0, 45.0)),
        lag=rng.choice((0.0, 0.0, 3.0, 6.0)),
        wait_ready=draw() < 0.15,
        named=named,
        foreign=foreign,
    )


def _kill(rng: random.Random) -> Kill:
    engine = rng.random() < 0.15
    if rng.random() < 0.4:
        return Kill(ANY, rng.randrange(30), rng.choice(("before", "after")), engine=engine)
    label = rng.choice(_LABELS)
    nth = rng.choice((0, 0, 0, 1, 1, 2, 3))
    if label == "order" and rng.random() < 0.3:
        return Kill(label, nth, "late", delay=rng.choice((1.0, 20.0, 100.0, 290.0)))
    return Kill(label, nth, rng.choice(("before", "after")), engine=engine)


def _fault(rng: random.Random) -> Fault:
    draw = rng.random()
    if draw < 0.4:
        kind = rng.choice(_LOST)
        value = {"429": rng.choice((0.0, 7.0, 60.0)), "slow": rng.choice((3.0, 40.0, 280.0))}.get(kind, 0.0)
        return Fault("order", kind, rng.choice((0, 0, 0, 1)), rng.choice((1, 1, 2, 3)), value)
    if draw < 0.55:
        times = rng.choice((1, 3, 9, 40, 200))
        return Fault("list", rng.choice(("503", "429", "drop", "html")), rng.choice((0, 1, 2, 4)), times)
    if draw < 0.7:
        return Fault(
            "delete", rng.choice((*_LOST[:5], "404", "503", "429")), rng.choice((0, 0, 1)), rng.choice((1, 2, 5))
        )
    if draw < 0.76:
        return Fault(
            "ttl", rng.choice(("503", "lost", "drop", "404", "429")), rng.choice((0, 1)), rng.choice((1, 3, 9))
        )
    if draw < 0.82:
        return Fault(rng.choice(("open", "note", "close")), rng.choice(("before", "after")), rng.randrange(3))
    if draw < 0.86:
        return Fault("order", rng.choice(("401", "402", "403", "404")), rng.choice((0, 1)))
    if draw < 0.9:
        label = rng.choice(("version", "offers", "templates", "me", "me"))
        return Fault(label, rng.choice(("503", "drop")), 0, rng.choice((1, 5)))
    kind = rng.choice(("rival", "namesake", "machine_lost", "pod_fails", "pod_stuck", "pod_lost", "refuse_delete"))
    label = "order" if kind == "rival" else rng.choice(("order", "list", "delete"))
    return Fault(label, kind, rng.choice((0, 0, 1, 2)), 1, float(rng.randrange(2)))
