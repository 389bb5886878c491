"""What the set-up tools print: plain lines, coloured on a terminal only."""

from __future__ import annotations

import os
import sys

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class SetupError(Exception):
    """A step of the set-up cannot go on; the text says what to do about it."""


def coloured() -> bool:
    """Whether stdout is a terminal that may be coloured (NO_COLOR is honoured)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """`text` in `style` (a key of the table above), or as it is where there is no terminal."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if coloured() else text


def say(text: str) -> None:
    """One line of progress, at once, also through a pipe."""
    print(text, flush=True)
