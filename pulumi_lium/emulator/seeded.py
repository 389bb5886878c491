"""Every random choice of the market, drawn from the scenario's seed."""

from __future__ import annotations

from hashlib import sha256

_MASK = (1 << 128) - 1
# An odd step and two odd multipliers: a counter that walks through all 128-bit numbers, its bits stirred twice.
_STEP = 0x9E3779B97F4A7C15F39CC0605CEDC835
_STIR_1 = 0xDA942042E4DD58B5D605C4AC3C5E4B17
_STIR_2 = 0x2360ED051FC65DA44385DF649FCCF645


class Seeded:
    """Numbers and ids that depend on the seed and on how many were drawn before, and on nothing else.

    The whole state is the count `drawn`, so that a stored market goes on with the same ids (a Mersenne Twister
    would have to store 2.5 kB with every change).
    """

    __slots__ = ("_origin", "drawn", "seed")

    def __init__(self, seed: int, drawn: int = 0) -> None:
        self.seed = seed
        self.drawn = drawn
        self._origin = int.from_bytes(sha256(str(seed).encode()).digest()[:16], "big")

    def _draw(self) -> int:
        """A number of 128 bits."""
        self.drawn += 1
        bits = (self._origin + self.drawn * _STEP) & _MASK
        bits = ((bits ^ (bits >> 67)) * _STIR_1) & _MASK
        bits = ((bits ^ (bits >> 61)) * _STIR_2) & _MASK
        return bits ^ (bits >> 64)

    def uuid(self) -> str:
        """A version-4 UUID as text."""
        text = f"{self._draw():032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high]; nothing is drawn where there is no choice."""
        if low == high:
            return low
        return low + (high - low) * ((self._draw() >> 64) / 2.0**64)
