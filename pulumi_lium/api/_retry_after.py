"""The Retry-After header in every form that servers send."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

LONGEST_WAIT = 60.0
"""Seconds. The service's known limit is per minute (contract 1.5); a longer wish is not waited for within one call."""

_SECONDS = re.compile(r"\d{1,20}(\.\d{0,20})?", re.ASCII)


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """Seconds to wait, from 0 to `LONGEST_WAIT`; null when the header is absent or says nothing that can be read.

    Seconds may have a fraction; a date in the past asks for no wait.
    """
    text = (header or "").strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST_WAIT)
    try:
        date = parsedate_to_datetime(text)
        aware = date if date.tzinfo else date.replace(tzinfo=timezone.utc)
        return min(max((aware - now).total_seconds(), 0.0), LONGEST_WAIT)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
