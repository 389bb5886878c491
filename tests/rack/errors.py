"""Errors of the rack of virtual hosts."""

from __future__ import annotations


class RackError(RuntimeError):
    """Something the rack needs is missing or failed. The text says what, where, and what to do about it."""
