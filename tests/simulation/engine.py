"""The engine as far as a crash can tell: what it saves and when, and what it asks of the provider (recipes, engine).

A resource's inputs stand in a pending operation before its create or delete runs; the outcome is saved when the call
returns. A killed engine leaves the operation pending. The next `up` only warns of a pending create, keeps it, and
creates anew; a failed call ends its operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.diff import diff
from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.read import read
from pulumi_lium.lifecycle.ready import ready_args, wait_ready
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.lifecycle.update import update

from .points import Points


@dataclass(frozen=True)
class Resource:
    """A cluster in the engine's state."""

    id: str
    inputs: dict[str, Any]
    state: dict[str, Any]
    ready: bool = False
    """Its readiness child is in the state too."""


@dataclass(frozen=True)
class Pending:
    """An operation that was begun: `creating`, `updating` or `deleting`."""

    kind: str
    name: str
    inputs: dict[str, Any]
    id: str | None = None
    state: dict[str, Any] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """The engine's state on its backend; it outlives processes and runners."""

    resources: dict[str, Resource] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    saved_at: datetime | None = None


class Engine:
    """One run of the CLI. `dropped(id)` is called when the state stops claiming a cluster."""

    def __init__(
        self,
        ctx: Context,
        checkpoint: Checkpoint,
        points: Points,
        enter: Callable[[str], None],
        dropped: Callable[[str], None],
    ) -> None:
        self._ctx, self._saved, self._points = ctx, checkpoint, points
        self._enter, self._dropped = enter, dropped
        # An update drops what an earlier engine left pending, but for creations: those need a person.
        checkpoint.pending = [one for one in checkpoint.pending if one.kind == "creating"]

    # -- commands ------------------------------------------------------------------------------------------------------

    def up(self, program: Mapping[str, Mapping[str, Any]], *, wait: bool) -> None:
        """`pulumi up`. Raises what the first failed call raises."""
        for name, news in program.items():
            self._enter(name)
            self._step(name, news)
            if not self._saved.resources[name].ready:
                self._ready(name, wait)
        for name in [name for name in self._saved.resources if name not in program]:
            self._enter(name)
            self._delete(name)

    def destroy(self) -> None:
        """`pulumi destroy`."""
        for name in list(self._saved.resources):
            self._enter(name)
            self._delete(name)

    def refresh(self) -> None:
        """`pulumi refresh`."""
        for name, resource in list(self._saved.resources.items()):
            self._enter(name)
            reading = read(self._ctx, resource.id, resource.state)
            if reading is None:
                self._save(lambda name=name: self._drop(name))  # type: ignore[misc]
            else:
                inputs = resource.inputs if reading.inputs is None else over_the_wire(reading.inputs)
                now = replace(resource, inputs=inputs, state=over_the_wire(reading.state))
                self._save(lambda name=name, now=now: self._saved.resources.__setitem__(name, now))  # type: ignore[misc]

    # -- one resource --------------------------------------------------------------------------------------------------

    def _step(self, name: str, news: Mapping[str, Any]) -> None:
        there = self._saved.resources.get(name)
        inputs = self._check(there.inputs if there else {}, news)
        if there is not None:
            change = diff(self._ctx, there.id, there.state, inputs)
            if not change.replaces:
                if change.updates:
                    self._update(name, there, inputs)
                return
            self._delete(name)
            inputs = self._check({}, news)
        self._create(name, inputs)

    def _check(self, olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
        inputs, failures = check(self._ctx, olds, news)
        assert not failures, failures
        return over_the_wire(inputs)

    def _create(self, name: str, inputs: dict[str, Any]) -> None:
        operation = self._begin(Pending("creating", name, inputs))
        created = self._call(operation, lambda: order(self._ctx, inputs))
        resource = Resource(created.cluster_id, inputs, over_the_wire(created.state))
        self._end(operation, lambda: self._saved.resources.__setitem__(name, resource))

    def _update(self, name: str, there: Resource, inputs: dict[str, Any]) -> None:
        operation = self._begin(Pending("updating", name, inputs, there.id))
        state = self._call(operation, lambda: update(self._ctx, there.id, there.state, inputs))
        now = replace(there, inputs=inputs, state=over_the_wire(state))
        self._end(operation, lambda: self._saved.resources.__setitem__(name, now))

    def _delete(self, name: str) -> None:
        there = self._saved.resources[name]
        operation = self._begin(Pending("deleting", name, there.inputs, there.id, there.state))
        self._call(operation, lambda: remove(self._ctx, there.id, there.state))
        self._end(operation, lambda: self._drop(name))

    def _ready(self, name: str, wait: bool) -> None:
        """The create of the readiness child, which the engine begins once it has saved the cluster."""
        there = self._saved.resources[name]
        self._ctx.note_in_state(there.id)
        state = there.state
        told = {key: state.get(key) for key in ("name", "nodes", "members", "price_per_hour", "ordered_at")}
        wait_ready(self._ctx, ready_args({"cluster_id": there.id, "wait_for_ready": wait, **told}))
        self._save(lambda: self._saved.resources.__setitem__(name, replace(there, ready=True)))

    def _drop(self, name: str) -> None:
        self._dropped(self._saved.resources.pop(name).id)

    # -- saves ---------------------------------------------------------------------------------------------------------

    def _begin(self, operation: Pending) -> Pending:
        self._save(lambda: self._saved.pending.append(operation))
        return operation

    def _call(self, operation: Pending, verb: Callable[[], Any]) -> Any:
        try:
            return verb()
        except LiumError:
            self._end(operation, lambda: None)
            raise

    def _end(self, operation: Pending, outcome: Callable[[], object]) -> None:
        def change() -> None:
            self._saved.pending = [one for one in self._saved.pending if one is not operation]
            outcome()

        self._save(change)

    def _save(self, change: Callable[[], object]) -> None:
        def save() -> None:
            change()
            self._saved.saved_at = self._ctx.clock.now()

        self._points.around("save", save)


def over_the_wire(value: Any) -> Any:
    """A value as it comes back from the engine: numbers are floats, and what is None is missing."""
    if isinstance(value, Mapping):
        return {name: over_the_wire(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [over_the_wire(item) for item in value]
    return float(value) if type(value) is int else value
