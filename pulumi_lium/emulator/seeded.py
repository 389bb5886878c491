"""Every random choice of the market, drawn from the scenario's seed."""

from __future__ import annotations

from hashlib import blake2b

# Draws of 128 bits that one digest of 64 bytes is cut into, and the hex digits of each.
_DRAWS, _DIGITS = 4, 32


class Seeded:
    """Numbers and ids that depend on the seed and on how many were drawn before, and on nothing else.

    The whole state is the count `drawn`, so that a stored market goes on with the same ids (a Mersenne Twister
    would have to store 2.5 kB with every change).
    """

    __slots__ = ("_block", "_block_at", "_keyed", "drawn", "seed")

    def __init__(self, seed: int, drawn: int = 0) -> None:
        self.seed = seed
        self.drawn = drawn
        self._keyed = blake2b(key=blake2b(str(seed).encode(), digest_size=32).digest())
        self._block, self._block_at = "", -1

    def _draw(self) -> str:
        """32 hex digits."""
        at, part = divmod(self.drawn, _DRAWS)
        self.drawn += 1
        if at != self._block_at:
            digest = self._keyed.copy()
            digest.update(b"%d" % at)
            self._block, self._block_at = digest.hexdigest(), at
        return self._block[part * _DIGITS : part * _DIGITS + _DIGITS]

    def uuid(self) -> str:
        """A version-4 UUID as text."""
        text = self._draw()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]; nothing is drawn where there is no choice."""
        if low == high:
            return low
        return low + (high - low) * (int(self._draw()[:16], 16) / 2.0**64)
