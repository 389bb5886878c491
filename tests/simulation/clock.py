"""One virtual time for the service and for every process; it passes only by sleeping and by requests."""

from __future__ import annotations

from datetime import datetime, timezone

START = 1_790_000_000.0


class VirtualClock:
    """A `pulumi_lium.api.Clock`; `at` is the time in epoch seconds."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, timezone.utc)

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.at += seconds
