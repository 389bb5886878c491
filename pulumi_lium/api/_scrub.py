"""Makes what the service sends fit to be shown and kept: no API key in it, nothing that cannot be printed."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

HIDDEN = "***"

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_LONGEST_TEXT = 500


class Scrubber:
    """Takes one secret out of texts and JSON documents, in its plain and its percent-encoded form."""

    def __init__(self, secret: str) -> None:
        self._forms = tuple(sorted({secret, quote(secret, safe="")}, key=len, reverse=True))

    def __repr__(self) -> str:
        return "Scrubber()"

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        # A lone surrogate is legal in JSON and breaks every stream that it is later written to.
        return text.encode("utf-8", "replace").decode("utf-8")

    def document(self, value: Any) -> Any:
        """The same JSON document with every text cleaned, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.document(item) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self.document(item) for name, item in value.items()}
        return value

    def sentence(self, text: str) -> str:
        """A text of the service as one short line for a person: no control characters, no terminal codes."""
        line = " ".join(_UNPRINTABLE.sub(" ", self.text(text)).split())
        return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 1] + "…"
