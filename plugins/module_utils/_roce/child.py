# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""One perftest process: its output as it comes, its end, and its certain death.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import termios
from collections.abc import Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End
from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import Loop

_MOST_OUTPUT = 64 * 1024


class Child:
    """A process in a session of its own, with a terminal for its output.

    The terminal makes perftest write each line at once: through a pipe a killed perftest leaves nothing. Where
    ``setpriv`` exists the process dies with the agent, even when that is killed.
    """

    def __init__(self, loop: Loop, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Starts the process. Raises ``OSError`` when it cannot be started."""
        self._loop = loop
        self._output = b""
        self._fd, inner = pty.openpty()
        modes = termios.tcgetattr(inner)
        modes[1] &= ~termios.OPOST  # line ends as they are written
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        guard = shutil.which("setpriv", path=environ.get("PATH"))
        command = [guard, "--pdeathsig", "KILL", "--", *argv] if guard else list(argv)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=inner,
                stderr=inner,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(inner)
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.watch(self._fd, self._read)
        # Its end is an event once; from then on the descriptor would be one at every look.
        loop.watch(self._pidfd, lambda: loop.unwatch(self._pidfd))
        self._open = True

    @property
    def text(self) -> str:
        return self._output.decode("utf-8", "replace")

    def _read(self) -> None:
        try:
            some = os.read(self._fd, 65536)
        except OSError:  # the last writer has gone
            some = b""
        if not some:
            self._loop.unwatch(self._fd)
        elif len(self._output) < _MOST_OUTPUT:
            self._output += some

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, deadline: float) -> bool:
        """Whether the process ended before the deadline."""
        return self._loop.wait(self.ended, deadline)

    def finish(self) -> End:
        """Ends the process with all it started, if it still runs, and answers what it left. May be called again."""
        timed_out = not self.ended()
        if timed_out:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._open:
            self._open = False
            os.set_blocking(self._fd, False)
            self._drain()
            for fd in (self._fd, self._pidfd):
                self._loop.unwatch(fd)
                os.close(fd)
        return End(self._process.returncode, self.text, "", timed_out)

    def _drain(self) -> None:
        while len(self._output) < _MOST_OUTPUT:
            try:
                some = os.read(self._fd, 65536)
            except OSError:
                return
            if not some:
                return
            self._output += some
