"""Programs that outlive the command that started them, and are ended only when they are certainly the same."""

from __future__ import annotations

import os
import select
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.rack.errors import RackError
from tests.rack.shell import ENVIRON

#: The process writes its own record (`$0`) before it becomes the program, so that no program runs unrecorded.
_RECORD_THEN_EXEC = 'echo "$$ $(cut -d" " -f22 "/proc/$$/stat")" > "$0.part" && mv "$0.part" "$0" && exec "$@"'


def start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


def start(record: Path, command: Sequence[str], *, log: Path) -> None:
    """Start a program in a session of its own; `record` will name its process, `log` gets what it prints."""
    shell = shutil.which("sh") or "/bin/sh"
    os.posix_spawn(
        shell,
        ["sh", "-c", _RECORD_THEN_EXEC, str(record), *command],
        ENVIRON,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )


def _open(record: Path) -> int | None:
    """A pidfd of the recorded process; None if it has ended, also when its number has gone to another process."""
    try:
        pid, started = record.read_text().split()
        descriptor = os.pidfd_open(int(pid))
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Compared after the open: from here on the descriptor can mean no other process.
    if start_time(int(pid)) != started:
        os.close(descriptor)
        return None
    return descriptor


def alive(record: Path) -> bool:
    """Whether the recorded process runs."""
    descriptor = _open(record)
    if descriptor is None:
        return False
    ended = bool(select.select([descriptor], [], [], 0)[0])
    os.close(descriptor)
    return not ended


def end(record: Path, *, timeout: float = 20.0) -> None:
    """End the recorded process and wait until all its threads (which hold locks on images and taps) are gone."""
    descriptor = _open(record)
    if descriptor is not None:
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if not select.select([descriptor], [], [], timeout)[0]:
                raise RackError(f"the process in {record} did not end within {timeout:.0f} s of SIGKILL")
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
        except (ProcessLookupError, ChildProcessError):
            pass  # ended by itself, or started by an earlier command and so reaped elsewhere
        finally:
            os.close(descriptor)
    record.unlink(missing_ok=True)
