"""A provider's process must not outlive its engine: what it orders then would reach no state.

The engine tells its providers nothing when it is killed. Its death shows in the process table: they get another parent.
The calls in flight are finished, so that the intent says what came of an order; then the process ends and lets go of
its intents, and the next `pulumi up`, `sweep` or `teardown` settles them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pulumi_lium.api import Clock
from pulumi_lium.api.errors import LiumError

_POLL = 0.5
_FURTHEST = 4
"""Generations up to the engine: a launcher script may stand in between."""


class EngineGone(LiumError):
    """The engine has ended; nobody would take what the call returns."""

    def __init__(self) -> None:
        super().__init__("The engine has ended, so this call goes no further.", code="engine_gone")


class EngineWatch:
    """Ends this process once its engine has died and no call is in flight.

    `is_alive` says whether the engine lives; `leave` ends the process.
    """

    def __init__(self, is_alive: Callable[[], bool], leave: Callable[[], None], poll: float = _POLL) -> None:
        self._is_alive, self._leave, self._poll = is_alive, leave, poll
        self._changed = threading.Condition()
        self._calls = 0
        self._gone = False

    def start(self) -> None:
        """Watches in a thread of its own."""
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()

    def require_engine(self) -> None:
        """Raises `EngineGone`."""
        if self._gone or not self._is_alive():
            raise EngineGone

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call in flight: it is finished before the process ends."""
        with self._changed:
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def _watch(self) -> None:
        pause = threading.Event()
        while self._is_alive():
            pause.wait(self._poll)
        self._gone = True
        with self._changed:
            self._changed.wait_for(lambda: self._calls == 0)
        self._leave()


class WatchedClock:
    """A clock for a call that only waits: its sleep raises `EngineGone` soon after the engine has ended."""

    def __init__(self, clock: Clock, watch: EngineWatch) -> None:
        self._clock, self._watch = clock, watch

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while True:
            self._watch.require_engine()
            left = end - self._clock.monotonic()
            if left <= 0:
                return
            self._clock.sleep(min(left, _POLL))


def of_this_process() -> EngineWatch:
    """Watches the engine that started this process; nothing where no engine did (tests, a program of one's own)."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is None or not main.name.startswith("pulumi.dynamic"):
        return EngineWatch(lambda: True, lambda: None)
    links = _links_to_engine()
    watch = EngineWatch(lambda: all(_parent(child) == parent for child, parent in links), lambda: os._exit(0))
    watch.start()
    return watch


def _links_to_engine() -> list[tuple[int, int]]:
    """(child, parent) from this process up to the engine; while all hold, the engine lives."""
    links, child = list[tuple[int, int]](), os.getpid()
    for _ in range(_FURTHEST):
        parent = _parent(child)
        if parent is None or parent <= 1:
            break
        links.append((child, parent))
        if _name(parent) == "pulumi":
            return links
        child = parent
    return [(os.getpid(), os.getppid())]


def _parent(pid: int) -> int | None:
    if pid == os.getpid():
        return os.getppid()
    try:
        # "pid (name) state ppid …"; the name may hold blanks and brackets.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
