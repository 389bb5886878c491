"""SIGINT and SIGTERM while something runs that must not stop half-way: the first takes its patience away.

The second one ends a command; a program that has a teardown within it gets it as it is used to. Light, so that it
stands before the command's own imports, which take most of a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_MAY_BILL = 4
"""The exit code of design 4.2."""
_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Handles both signals from its making on.

    `last_word` gives, for the name of the second signal, the line for a person and the document for a program (empty
    where none is asked for). It runs inside the handler, so it takes no lock.
    """

    def __init__(self) -> None:
        self.last_word: Callable[[str], tuple[str, str]] = _nothing_known
        self._first: signal.Signals | None = None
        self._came_at = 0.0
        self._install()

    def _install(self) -> None:
        for number in _NUMBERS:
            signal.signal(number, self._handle)

    def has_come(self) -> bool:
        return self._first is not None

    def age(self) -> float:
        """Seconds since the first signal; 0 while none has come."""
        return 0.0 if self._first is None else time.monotonic() - self._came_at

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._came_at, self._first = time.monotonic(), signal.Signals(number)
            line = f"{self._first.name}: the deletions go out all the same; a second signal ends this."
            os.write(2, f"{line}\n".encode())
            return
        self._end(number)

    def _end(self, number: int) -> None:
        name = signal.Signals(number).name
        line, document = _nothing_known(name)
        # Whatever it was in the middle of, for instance an import, the process ends and says so.
        with suppress(Exception):
            line, document = self.last_word(name)
        if document:
            os.write(1, f"{document}\n".encode())
        os.write(2 if document else 1, f"{line}\n".encode())
        os._exit(_MAY_BILL)


class Deferral(Interruption):
    """The same for as long as a teardown runs within a program of somebody else's, whose handlers it puts back.

    What the program does at a signal it does at the second one; at the first one not before `hand_on`. Elsewhere than
    in the main thread, where no signal arrives, it changes nothing.
    """

    def _install(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _NUMBERS:
            before = signal.getsignal(number)
            # One that is ignored, as by `nohup`, stays so; a handler that is not Python's could not be put back.
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._handle)

    def __enter__(self) -> Deferral:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def hand_on(self) -> None:
        """Lets the program have the signal that came meanwhile."""
        if self._first is not None:
            signal.raise_signal(self._first)

    def _end(self, number: int) -> None:
        self.__exit__(None, None, None)
        signal.raise_signal(number)


_installed: list[Interruption] = []


def install() -> Interruption:
    """The handlers of this process; they are set when it is first called."""
    if not _installed:
        _installed.append(Interruption())
    return _installed[0]


def ended(line: str, may_bill: list[dict[str, object]]) -> str:
    """The document for a program that reads `--json`."""
    error = {"code": "interrupted", "message": line, "hint": "Run it again.", "exit_code": _MAY_BILL}
    return json.dumps({"error": error, "may_bill": may_bill})


def _nothing_known(name: str) -> tuple[str, str]:
    line = f"Ended by {name}. May still bill: what this stack has ordered."
    return line, ended(line, []) if "--json" in sys.argv else ""
