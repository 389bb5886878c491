"""One stack as the Pulumi CLI shows it: its export, its configuration, its lock. The CLI does the work."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pulumi_lium.api.errors import InvalidArgument, LiumError
from pulumi_lium.lifecycle.remove import TIMEOUT_VARIABLE

_MISSING = re.compile(r"no stack named '[^']*' found", re.IGNORECASE)
_LOCK = re.compile(r"created by (?P<user>[^@\s]+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")
_LOCKED = re.compile(r"stack is currently locked|\[409\] Conflict: Another update", re.IGNORECASE)
_NAME = re.compile(r"""^name:\s*["']?([A-Za-z0-9_.-]+)["']?\s*(?:#.*)?$""", re.MULTILINE)


class PulumiFailed(LiumError):
    """The Pulumi CLI failed; the message ends in what it said."""


class StackMissing(PulumiFailed):
    """There is no such stack."""


class StackLocked(PulumiFailed):
    """Another run holds the stack, or did until it died."""

    def __init__(self, message: str, lock: Lock | None) -> None:
        super().__init__(message, code="stack_locked")
        self.lock = lock


@dataclass(frozen=True)
class Lock:
    """Who locked the stack, and when; `alive` is None where that cannot be seen from here (another machine)."""

    user: str
    host: str
    pid: int
    at: datetime | None
    alive: bool | None

    def age(self, now: datetime) -> timedelta | None:
        return None if self.at is None else max(now - self.at, timedelta(0))

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (pid {self.pid})"


class PulumiStack:
    """A stack of the project in `cwd`. Every command gets `environ`, asks nothing, and is out of reach of a Ctrl-C."""

    def __init__(self, cwd: Path, name: str, environ: Mapping[str, str], *, shows_on: int = 1) -> None:
        """`shows_on` is the file descriptor that the engine's own output goes to."""
        if not name.strip():
            # The CLI would take the stack that happens to be selected in that folder.
            raise InvalidArgument("The stack's name is empty.", hint="Name the stack.")
        self.cwd, self.name = cwd, name
        self._environ, self._shows_on = dict(environ), shows_on
        self._reading = set[subprocess.Popen[str]]()

    @property
    def project(self) -> str | None:
        """The project's name; None where the folder has none that can be read."""
        for file in ("Pulumi.yaml", "Pulumi.yml"):
            try:
                found = _NAME.search((self.cwd / file).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                continue
            return found[1] if found else None
        return None

    @property
    def full_names(self) -> frozenset[str]:
        """`organization/project/stack`, as owners begin. Without an organization in the name that of a backend which
        has none; of the service's default organization nothing is known here."""
        named = self.name.split("/")
        organization, project = named[0] if len(named) > 1 else "organization", self.project
        project = named[1] if len(named) == 3 else project
        return frozenset({f"{organization}/{project}/{named[-1]}"} if project else ())

    def owns(self, owner: str) -> bool:
        """Whether an owner (`organization/project/stack/resource`) is a resource of this stack."""
        parts, named = owner.split("/", 3), self.name.split("/")
        if len(parts) < 4 or parts[2] != named[-1]:
            return False
        project = named[1] if len(named) == 3 else self.project
        return parts[1] == project and (len(named) == 1 or parts[0] == named[0])

    def export(self) -> str:
        """`pulumi stack export`; secrets stay encrypted. Raises `StackMissing`."""
        return self._run("stack", "export", "--stack", self.name, reads=True)

    def stop_reading(self) -> None:
        """Ends what reads the state or the configuration at this moment; to its caller that is a failure."""
        for process in list(self._reading):
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def export_or_none(self) -> str | None:
        """The export; None where there is no such stack."""
        try:
            return self.export()
        except StackMissing:
            return None

    def import_(self, document: Mapping[str, Any]) -> None:
        """Puts an edited export in the place of the state. Raises `StackLocked`."""
        with tempfile.TemporaryDirectory(prefix="pulumi-lium-") as folder:
            file = Path(folder) / "state.json"
            file.touch(mode=0o600)
            file.write_text(json.dumps(document), encoding="utf-8")
            self._run("stack", "import", "--stack", self.name, "--file", str(file))

    def config(self) -> dict[str, str]:
        """The stack's configuration, secrets in plain: it stays in this process. Empty where it cannot be read."""
        if self._configures_nothing():
            return {}
        try:
            text = self._run("config", "--show-secrets", "--json", "--stack", self.name, reads=True)
            return {
                key: value["value"]
                for key, value in json.loads(text).items()
                if isinstance(value, dict) and isinstance(value.get("value"), str)
            }
        except (PulumiFailed, ValueError, AttributeError):
            return {}

    def _configures_nothing(self) -> bool:
        """Whether the stack's file, where it lies beside the project, has no setting of ours: that saves a call."""
        try:
            text = (self.cwd / f"Pulumi.{self.name.rpartition('/')[2]}.yaml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        return "lium:" not in text

    def cancel(self) -> None:
        """Takes the lock off."""
        self._run("cancel", "--yes", self.name)

    def destroy(self, *, delete_timeout: float | None = None) -> None:
        """`pulumi destroy`, its output passed on. Raises `PulumiFailed`, `StackLocked`.

        `delete_timeout` is the limit in seconds for each cluster's removal, by default the program's.
        """
        limit = {} if delete_timeout is None else {TIMEOUT_VARIABLE: f"{delete_timeout:g}"}
        self._run("destroy", "--yes", "--skip-preview", "--stack", self.name, shown=True, more=limit)

    def remove(self) -> None:
        """`pulumi stack rm`, never with --force: it refuses while resources are left."""
        self._run("stack", "rm", "--yes", self.name)

    def _run(
        self, *arguments: str, shown: bool = False, reads: bool = False, more: Mapping[str, str] | None = None
    ) -> str:
        program = shutil.which("pulumi", path=self._environ.get("PATH"))
        if program is None:
            raise PulumiFailed("The Pulumi CLI is not on PATH.", code="no_pulumi", hint="Install it, or mend PATH.")
        command = [program, *arguments, "--non-interactive", "--color", "never"]
        try:
            process = subprocess.Popen(
                command,
                cwd=self.cwd,
                env={**self._environ, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._shows_on if shown else subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise PulumiFailed(
                f"`pulumi {arguments[0]}` could not be started in {self.cwd}: {error.strerror}."
            ) from error
        with process:
            if reads:
                self._reading.add(process)
            try:
                said, complained = process.communicate()
            except BaseException:
                process.kill()
                raise
            finally:
                self._reading.discard(process)
        if process.returncode == 0:
            return said or ""
        raise _failure(arguments, process.returncode, (complained or "").strip() or (said or "").strip())


def take_off_dead_lock(
    stack: PulumiStack, locked: StackLocked, oldest: timedelta, now: datetime, report: Callable[[str], None]
) -> None:
    """Takes the lock of a run that has died off, and says how old it is. Raises `StackLocked` where the run may live.

    On this machine the process table tells. A run of another machine counts as dead once its lock is `oldest` old.
    """
    lock = locked.lock
    age = lock.age(now) if lock else None
    if lock is not None and lock.alive:
        raise StackLocked(f"{locked.message} It is held by {lock}, which is alive: end that run first", lock)
    if (lock is None or lock.alive is None) and oldest > timedelta(0) and (age is None or age < oldest):
        whose = f"by {lock}, " if lock else ""
        when = f"{_seconds(age)} ago" if age is not None else "at a time that is not told"
        raise StackLocked(
            f"{locked.message} It was locked {whose}{when}, and whether that run is alive cannot be seen from here."
            f" A lock older than {_seconds(oldest)} is taken off: if the run is dead, pass --lock-age 0",
            lock,
        )
    old = f"{_seconds(age)} old" if age is not None else "of unknown age"
    report(f"The stack's lock{f' of {lock}' if lock else ''} is {old} and its run is dead: it is taken off.")
    stack.cancel()


def _seconds(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def _failure(arguments: tuple[str, ...], code: int, said: str) -> PulumiFailed:
    if _MISSING.search(said):
        return StackMissing(said.removeprefix("error: ").rstrip("."), code="no_stack")
    verb = " ".join(word for word in arguments[:2] if not word.startswith("-"))
    if _LOCKED.search(said):
        return StackLocked(f"`pulumi {verb}` was refused, as the stack is locked.", _lock(said))
    said = "\n".join(said.splitlines()[-15:])
    return PulumiFailed(f"`pulumi {verb}` failed with exit code {code}: {said}", code="pulumi_failed")


def _lock(said: str) -> Lock | None:
    found = _LOCK.search(said)
    if found is None:
        return None
    host, pid = found["host"], int(found["pid"])
    try:
        at = datetime.fromisoformat(found["at"].replace("Z", "+00:00"))
    except ValueError:
        at = None
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return Lock(found["user"], host, pid, at, _is_alive(pid) if host == socket.gethostname() else None)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # "pid (name) state …"; the name may hold blanks and brackets.
        _, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition("(")
        name, _, fields = rest.rpartition(")")
    except OSError:
        return True
    # One that has ended keeps its number until its parent has heard of it (an init may take seconds). A number that was
    # given to another process since is not the run that locked the stack.
    return "pulumi" in name and fields.split()[0] not in ("Z", "X")
