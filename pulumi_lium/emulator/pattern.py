"""`METHOD path` patterns, as the fault rules and the scripts of the control plane spell them (design 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from .exchange import Request

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One method and one path, in which `*` stands for exactly one segment."""

    method: str
    segments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read `DELETE /clusters/*`. Raises ValueError that says how it is spelled."""
        method, _, path = text.strip().partition(" ")
        path = path.strip()
        if method.upper() not in METHODS or not path.startswith("/"):
            raise ValueError(
                f"{text!r} is not `METHOD /path`; write for example `DELETE /clusters/*` (`*` is one path segment, "
                f"no /api in front; methods: {', '.join(METHODS)})"
            )
        path = path.partition("?")[0]
        return cls(method.upper(), tuple(unquote(part) for part in path.removeprefix("/").split("/")))

    def matches(self, request: Request) -> bool:
        return (
            self.method == request.method
            and len(self.segments) == len(request.segments)
            and all(mine in ("*", theirs) for mine, theirs in zip(self.segments, request.segments, strict=True))
        )
