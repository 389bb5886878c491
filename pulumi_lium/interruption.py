"""SIGINT and SIGTERM of a command that must not stop half-way: the first takes its patience away, the second ends it.

Light, so that it stands before the command's own imports, which take most of a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_MAY_BILL = 4
"""The exit code of design 4.2."""


class Interruption:
    """Handles both signals from its making on.

    `last_word` gives, for the name of the second signal, the line for a person and the document for a program (empty
    where none is asked for). It runs inside the handler, so it takes no lock.
    """

    def __init__(self) -> None:
        self.last_word: Callable[[str], tuple[str, str]] = _nothing_known
        self._came_at: float | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def has_come(self) -> bool:
        return self._came_at is not None

    def age(self) -> float:
        """Seconds since the first signal; 0 while none has come."""
        return 0.0 if self._came_at is None else time.monotonic() - self._came_at

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._came_at is None:
            self._came_at = time.monotonic()
            os.write(2, f"{name}: the deletions go out all the same; a second signal ends this.\n".encode())
            return
        line, document = _nothing_known(name)
        # Whatever it was in the middle of, for instance an import, the process ends and says so.
        with suppress(Exception):
            line, document = self.last_word(name)
        if document:
            os.write(1, f"{document}\n".encode())
        os.write(2 if document else 1, f"{line}\n".encode())
        os._exit(_MAY_BILL)


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
