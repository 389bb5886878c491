"""The simulator can fail: each of these faults, put into the product, is caught within so many schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from pulumi_lium.api import Conflict
from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle import abandoned, context, diff, order, read, remove, settle
from pulumi_lium.lifecycle.intents import NullIntents
from pulumi_lium.lifecycle.members import by_rank, members_of
from pulumi_lium.recovery import recover, survey

from .disk import Disk
from .schedule import schedule_of
from .simulator import run

Mutant = Callable[[], Iterator[dict[str, Any]]]
MUTANTS: dict[str, tuple[Mutant, str, int]] = {}
"""Name → the fault, the invariant that it breaks, and within how many schedules it has to be caught."""


def mutant(breaks: str, within: int) -> Callable[[Mutant], Mutant]:
    """Registers a fault; what it yields goes to `run`."""

    def register(fault: Mutant) -> Mutant:
        MUTANTS[fault.__name__] = (fault, breaks, within)
        return fault

    return register


class _Forgetful(NullIntents):
    def look(self, *, aside: object = None) -> list[Any]:
        return []

    def claim_abandoned(self, owner: str | None = None, *, aside: object = None) -> list[Any]:
        return []


class _NoDisk(Disk):
    def journal(self, *arguments: Any) -> Any:
        return _Forgetful()


@mutant("orphans", within=100)
def no_intent_is_written() -> Iterator[dict[str, Any]]:
    yield {"disk": _NoDisk}


@mutant("doubles", within=400)
def open_intents_are_not_settled_before_an_order() -> Iterator[dict[str, Any]]:
    with patch.object(order, "resume", lambda *arguments: None):
        yield {}


@mutant("wrong", within=600)
def an_interrupted_order_of_another_resource_is_not_named() -> Iterator[dict[str, Any]]:
    with patch.object(context.Handled, "untold", lambda *arguments: []):
        yield {}


@mutant("orphans", within=400)
def an_intent_is_closed_before_the_state_holds_the_cluster() -> Iterator[dict[str, Any]]:
    real = settle.note

    def note(ctx: Any, intent: Any) -> None:
        real(ctx, intent)
        if intent.stage == "listed":
            ctx.intents.close(intent.idempotency_key)

    with patch.object(settle, "note", note):
        yield {}


@mutant("doubles", within=400)
def a_lost_answer_is_taken_for_a_refusal() -> Iterator[dict[str, Any]]:
    def send(ctx: Any, intent: Any) -> Any:
        outcome = settle.send(ctx, intent)
        if isinstance(outcome, LiumError):
            raise Conflict("refused")
        return outcome

    with patch.object(order, "send", send):
        yield {}


@mutant("doubles", within=4000)
def a_lost_order_is_given_up_too_early() -> Iterator[dict[str, Any]]:
    with patch.object(abandoned, "IN_FLIGHT_SECONDS", 30.0), patch.object(settle, "IN_FLIGHT_SECONDS", 30.0):
        yield {}


@mutant("wrong", within=4000)
def a_404_is_believed() -> Iterator[dict[str, Any]]:
    ask, present = remove._ask, remove.present_members
    gone: set[str] = set()

    def believing(ctx: Any, cluster_id: str, *rest: Any) -> Any:
        answer = ask(ctx, cluster_id, *rest)
        if "404" in (answer[1] or ""):
            gone.add(cluster_id)
        return answer

    def members(ctx: Any, cluster_id: str, *rest: Any) -> Any:
        return [] if cluster_id in gone else present(ctx, cluster_id, *rest)

    with patch.object(remove, "_ask", believing), patch.object(remove, "present_members", members):
        yield {}


@mutant("wrong", within=4000)
def a_listing_that_fails_reads_as_empty() -> Iterator[dict[str, Any]]:
    with ExitStack() as patches:
        for module in (remove, read, diff):
            real = module.present_members

            def members(*arguments: Any, real: Any = real, **more: Any) -> Any:
                try:
                    return real(*arguments, **more)
                except LiumError:
                    return []

            patches.enter_context(patch.object(module, "present_members", members))
        yield {}


@mutant("foreign", within=400)
def a_prefix_counts_as_ours() -> Iterator[dict[str, Any]]:
    def locate(pods: Any, intent: Any) -> Any:
        first = intent.pod_name.partition("-")[0]
        named = [pod for pod in pods if pod.name.startswith(first) and pod.cluster_id]
        if not named:
            return None
        members = members_of(named, named[0].cluster_id)
        return settle.Placed(named[0].cluster_id, by_rank(members), tuple(pod.id for pod in members))

    with ExitStack() as patches:
        for module in (abandoned, survey, recover):
            patches.enter_context(patch.object(module, "locate", locate))
        yield {}


@mutant("wrong", within=2000)
def the_snapshot_is_ignored() -> Iterator[dict[str, Any]]:
    real = settle.members_of_order

    def members_of_order(pods: Any, intent: Any, pod_ids: Any) -> Any:
        return real(pods, replace(intent, snapshot=()), pod_ids)

    with patch.object(settle, "members_of_order", members_of_order):
        yield {}


@mutant("foreign", within=1000)
def the_mark_of_the_owner_counts_as_ours() -> Iterator[dict[str, Any]]:
    real = survey._seen

    def seen(kind: str, *rest: Any) -> Any:
        return replace(real(kind, *rest), problem=None)

    with patch.object(survey, "_seen", seen):
        yield {}


@mutant("wrong", within=4000)
def what_the_state_holds_counts_as_a_leftover() -> Iterator[dict[str, Any]]:
    with patch.object(survey, "_may_be_held", lambda look, intent: None):
        yield {}


@mutant("orphans", within=2000)
def an_order_that_another_s_listing_does_not_show_is_given_up() -> Iterator[dict[str, Any]]:
    with patch.object(survey, "require_holder_of_order", lambda ctx, intent: None):
        yield {}


@mutant("wrong", within=400)
def a_cluster_that_another_s_listing_does_not_show_is_gone() -> Iterator[dict[str, Any]]:
    with ExitStack() as patches:
        for module in (remove, read):
            patches.enter_context(patch.object(module, "require_holder", lambda ctx, cluster_id, state: None))
        yield {}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_is_caught(name: str) -> None:
    fault, breaks, within = MUTANTS[name]
    with contextmanager(fault)() as parts:
        caught = next((seed for seed in range(within) if breaks in run(schedule_of(seed), **parts).kinds), None)
    assert caught is not None, f"{within} schedules ran and none showed {breaks}"
