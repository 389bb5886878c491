"""Spellings of the wire: time and money (contract 1.8)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import lru_cache

MICRO = 1_000_000
_EPOCH = datetime(1970, 1, 1)
# The first and the last second of the years 1 to 9999.
_EARLIEST, _LATEST = -62_135_596_800.0, 253_402_300_799.0


@lru_cache(maxsize=4096)
def iso(at: float) -> str:
    """ISO 8601 in UTC for epoch seconds. Cached: what happens at one moment is written many times."""
    # Without a time zone: writing its offset costs as much as the time itself.
    return (_EPOCH + timedelta(seconds=at)).isoformat() + "Z"


def maybe_iso(at: float | None) -> str | None:
    """`iso`, or None."""
    return None if at is None else iso(at)


@lru_cache(maxsize=4096)
def epoch(text: str) -> float:
    """Epoch seconds of an ISO 8601 text with `Z`, an offset, or nothing (then UTC). Raises ValueError. Cached: one time
    of removal is set for every pod of a cluster.

    An offset can lead out of the years that `iso` can write; the answer is then the nearest second within them.
    """
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return min(max(moment.timestamp(), _EARLIEST), _LATEST)


def usd(micro: int) -> float:
    """USD as the wire's number, from millionths."""
    return micro / MICRO


def micros(amount: float) -> int:
    """Millionths of a USD: money is counted in whole numbers, so that sums are exact."""
    return round(amount * MICRO)
