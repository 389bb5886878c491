"""Time as a parameter: whatever waits or stamps takes a `Clock`, so that tests and simulations need no real time."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """What the client and the lifecycle know of time."""

    def now(self) -> datetime:
        """The present moment, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards; for deadlines and spans."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds; zero or less returns at once."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
