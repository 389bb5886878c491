"""Processes that a test started, by pid; a pid that was given to another process in the meantime is never touched."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any


class ProcessHandle:
    """A handle on one process (pidfd): it stays that process's, whoever gets the number later."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def alive(self) -> bool:
        return not self._ended(0.0)

    def wait(self, timeout: float) -> None:
        """Until it has ended. AssertionError after `timeout` seconds."""
        if not self._ended(timeout):
            raise AssertionError(f"process {self.pid} is still alive after {timeout:.0f} s")

    def end(self) -> None:
        """Ends it at once, if it is alive."""
        if self.alive():
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            self._ended(10.0)

    def _ended(self, timeout: float) -> bool:
        return bool(select.select([self._fd], [], [], timeout)[0])

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> ProcessHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def children(pid: int) -> list[ProcessHandle]:
    """Handles on all that `pid` started, and what those started."""
    found: list[ProcessHandle] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            listed = task.read_text().split()
        except OSError:
            continue
        for child in map(int, listed):
            try:
                found.append(ProcessHandle(child))
            except ProcessLookupError:
                continue
            found.extend(children(child))
    return found


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended.

    One that has ended keeps its number until its parent has heard of it, for which an init may take seconds.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def end_of(process: subprocess.Popen[Any], log: Path, timeout: float) -> int:
    """The exit code of a program that writes to `log`.

    One that has not ended after `timeout` seconds is ended with all that it started; the AssertionError then says what
    each of them was doing. Go programs, and Python ones with PYTHONFAULTHANDLER set, tell where they stood: in the log,
    or to whoever reads their standard error.
    """
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        own = children(process.pid)
        doing = "\n".join(_doing(pid) for pid in (process.pid, *(child.pid for child in own)))
        # The innermost first: what those above them hear of it, they may still tell.
        for pid in (*(child.pid for child in reversed(own)), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        for child in own:
            with child:
                child.end()
        process.kill()
        process.wait()
        said = log.read_text(errors="replace")
        raise AssertionError(f"not ended within {timeout:.0f} s:\n{doing}\nIts log:\n{said}") from None


def _doing(pid: int) -> str:
    """A line on one process: command, state, what of the kernel it waits in, and its seconds of CPU time."""

    def read(name: str) -> str:
        try:
            return Path(f"/proc/{pid}/{name}").read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            return "?"

    state, *numbers = read("stat").rpartition(")")[2].split() or ["?"]
    spent = sum(int(ticks) for ticks in numbers[10:12]) / os.sysconf("SC_CLK_TCK")
    return f"{pid} {state} {read('wchan')} {spent:.1f} s {read('cmdline')}"
