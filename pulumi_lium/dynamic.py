"""The dynamic-provider shell: the engine's calls in, the verbs of `lifecycle` out.

The path of this module and the names of its two provider classes are state format: the engine stores them with every
resource and loads them again on each call, a destroy years later included. They never move and hold no attributes;
what lives longer than a call (keys, sessions, locks) lives here at module level. The engine's worker threads share it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    Config,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)
from pulumi.output import Unknown
from pulumi.runtime import rpc

if TYPE_CHECKING:
    from pulumi_lium.lifecycle.context import Context

    from .engine_watch import EngineWatch
    from .recovery.intents import FileIntents

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()
_config: Config | None = None
"""The stack's configuration, secrets in plain: it stays in this process."""
_contexts: dict[str | None, Context] = {}
"""One per account."""
_secrets: set[str] = set()
"""Every API key that was used here, so that no error repeats one."""


class Failed(Exception):
    """What the engine shows of an error: its text, no traceback, no key."""


# Where a traceback would name the module, a person reads only "Failed: …".
Failed.__module__ = "builtins"


def _at_the_edge(verb: F) -> F:
    """Turns what a verb raises into one message for a person."""

    @functools.wraps(verb)
    def call(*args: Any) -> Any:
        from pulumi_lium.api.errors import LiumError

        try:
            with _watch().call():
                return verb(*args)
        except LiumError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001  the engine would show a person the whole traceback
            message = (
                f"{type(error).__name__}: {error}{_where(error)}. This is a fault of pulumi-lium, please report it"
            )
        raise Failed(_without_secrets(message)) from None

    return call  # type: ignore[return-value]


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"


class LiumClusterProvider(ResourceProvider):
    """The order: its create returns as soon as the members are listed."""

    serialize_as_secret_always = False

    @_at_the_edge
    def configure(self, req: ConfigureRequest) -> None:
        _configure(req)

    @_at_the_edge
    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        from pulumi_lium.lifecycle.check import check

        inputs, failures = check(_context(news), _received(_olds), _received(news))
        return CheckResult(_sent(inputs), _told(failures))

    @_at_the_edge
    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        from pulumi_lium.lifecycle.diff import diff

        change = diff(_context(_olds), _id, _received(_olds), _received(_news))
        return DiffResult(
            changes=change.changes, replaces=sorted(change.replaces), stables=[], delete_before_replace=True
        )

    @_at_the_edge
    def create(self, props: dict[str, Any]) -> CreateResult:
        from pulumi_lium.lifecycle.order import order

        created = order(_context(props), _received(props))
        return CreateResult(created.cluster_id, created.state)

    @_at_the_edge
    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        from pulumi_lium.lifecycle.read import read

        reading = read(_context(props), id_, _received(props))
        return _gone() if reading is None else ReadResult(id_, reading.state, reading.inputs)

    @_at_the_edge
    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        from pulumi_lium.lifecycle.update import update

        return UpdateResult(update(_context(_olds), _id, _received(_olds), _received(_news)))

    @_at_the_edge
    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        from pulumi_lium.lifecycle.remove import TIMEOUT_VARIABLE, remove

        limit = os.environ.get(TIMEOUT_VARIABLE)
        remove(_context(_props), _id, _received(_props), timeout=float(limit) if limit else None)


class LiumClusterReadyProvider(ResourceProvider):
    """Readiness: its create waits until every node runs. Deleting it changes nothing."""

    serialize_as_secret_always = False

    @_at_the_edge
    def configure(self, req: ConfigureRequest) -> None:
        _configure(req)

    @_at_the_edge
    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        from pulumi_lium.lifecycle.ready import check_ready

        inputs, failures = check_ready(_received(news))
        return CheckResult(_sent(inputs), _told(failures))

    @_at_the_edge
    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        from pulumi_lium.lifecycle.ready import diff_ready

        change = diff_ready(_id, _received(_olds), _received(_news))
        return DiffResult(
            changes=change.changes, replaces=sorted(change.replaces), stables=[], delete_before_replace=True
        )

    @_at_the_edge
    def create(self, props: dict[str, Any]) -> CreateResult:
        from pulumi_lium.lifecycle.ready import ready_args, wait_ready

        args = ready_args(_received(props))
        context = _context(props)
        if not _checkpoints_are_skipped():
            # The engine begins a child's create only after it has saved the parent.
            context.note_in_state(args.cluster_id)
        return CreateResult(args.cluster_id, wait_ready(_waiting(context), args))

    @_at_the_edge
    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        from pulumi_lium.lifecycle.ready import read_ready

        state = read_ready(_context(props), id_, _received(props))
        return _gone() if state is None else ReadResult(id_, state)

    @_at_the_edge
    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        from pulumi_lium.lifecycle.ready import ready_args, update_ready

        return UpdateResult(update_ready(_context(_news), ready_args(_received(_news)), _received(_olds)))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """The cluster is not this resource's to delete."""


def _gone() -> ReadResult:
    """The one answer that the engine reads as "no longer there"."""
    return ReadResult("", {})


def _configure(req: ConfigureRequest) -> None:
    """Keeps the stack's configuration for later: the keys are read when they are needed."""
    global _config
    with _lock:
        _config = req.config
    # In this process tracebacks would stand before the message that a person has to read.
    sys.tracebacklimit = 0


def _context(props: Mapping[str, Any]) -> Context:
    """The surroundings of a verb for the account that the resource names."""
    from pulumi_lium.lifecycle.state import setting

    account = setting(props, "account")
    name = account if isinstance(account, str) else None
    with _lock:
        if name not in _contexts:
            _contexts[name] = _new_context(name)
        return _contexts[name]


def _new_context(account: str | None) -> Context:
    import random

    from pulumi_lium.api import SYSTEM_CLOCK, LiumApi
    from pulumi_lium.lifecycle.accounts import settings_for
    from pulumi_lium.lifecycle.context import Context

    settings = settings_for(_config.get if _config else _nothing, os.environ, account)
    _secrets.add(settings.api_key.get_secret_value())
    rng = random.SystemRandom()
    return Context(
        api=LiumApi(settings, rng=rng),
        clock=SYSTEM_CLOCK,
        rng=rng,
        report=_report,
        intents=_intents(),
        claims=_claims(),
        handled=_handled(),
        require_caller=_watch().require_engine,
    )


def _nothing(key: str) -> None:
    """Configuration before the engine has sent any."""


def _waiting(context: Context) -> Context:
    """The surroundings of a verb that only waits: it does not outlive the engine."""
    from dataclasses import replace

    from .engine_watch import WatchedClock

    return replace(context, clock=WatchedClock(context.clock, _watch()))


def _checkpoints_are_skipped() -> bool:
    """Whether the engine saves the state only at the end of an update."""
    return os.environ.get("PULUMI_SKIP_CHECKPOINTS", "").lower() in ("1", "true")


@functools.cache
def _watch() -> EngineWatch:
    from .engine_watch import of_this_process

    return of_this_process()


@functools.cache
def _intents() -> FileIntents:
    """One journal for the whole process: its locks tell other processes that this one is at work."""
    from .recovery.intents import FileIntents, journal_folder

    return FileIntents(journal_folder(os.environ))


@functools.cache
def _claims() -> Any:
    from pulumi_lium.lifecycle.context import Claims

    return Claims()


@functools.cache
def _handled() -> Any:
    from pulumi_lium.lifecycle.context import Handled

    return Handled()


def _report(line: str) -> None:
    """The engine shows the provider's stderr under the stack's diagnostics, in previews too."""
    print(_without_secrets(line), file=sys.stderr, flush=True)


def _without_secrets(text: str) -> str:
    # A copy: the engine's other threads may read a key meanwhile.
    for secret in tuple(_secrets):
        text = text.replace(secret, "***")
    return text


def _told(failures: list[tuple[str, str]]) -> list[CheckFailure]:
    """What is wrong, for the engine. Of a failure that names its property it prints the whole value: a private key that
    was given by mistake would stand in the log. So the name is in the text alone."""
    return [CheckFailure("", _without_secrets(f"{name}: {reason}")) for name, reason in failures]


def _received(value: Any) -> Any:
    """The engine's values with its unknowns as the verbs know them."""
    from pulumi_lium.lifecycle.values import UNKNOWN

    if isinstance(value, Unknown) or value == rpc.UNKNOWN:
        return UNKNOWN
    if isinstance(value, Mapping):
        return {name: _received(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_received(item) for item in value]
    return value


def _sent(value: Any) -> Any:
    """The way back."""
    from pulumi_lium.lifecycle.values import UNKNOWN

    if value is UNKNOWN:
        return rpc.UNKNOWN
    if isinstance(value, dict):
        return {name: _sent(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_sent(item) for item in value]
    return value
