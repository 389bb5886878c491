"""Every random choice of the market, drawn from the scenario's seed."""

from __future__ import annotations

from hashlib import blake2b

_SPAN = float(1 << 64)


class Seeded:
    """Numbers and ids that depend on the seed and on how many were drawn before, and on nothing else.

    The whole state is the count `drawn`, so that a stored market goes on with the same ids (a Mersenne Twister
    would have to store 2.5 kB with every change).
    """

    __slots__ = ("_key", "drawn", "seed")

    def __init__(self, seed: int, drawn: int = 0) -> None:
        self.seed = seed
        self.drawn = drawn
        self._key = blake2b(str(seed).encode(), digest_size=32).digest()

    def _draw(self) -> bytes:
        self.drawn += 1
        return blake2b(b"%d" % self.drawn, digest_size=16, key=self._key).digest()

    def uuid(self) -> str:
        """A version-4 UUID as text."""
        text = self._draw().hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        if low == high:
            return low
        return low + (high - low) * (int.from_bytes(self._draw()[:8], "big") / _SPAN)
