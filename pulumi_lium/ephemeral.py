"""A cluster for as long as a piece of a program runs: made on the Automation API, and torn down whatever happens.

with pulumi_lium.ephemeral_cluster(nodes=2, gpu_type="H100", ssh_public_keys=[...]) as cluster:
    run(cluster.hostfile)

Its state lies in a folder of its own until the teardown has proved that nothing is left. A process that is killed with
no chance to tear down leaves that folder, and the time limit, which is set by default, ends the cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from pulumi.automation import (
    CommandError,
    LocalWorkspaceOptions,
    ProjectRuntimeInfo,
    ProjectSettings,
    PulumiCommand,
    create_or_select_stack,
)
from pulumi.automation._cmd import CommandResult, OnOutput
from pulumi.automation.errors import create_command_error

from pulumi_lium.api import SYSTEM_CLOCK
from pulumi_lium.interruption import Deferral
from pulumi_lium.lifecycle.errors import OperationFailed
from pulumi_lium.recovery.accounts import base_url_of, contexts_of
from pulumi_lium.recovery.export import parse_export
from pulumi_lium.recovery.intents import FileIntents, journal_folder, state_folder
from pulumi_lium.recovery.stack import PulumiStack
from pulumi_lium.recovery.teardown import Teardown

DEFAULT_TTL = "2h"
_PROJECT = "lium-ephemeral"
_GRACE_S = 5.0
"""Seconds that the engine has to end after a first interrupt; a second one ends it at once."""
_PATIENCE_S = 90.0
"""How long the teardown waits for a process that is still at work on an order of this run."""
_HURRY_S = 5.0
"""The same, and for a lost order, after a signal."""
_LAST_LINES = 40


@dataclass(frozen=True)
class EphemeralCluster:
    """The outputs of `LiumCluster` as plain values."""

    cluster_id: str
    name: str
    fabric_id: str | None
    fabric_type: str | None
    gpu_type: str
    gpus_per_node: int
    nodes_info: list[dict[str, Any]]
    master_addr: str
    node_addrs: list[str]
    hostfile: str
    torchrun_args: list[str]
    price_per_hour: float
    expires_at: str | None

    @classmethod
    def of(cls, outputs: Mapping[str, Any]) -> EphemeralCluster:
        """Out of the stack's outputs; numbers that are counts become whole again."""
        values: dict[str, Any] = {field.name: outputs.get(field.name) for field in fields(cls)}
        values["gpus_per_node"] = int(values["gpus_per_node"] or 0)
        return cls(**values)


@contextmanager
def ephemeral_cluster(
    name: str = "ephemeral",
    *,
    ttl: str | None = DEFAULT_TTL,
    state_dir: Path | None = None,
    backend_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
    **inputs: Any,
) -> Iterator[EphemeralCluster]:
    """A cluster inside a `with`. Takes the inputs of `LiumCluster`; it is torn down at the end, also after a failure.

    Args:
        name: name of the resource, hence the beginning of the pods' name.
        ttl: the service ends the cluster then, whatever becomes of this process; None sets no limit.
        state_dir: where its state lies; by default below the user's state folder.
        backend_url: another Pulumi backend than a folder below `state_dir`.
        environ: environment of the CLI and the source of the API key; by default the process's own.
        report: takes a line for a person; by default to standard error.

    Raises `OperationFailed` where the cluster cannot be made, and where the teardown cannot prove that nothing is left:
    then it names what may still bill, with its price, and how to go on.
    """
    run = EphemeralRun.begin(name, state_dir=state_dir, backend_url=backend_url, environ=environ, report=report)
    with _terminable():
        try:
            yield run.up({**inputs, "ttl": ttl})
        finally:
            run.teardown().hand_on()


class EphemeralRun:
    """One cluster's folder: its project, its state, and the lock of the process that is at work on it."""

    def __init__(
        self,
        folder: Path,
        *,
        environ: Mapping[str, str] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """A run that was begun before, by this process or another."""
        self.folder = folder
        self._facts: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        self._report = report or _to_stderr
        given = dict(os.environ if environ is None else environ)
        self._environ = {**given, "PULUMI_BACKEND_URL": self._facts["backend_url"], "PULUMI_SKIP_UPDATE_CHECK": "true"}
        if self._facts["own_backend"]:
            # There is no secret in this state: keys are read from the environment when they are needed.
            self._environ["PULUMI_CONFIG_PASSPHRASE"] = ""
        self._lock: int | None = None

    @classmethod
    def begin(
        cls,
        name: str,
        *,
        state_dir: Path | None = None,
        backend_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> EphemeralRun:
        """A new run in a folder of its own. Names what earlier runs, which were killed, have left behind."""
        root = state_dir or state_folder(os.environ if environ is None else environ) / "ephemeral"
        _name_abandoned(root, report or _to_stderr)
        stack = f"{name}-{secrets.token_hex(3)}"
        folder = root / stack
        for part in ("project", "state"):
            (folder / part).mkdir(mode=0o700, parents=True)
        facts = {
            "name": name,
            "stack": stack,
            "backend_url": backend_url or f"file://{folder / 'state'}",
            "own_backend": backend_url is None,
        }
        lock = _try_lock(folder)
        (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
        run = cls(folder, environ=environ, report=report)
        run._lock = lock
        return run

    @property
    def stack(self) -> str:
        return str(self._facts["stack"])

    @property
    def _project(self) -> Path:
        return self.folder / "project"

    def up(self, inputs: Mapping[str, Any]) -> EphemeralCluster:
        """Orders the cluster and waits for its nodes. Raises `OperationFailed` with what the engine said."""
        options: dict[str, str] = {"virtualenv": sys.prefix} if sys.prefix != sys.base_prefix else {}
        settings = ProjectSettings(_PROJECT, ProjectRuntimeInfo("python", options))
        cli = _Cli(self._environ)
        try:
            stack = create_or_select_stack(
                self.stack,
                project_name=_PROJECT,
                program=_program(self._facts["name"], inputs),
                opts=LocalWorkspaceOptions(
                    work_dir=str(self._project),
                    project_settings=settings,
                    env_vars=self._environ,
                    pulumi_command=cli,
                ),
            )
            outputs = stack.up(on_output=self._report).outputs
        except CommandError as error:
            said = "\n".join(str(error).splitlines()[-_LAST_LINES:])
            raise OperationFailed(f"The cluster could not be made.\n{said}", code="not_made") from None
        return EphemeralCluster.of({name: output.value for name, output in outputs.items()})

    def teardown(self) -> Deferral:
        """Deletes the cluster, destroys the stack, proves that nothing is left, removes the folder. May be repeated.

        A signal meanwhile does not end it, but leaves it only seconds to wait for an order that is under way or lost:
        as CI services cancel a job, by one signal and then another, it is the second that comes here. It is returned,
        to be handed on; one more cuts the teardown off.

        Raises `OperationFailed` naming what may still bill; the folder is kept then.
        """
        with Deferral() as deferral:
            self._teardown(lambda: deferral.age() > _HURRY_S)
        return deferral

    def _teardown(self, is_hurried: Callable[[], bool]) -> None:
        stack, intents = (
            PulumiStack(self._project, self.stack, self._environ),
            FileIntents(journal_folder(self._environ)),
        )
        try:
            text = stack.export_or_none() if (self._project / "Pulumi.yaml").exists() else None
            export = None
            if text is not None:
                base_url = base_url_of({}, self._environ)
                export = parse_export(text, f"the state of {self.stack}", base_url=base_url, now=SYSTEM_CLOCK.now())
            outcome = Teardown(
                stack=stack,
                contexts=contexts_of(intents, self._environ, self._report, is_hurried=is_hurried),
                journal=intents,
                export=export,
                lock_age=timedelta(0),
                report=self._report,
                clock=SYSTEM_CLOCK,
                patience=_PATIENCE_S,
                is_hurried=is_hurried,
            ).run(remove_stack=True)
        except BaseException:
            self._report(f"The teardown was cut off, and the cluster may still bill. Go on with: {self._command()}")
            raise
        if not outcome.known or outcome.leftovers or outcome.failures:
            bills = ", ".join(leftover.title for leftover in outcome.leftovers)
            may = f"May still bill: {bills}. " if bills else ""
            raise OperationFailed(
                f"The teardown of {self.stack} is not complete: {'; '.join(outcome.failures) or 'something is left'}."
                f" {may}Go on with: {self._command()}",
                code="not_torn_down",
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        self._unlock()

    def _command(self) -> str:
        own = "PULUMI_CONFIG_PASSPHRASE= " if self._facts["own_backend"] else ""
        return (
            f"{own}PULUMI_BACKEND_URL={self._facts['backend_url']} pulumi-lium teardown"
            f" --cwd {self._project} --stack {self.stack}"
        )

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class _Cli(PulumiCommand):
    """The CLI in a session of its own: it is interrupted in order, and waited for, when this process is.

    Else the engine would go on, ordering perhaps, while its stack is torn down.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The base class would ask the CLI of this process's PATH for its version; the engine itself checks the SDK's.
        self._environ = dict(environ)
        self.command = shutil.which("pulumi", path=environ.get("PATH")) or "pulumi"
        self.version = None

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> CommandResult:
        said: dict[str, list[str]] = {"stdout": [], "stderr": []}
        with subprocess.Popen(
            [self.command, "--non-interactive", *(word for word in args if word != "--non-interactive")],
            cwd=cwd,
            env={**self._environ, **additional_env, "PULUMI_AUTOMATION_API": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            readers = [
                threading.Thread(target=_read, args=(stream, on_line, said[name]), daemon=True)
                for name, stream, on_line in (
                    ("stdout", process.stdout, on_output),
                    ("stderr", process.stderr, on_error),
                )
            ]
            for reader in readers:
                reader.start()
            try:
                code = process.wait()
            except BaseException:
                _end(process)
                raise
            for reader in readers:
                reader.join()
        result = CommandResult("\n".join(said["stdout"]), "\n".join(said["stderr"]), code)
        if code != 0:
            raise create_command_error(result)
        return result


def _read(stream: Any, on_line: OnOutput | None, lines: list[str]) -> None:
    for line in stream:
        lines.append(line.rstrip())
        if on_line:
            on_line(line.rstrip())


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupts the engine, twice if it waits for something, and waits until it is gone."""
    try:
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
                return
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _program(name: str, inputs: Mapping[str, Any]) -> Callable[[], None]:
    def program() -> None:
        import pulumi

        from .cluster import LiumCluster

        cluster = LiumCluster(name, **inputs)
        for field in fields(EphemeralCluster):
            pulumi.export(field.name, getattr(cluster, field.name))

    return program


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the process by an exception, so that the teardown runs; only where nobody handles it already."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _name_abandoned(root: Path, report: Callable[[str], None]) -> None:
    """Runs whose process was killed: they are named, since their clusters bill until their time limit."""
    for file in sorted(root.glob("*/run.json")):
        # A run that ends at this moment may take its folder away meanwhile.
        with suppress(OSError, ValueError, KeyError):
            lock = _try_lock(file.parent)
            if lock is not None:
                os.close(lock)
                left = EphemeralRun(file.parent)
                report(f"warning: {left.stack} was left by a process that died, and may bill. Run: {left._command()}")


def _try_lock(folder: Path) -> int | None:
    """The lock of a run, held while its process lives; None while another one has it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
