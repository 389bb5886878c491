"""Makes what the service sends fit to be shown and kept: no API key in it, nothing that cannot be printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

HIDDEN = "***"

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_LONGEST_TEXT = 500
_SHORTEST_SECRET = 12


class Scrubber:
    """Takes one secret out of texts and JSON documents, in its plain and its percent-encoded form."""

    def __init__(self, secret: str) -> None:
        self._forms = tuple(sorted({secret, quote(secret, safe="")}, key=len, reverse=True))
        self._is_word = len(secret) < _SHORTEST_SECRET

    def __repr__(self) -> str:
        return "Scrubber()"

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return _encodable(text)

    def document(self, value: Any) -> Any:
        """The same JSON document with every text cleaned, names included."""
        return _each_text(value, self.text)

    def answer(self, value: Any) -> Any:
        """As `document`, for what is acted upon: a key that is a mere word ("test") must not change ids and names."""
        return _each_text(value, _encodable if self._is_word else self.text)

    def sentence(self, text: str) -> str:
        """A text of the service as one short line for a person: no control characters, no terminal codes."""
        line = " ".join(_UNPRINTABLE.sub(" ", self.text(text)).split())
        return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 1] + "…"


def _encodable(text: str) -> str:
    """A lone surrogate is legal in JSON and breaks every stream that it is later written to."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _each_text(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_each_text(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(name): _each_text(item, clean) for name, item in value.items()}
    return value
