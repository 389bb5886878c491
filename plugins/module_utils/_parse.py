# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What all parsers share. A parser is a pure function on text; whatever the text is, it raises only ParseError.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import json
from typing import Any


class ParseError(Exception):
    """A tool printed something else than was understood. ``tool`` names it, ``line`` holds the text in question."""

    def __init__(self, tool: str, problem: str, line: str = "") -> None:
        shown = f": {line.strip()[:160]!r}" if line.strip() else ""
        super().__init__(f"{tool}: {problem}{shown}")
        self.tool = tool
        self.line = line


def load_json(tool: str, text: str) -> Any:
    """The JSON that a tool printed. Tools are known to print text before it, or no JSON at all, with ``-j``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ParseError(tool, "not JSON", text) from exc


def parse_int(tool: str, text: str, base: int = 10) -> int:
    try:
        return int(text.strip(), base)
    except ValueError as exc:
        raise ParseError(tool, "not a whole number", text) from exc


def key_values(text: str, separator: str = "=") -> dict[str, str]:
    """``key=value`` lines as a mapping; lines without the separator, empty ones and comments are left out."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.strip().partition(separator)
        if found and not key.startswith("#"):
            pairs[key.strip()] = value.strip().strip('"').strip("'")
    return pairs
