"""The rehearsal in namespaces of its own: no way out, and nothing outlives it, however it ends.

The outer process holds one end of a pipe. When it is asked to end, or is killed, the inner one reads the pipe's end,
ends its playbook and says what it has; then the namespace goes, and every agent and perftest in it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
_INSIDE = "LIUM_REHEARSAL_INSIDE"


class Interrupted(BaseException):
    """The rehearsal was asked to end. Not an ``Exception``: nothing but its own end may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def inside() -> bool:
    """Whether this process is the one in the namespaces."""
    return _INSIDE in os.environ


def run_inside(argv: Sequence[str], network: str) -> int:
    """Runs the rehearsal again, in namespaces in which ``network`` is local; answers its exit code."""
    for tool, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            print(f"the rehearsal needs {tool} (package {package})", file=sys.stderr)
            return 1
    flags = ["--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        flags.append("--map-root-user")
    setup = f'ip link set lo up && ip route add local {network} dev lo && exec "$@"'
    inner, outer = os.pipe()
    command = ["unshare", *flags, "sh", "-c", setup, "sh", sys.executable, "-m", "tools.rehearsal", *argv]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, _INSIDE: str(inner)}, pass_fds=[inner])
    os.close(inner)

    def let_go(number: int, _frame: FrameType | None) -> None:
        nonlocal outer
        if outer >= 0:
            os.write(outer, bytes([number]))
            os.close(outer)
            outer = -1

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, let_go)
    return process.wait()


def watch() -> None:
    """In the inner process: a first signal, or the outer one's end, raises :class:`Interrupted` in the main thread."""
    ended = threading.Event()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if not ended.is_set():
            ended.set()
            raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    pipe = int(os.environ[_INSIDE])
    os.set_inheritable(pipe, False)

    def wait() -> None:
        word = os.read(pipe, 1)
        os.kill(os.getpid(), word[0] if word else signal.SIGHUP)

    threading.Thread(target=wait, daemon=True).start()
