# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's one thread: it waits for files, processes and time, and is woken by signals.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

#: What gives no event (another process's socket) is looked at again this often at first, and less and less often then:
#: on a slow host looking takes time from what is waited for.
POLL_S, SLOWEST_POLL_S = 0.02, 0.25


class Stopped(Exception):
    """A signal asked the agent to end."""


class Loop:
    """Calls what was registered for a file when that can be read, until a condition holds or a deadline has passed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._signal: int | None = None
        self.watch(self._woken, lambda: None)

    def stop_on(self, *signals: int) -> None:
        """Ends any wait with :class:`Stopped` once one of these signals has come."""
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, self._remember)

    def _remember(self, number: int, _frame: Any) -> None:
        self._signal = number

    def watch(self, source: Any, callback: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, callback)

    def unwatch(self, source: Any) -> None:
        """Forgets a file; one that is not watched is no mistake."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def wait(self, done: Callable[[], bool], deadline: float, *, poll: float | None = None) -> bool:
        """Serves events until ``done()``; whether that came before ``deadline`` (on the loop's clock).

        ``poll`` looks at the condition that often without an event. Raises :class:`Stopped`.
        """
        while True:
            if self._signal is not None:
                raise Stopped(signal.Signals(self._signal).name)
            if done():
                return True
            left = deadline - self.clock()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left if poll is None else min(left, poll)):
                key.data()
            if poll is not None:
                poll = min(poll * 1.3, SLOWEST_POLL_S)
