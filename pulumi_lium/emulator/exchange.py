"""What crosses the wire, as plain values: one request in, one answer or a cut connection out.

Shared by the HTTP server and the in-process transport, so that both meet the same emulator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived.

    `segments` are the percent-decoded parts of the path, so that an encoded slash stays inside its id (contract 1.1).
    Header names are lower-cased.
    """

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def path(self) -> str:
        return "/" + "/".join(self.segments)


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer: status, body, headers (names lower-cased)."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, status: int, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
        return cls(status, json_bytes(value), {"content-type": JSON_TYPE, **(headers or {})})


class Cut(Enum):
    """A connection that ends without an answer."""

    REFUSED = "refused"
    """Reset at once: as near to a refused connection as a listening socket comes."""
    DROPPED = "dropped"
    """Closed after the request had been read."""


def split_path(raw_path: str) -> tuple[str, ...]:
    """The percent-decoded segments of a raw path; empty ones are kept, since `//` is another path (contract 1.1)."""
    return tuple(unquote(segment) for segment in raw_path.removeprefix("/").split("/"))


def json_bytes(value: Any) -> bytes:
    """Compact ASCII JSON: any text, lone surrogates too, comes out as valid bytes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def envelope(status: int, code: str, message: Any, request_id: str, hint: str | None = None) -> dict[str, Any]:
    """The error envelope (contract 2.1). `message` may be an object that carries structured fields."""
    text = message.get("message", code) if isinstance(message, Mapping) else message
    return {
        "success": False,
        "error": {"code": code, "message": text, "hint": hint, "request_id": request_id},
        "message": message,
        "status_code": status,
    }


def status_text(status: int) -> str:
    """The reason phrase of a status, for envelopes that nobody worded."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"
