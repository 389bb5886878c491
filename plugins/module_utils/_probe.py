# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""How checks look at a host: files below a root, and commands with a time limit. Nothing here changes a host.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class ProbeError(Exception):
    """Something could not be read. A check that meets it answers ``UNKNOWN`` with this text, never ``OK``."""


class Unreadable(ProbeError):
    """A file or folder is there but could not be read; ``errno`` says why."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror or cause}")
        self.errno = cause.errno


class Missing(Unreadable):
    """A file or folder does not exist. Reading was possible, so this is a fact and not a failure."""


class CommandError(ProbeError):
    """A command gave no usable answer; ``argv`` names it."""

    def __init__(self, argv: Sequence[str], what: str) -> None:
        super().__init__(f"{' '.join(argv)}: {what}")
        self.argv = tuple(argv)


class ToolMissing(CommandError):
    """The program is not installed."""

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__(argv, "not installed")


class CommandTimeout(CommandError):
    """The program did not end in time and was stopped together with its children."""

    def __init__(self, argv: Sequence[str], seconds: float) -> None:
        super().__init__(argv, f"no answer within {seconds:g} s")


class Completed(NamedTuple):
    """A command that ended."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    @property
    def first_error(self) -> str:
        """The first line that tells why a command failed, for a message."""
        lines = [line.strip() for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return lines[0] if lines else f"exit code {self.rc} without a word"


class Runner(Protocol):
    """Runs a command to its end, or raises :class:`CommandError`."""

    def run(self, argv: Sequence[str], timeout: float, stdin: str | None) -> Completed: ...

    def which(self, tool: str) -> str | None: ...


class SubprocessRunner:
    """Runs commands on this host, in the C locale and with the administrator's search path."""

    _PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._env = {**environ, "LC_ALL": "C", "LANG": "C", "PATH": self._PATH}

    def which(self, tool: str) -> str | None:
        return shutil.which(tool, path=self._PATH)

    def run(self, argv: Sequence[str], timeout: float, stdin: str | None) -> Completed:
        program = self.which(argv[0])
        if program is None:
            raise ToolMissing(argv)
        try:
            process = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._env,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as exc:
            raise CommandError(argv, exc.strerror or str(exc)) from exc
        with process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired as exc:
                # The session is the command's own: its children go with it, and nothing else does.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise CommandTimeout(argv, timeout) from exc
        return Completed(tuple(argv), process.returncode, stdout, stderr)


class RecordedRunner:
    """Answers commands from a recording: ``{"command line": {"rc": 0, "stdout": "", "stderr": ""}}``.

    A command that is not in the recording counts as not installed. A recorded ``"timeout": true`` never answered.
    """

    def __init__(self, answers: Mapping[str, Mapping[str, object]]) -> None:
        self._answers = {key: dict(value) for key, value in answers.items()}

    def which(self, tool: str) -> str | None:
        known = any(key.split(" ", 1)[0] == tool for key in self._answers)
        return f"/usr/bin/{tool}" if known else None

    def run(self, argv: Sequence[str], timeout: float, stdin: str | None) -> Completed:
        answer = self._answers.get(" ".join(argv))
        if answer is None:
            raise ToolMissing(argv)
        if answer.get("timeout"):
            raise CommandTimeout(argv, timeout)
        rc = answer.get("rc", 0)
        return Completed(
            tuple(argv), rc if isinstance(rc, int) else 1, str(answer.get("stdout", "")), str(answer.get("stderr", ""))
        )


class HostProbe:
    """One host as the checks see it: files below ``root``, commands through ``runner``."""

    def __init__(self, runner: Runner, root: str = "/") -> None:
        self._runner = runner
        self._root = root

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    @staticmethod
    def _error(path: str, exc: OSError) -> Unreadable:
        kind = Missing if exc.errno in (errno.ENOENT, errno.ENOTDIR) else Unreadable
        return kind(path, exc)

    def read(self, path: str) -> str:
        """The text of a file, without the white space at its ends. Raises :class:`Missing` or :class:`Unreadable`."""
        try:
            with open(self._path(path), encoding="utf-8", errors="replace") as stream:
                return stream.read().strip()
        except OSError as exc:
            raise self._error(path, exc) from exc

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a file, for variables of the firmware. Raises as :meth:`read` does."""
        try:
            with open(self._path(path), "rb") as stream:
                return stream.read()
        except OSError as exc:
            raise self._error(path, exc) from exc

    def read_or_none(self, path: str) -> str | None:
        """As :meth:`read`, with ``None`` for a file that does not exist. Still raises when it cannot be read."""
        try:
            return self.read(path)
        except Missing:
            return None

    def entries(self, path: str) -> list[str]:
        """The names in a folder, sorted as strings. Raises :class:`Missing` or :class:`Unreadable`."""
        try:
            return sorted(os.listdir(self._path(path)))
        except OSError as exc:
            raise self._error(path, exc) from exc

    def entries_or_none(self, path: str) -> list[str] | None:
        """As :meth:`entries`, with ``None`` for a folder that does not exist."""
        try:
            return self.entries(path)
        except Missing:
            return None

    def exists(self, path: str) -> bool:
        """Whether a path exists; a path that may not be looked at raises :class:`Unreadable`."""
        try:
            os.stat(self._path(path))
        except OSError as exc:
            error = self._error(path, exc)
            if isinstance(error, Missing):
                return False
            raise error from exc
        return True

    def stat(self, path: str) -> os.stat_result:
        """Raises :class:`Missing` or :class:`Unreadable`."""
        try:
            return os.stat(self._path(path))
        except OSError as exc:
            raise self._error(path, exc) from exc

    def link_target(self, path: str) -> str | None:
        """The last part of what a link points to (a driver's name, a bus address), ``None`` without the link."""
        try:
            return os.path.basename(os.readlink(self._path(path)))
        except OSError as exc:
            if exc.errno == errno.EINVAL:  # there, but no link
                return os.path.basename(path)
            error = self._error(path, exc)
            if isinstance(error, Missing):
                return None
            raise error from exc

    def real_path(self, path: str) -> str:
        """The path behind all links, below the root."""
        return os.path.realpath(self._path(path))

    def which(self, tool: str) -> str | None:
        return self._runner.which(tool)

    def run(self, *argv: str, timeout: float = 30.0, stdin: str | None = None) -> Completed:
        """Runs a command and answers whatever its exit code. Raises :class:`ToolMissing` or :class:`CommandTimeout`."""
        return self._runner.run(argv, timeout, stdin)

    def output(self, *argv: str, timeout: float = 30.0) -> str:
        """The output of a command that must succeed; any other exit code raises :class:`CommandError`."""
        done = self.run(*argv, timeout=timeout)
        if done.rc != 0:
            raise CommandError(argv, done.first_error)
        return done.stdout


def open_probe(host_root: str, environ: Mapping[str, str]) -> HostProbe:
    """The probe for this host (``/``), or for a recorded one: a folder with its files and a ``commands.json``."""
    if os.path.realpath(host_root) == "/":
        return HostProbe(SubprocessRunner(environ))
    recording = os.path.join(host_root, "commands.json")
    try:
        with open(recording, encoding="utf-8") as stream:
            answers = json.load(stream)
    except FileNotFoundError:
        answers = {}
    except (OSError, ValueError) as exc:
        raise ProbeError(f"{recording}: not a readable recording of commands: {exc}") from exc
    if not isinstance(answers, dict) or not all(isinstance(value, dict) for value in answers.values()):
        raise ProbeError(f"{recording}: expected an object of command lines, each with rc, stdout and stderr")
    return HostProbe(RecordedRunner(answers), host_root)
