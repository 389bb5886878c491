"""Values on their way through the verbs: unknown ones, spans of time, money, names.

An input may be unknown while a preview runs, itself or inside a list; the shell turns the engine's marker into
`UNKNOWN` and back.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Literal


class _Unknown(Enum):
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown.UNKNOWN
"""A value that is not known before the update runs."""

Unknown = Literal[_Unknown.UNKNOWN]

_TTL = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|h|d)")
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400}
_LONGEST_TTL = 365 * 86400
_LONGEST_FIRST_PART = 40
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def has_unknown(value: Any) -> bool:
    """Whether a value is unknown or holds something unknown, however deep."""
    if value is UNKNOWN:
        return True
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(item) for item in value)
    return False


def parse_ttl(text: str) -> timedelta:
    """`90m`, `8h`, `1.5d` (contract 5.2). Raises ValueError."""
    found = _TTL.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no span of time: give a number and m, h or d, such as 90m, 8h or 2d")
    seconds = float(found[1]) * _UNIT_SECONDS[found[2]]
    if not 60 <= seconds <= _LONGEST_TTL:
        raise ValueError(f"{text!r} is not between 1m and 365d")
    return timedelta(seconds=seconds)


def usd(amount: float | None) -> str:
    """`$64.00 an hour`; says so when the price is not known."""
    return "an unknown price" if amount is None else f"${amount:,.2f} an hour"


def owner_digest(owner: str) -> str:
    """The 6 hex digits by which a pod name shows whose it is (design, Names)."""
    return hashlib.sha256(owner.encode()).hexdigest()[:6]


def pod_name(resource: str, owner: str, rng: random.Random) -> str:
    """A name that no other order has: resource name, 6 hex of the owner's hash, 6 random hex (design, Names)."""
    first = _UNSAFE.sub("-", resource)[:_LONGEST_FIRST_PART] or "cluster"
    return f"{first}-{owner_digest(owner)}-{rng.getrandbits(24):06x}"


def idempotency_key(rng: random.Random) -> str:
    """A random UUIDv4 (contract 1.2)."""
    bits = rng.getrandbits(128)
    bits = bits & ~(0xF << 76) | (0x4 << 76)
    bits = bits & ~(0x3 << 62) | (0x2 << 62)
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
