"""The emulator's clock: the machine's own, or one that only the control plane moves (design 4.3)."""

from __future__ import annotations

import time
from collections.abc import Callable


class ClockError(ValueError):
    """The clock cannot be moved like that."""


class EmulatorClock:
    """Epoch seconds for the market.

    A real clock follows `wall` and never runs backwards. A virtual one starts at `wall` and stands still until it is
    advanced.
    """

    def __init__(self, *, virtual: bool, wall: Callable[[], float] = time.time) -> None:
        self.virtual = virtual
        self._wall = wall
        self._at = wall()

    def now(self) -> float:
        if not self.virtual:
            self._at = max(self._at, self._wall())
        return self._at

    def advance(self, seconds: float) -> float:
        """Move a virtual clock forward and answer the new time. Raises ClockError on a real clock."""
        if not self.virtual:
            raise ClockError("the emulator runs on the real clock; start it with --clock virtual to move time")
        if not 0 <= seconds <= 10 * 366 * 86400:
            raise ClockError("advance_s must be between 0 and ten years of seconds; time does not run backwards")
        self._at += seconds
        return self._at

    def restart(self) -> None:
        """A reset: a virtual clock starts at the real time again."""
        self._at = self._wall()

    def resume(self, at: float) -> None:
        """Go on from a stored market's time: a virtual clock exactly there, a real one not before it."""
        self._at = at if self.virtual else max(self._at, at)
