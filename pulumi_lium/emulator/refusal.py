"""How the market says no (contract 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):
    """A request that the market turned down; the HTTP layer renders it as the service's error envelope.

    Attributes:
        status: the HTTP status (4xx).
        code: `error.code` of the envelope.
        message: `error.message`, one line.
        hint: `error.hint`.
        data: when set, the object that stands in the envelope's top-level `message`, structured fields included.
        detail: when set, the text of the top-level `message` where it differs from `message` (contract 12, balance).
        headers: response headers, for example Retry-After or Idempotent-Replayed.
        violations: field and message of each fault of the body (`validation_errors`, contract 12).
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        data: Mapping[str, Any] | None = None,
        detail: str | None = None,
        headers: Mapping[str, str] | None = None,
        violations: list[dict[str, str]] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.data = dict(data) if data is not None else None
        self.detail = detail
        self.headers = dict(headers) if headers else {}
        self.violations = violations

    def envelope(self, request_id: str) -> dict[str, Any]:
        """The JSON body of contract 2.1."""
        top: Any = self.data if self.data is not None else (self.detail or self.message)
        body: dict[str, Any] = {
            "success": False,
            "error": {"code": self.code, "message": self.message, "hint": self.hint, "request_id": request_id},
            "message": top,
            "status_code": self.status,
        }
        if self.violations:
            body["validation_errors"] = self.violations
        return body

    def to_record(self) -> dict[str, Any]:
        """JSON-able form, for the idempotency record that replays a refusal."""
        return {
            "status": self.status,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "data": self.data,
            "detail": self.detail,
            "violations": self.violations,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Refusal:
        """The refusal that `to_record` described."""
        return cls(
            record["status"],
            record["code"],
            record["message"],
            hint=record["hint"],
            data=record["data"],
            detail=record["detail"],
            violations=record["violations"],
            headers=headers,
        )


def invalid(*violations: tuple[str, str]) -> Refusal:
    """422 for a body that the service cannot read (contract 12, validation refusal)."""
    return Refusal(
        422,
        "validation_error",
        "Validation failed",
        violations=[{"field": field, "message": message} for field, message in violations],
    )


def not_found(what: str) -> Refusal:
    """404 for an id that is nobody's, or not the caller's inside a workspace (contract 7.5.7)."""
    return Refusal(404, "not_found", f"{what} not found")
