"""Time that passes only by sleeping."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

START = datetime(2026, 11, 30, 9, 0, tzinfo=timezone.utc)


class FakeClock:
    """A `pulumi_lium.api.Clock`; `sleeps` holds each sleep, in seconds."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return sum(self.sleeps)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
