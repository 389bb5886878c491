"""Waiting in tests: for a thing to become true, under a deadline, never for a span of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T], *, what: str, timeout: float = 30.0, poll: float = 0.02) -> T:
    """The first true value of `look()`. AssertionError naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        time.sleep(poll)
    return value
