"""The commands of a schedule, by the product's own code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.recovery import recover, sweep, teardown
from pulumi_lium.recovery.export import CLUSTER_TYPE, StackExport, parse_export
from pulumi_lium.recovery.stack import PulumiFailed
from pulumi_lium.recovery.survey import survey

from .engine import Checkpoint, Resource, over_the_wire
from .network import OTHER, OURS
from .schedule import Step
from .wire import SETTINGS
from .world import STACK, World


class MayStillBill(LiumError):
    """A command that ends with exit code 4."""


def run_command(world: World, step: Step) -> None:
    """One command in a new process. Raises `LiumError` where it fails, `Killed` where it dies."""
    ctx = world.start()
    world.network.key = OTHER if step.foreign_key else OURS
    try:
        match step.verb:
            case "up":
                world.engine(ctx).up(world.program(step), wait=world.schedule.wait_ready)
            case "destroy":
                world.engine(ctx).destroy()
            case "refresh":
                world.engine(ctx).refresh()
            case "sweep" | "sweep --stack-export":
                if not world.network.unnoted or step.verb != "sweep":
                    world.network.held = frozenset(resource.id for resource in world.checkpoint.resources.values())
                _sweep(world, ctx, _export(world, ctx) if step.verb != "sweep" else None)
            case "sweep --name-prefix":
                for name in sorted(world.names_told):
                    _sweep(world, ctx, _export(world, ctx), name_prefix=name)
            case "recover":
                _recover(world, ctx)
            case "teardown":
                _teardown(world, ctx)
            case _:
                raise AssertionError(step.verb)
    finally:
        world.network.key = OURS
        world.network.held = frozenset()
        world.end()


class _OneByOne:
    """A pool whose tasks run in the caller's thread: the simulation has one time for everybody."""

    def __init__(self, workers: int) -> None: ...

    def __enter__(self) -> _OneByOne:
        return self

    def __exit__(self, *what: object) -> None: ...

    def map(self, task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(task, items)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments))
        except LiumError as error:
            future.set_exception(error)
        return future


def _sweep(world: World, ctx: Context, export: StackExport | None, **options: Any) -> None:
    """`pulumi-lium sweep --yes`. Raises `MayStillBill`, but for clusters of others that it has left alone."""
    journal: Any = ctx.intents
    found = survey(lambda account: ctx, journal, export=export, **options)
    with patch.object(sweep, "ThreadPoolExecutor", _OneByOne):
        removals = sweep.clean(lambda account: ctx, journal, found)
    errors = {id(removal.finding): removal.error for removal in removals}
    left = [
        f"{finding.title}: {finding.problem or errors[id(finding)]}"
        for finding in sweep.still_open(found, removals)
        if finding.cluster_id in (None, *world.network.ours)
    ]
    if left:
        raise MayStillBill("; ".join(left))


def _recover(world: World, ctx: Context) -> None:
    """`pulumi-lium recover --yes`."""
    export = _export(world, ctx)
    if not export.pending:
        return
    journal: Any = ctx.intents
    stack: Any = _Stack(world)
    recover.plan(lambda account: ctx, journal, export)
    recover.recover(
        stack,
        lambda account: ctx,
        journal,
        export,
        now=ctx.clock.now(),
        lock_age=timedelta(0),
        report=ctx.report,
    )


def _teardown(world: World, ctx: Context) -> None:
    """`pulumi-lium teardown`. Raises `MayStillBill`."""
    journal: Any = ctx.intents
    stack: Any = _Stack(world)
    down = teardown.Teardown(
        stack,
        lambda account: ctx,
        journal,
        _export(world, ctx),
        lock_age=timedelta(0),
        report=ctx.report,
        clock=ctx.clock,
    )
    with (
        patch.object(sweep, "ThreadPoolExecutor", _OneByOne),
        patch.object(teardown, "ThreadPoolExecutor", _OneByOne),
    ):
        outcome = down.run()
    left = [f"{left.title}: {left.why}" for left in outcome.leftovers if left.cluster_id in (None, *world.network.ours)]
    if left or outcome.failures or not outcome.known:
        raise MayStillBill("; ".join((*left, *outcome.failures)))


class _Stack:
    """`PulumiStack`: what `recover` and `teardown` ask of the Pulumi CLI."""

    name = STACK.rpartition("/")[2]
    full_names = frozenset({STACK})

    def __init__(self, world: World) -> None:
        self._world = world

    def owns(self, owner: str) -> bool:
        return owner.startswith(f"{STACK}/")

    def destroy(self, *, delete_timeout: float | None = None) -> None:
        """The engine, with a provider of its own."""
        ctx = self._world.start()
        try:
            self._world.engine(ctx).destroy()
        except LiumError as error:
            raise PulumiFailed(str(error)) from error
        finally:
            self._world.end()

    def export(self) -> str:
        return json.dumps(export_document(self._world.checkpoint))

    def import_(self, document: Mapping[str, Any]) -> None:
        deployment = document["deployment"]
        names = [row["urn"].rpartition("::")[2] for row in deployment["resources"]]
        if len(set(names)) < len(names):
            raise PulumiFailed("error: duplicate resource in the state; it was not imported")
        checkpoint = self._world.checkpoint

        def change() -> None:
            before = checkpoint.resources
            checkpoint.resources = {
                name: Resource(
                    row["id"],
                    row["inputs"],
                    over_the_wire(row["outputs"]),
                    ready=name in before and before[name].id == row["id"] and before[name].ready,
                )
                for name, row in zip(names, deployment["resources"], strict=True)
            }
            # The engine forgets every pending operation when it imports, those in the document too.
            checkpoint.pending = []
            saved_at = deployment["manifest"].get("time")
            checkpoint.saved_at = datetime.fromisoformat(saved_at) if saved_at else None

        self._world.points.around("save", change)


def _export(world: World, ctx: Context) -> StackExport:
    """`pulumi stack export`, as the product reads it."""
    text = json.dumps(export_document(world.checkpoint))
    same_key = world.told_same_key and world.network.key == OURS
    return parse_export(text, "the export", base_url=SETTINGS.base_url, now=ctx.clock.now(), same_key=same_key)


def export_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """The engine's state in the form of `pulumi stack export`."""
    manifest = {"time": checkpoint.saved_at.isoformat()} if checkpoint.saved_at else {}
    return {
        "version": 3,
        "deployment": {
            "manifest": manifest,
            "resources": [
                {
                    "urn": _urn(name),
                    "type": CLUSTER_TYPE,
                    "id": resource.id,
                    "inputs": resource.inputs,
                    "outputs": resource.state,
                }
                for name, resource in checkpoint.resources.items()
            ],
            "pending_operations": [
                {
                    "type": operation.kind,
                    "resource": {
                        "urn": _urn(operation.name),
                        "type": CLUSTER_TYPE,
                        "inputs": operation.inputs,
                        **({"id": operation.id} if operation.id else {}),
                    },
                }
                for operation in checkpoint.pending
            ],
        },
    }


def _urn(name: str) -> str:
    return f"urn:pulumi:dev::web::{CLUSTER_TYPE}::{name}"
