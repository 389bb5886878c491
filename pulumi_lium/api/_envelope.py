"""From an answer that says no to an error: the service's envelope in all its shapes (contract 2.1, 2.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._scrub import Scrubber
from .errors import (
    ApiError,
    Conflict,
    Forbidden,
    InsufficientBalance,
    Invalid,
    MissingScope,
    NotFound,
    QuotaExceeded,
    RateLimited,
    ServerError,
    Unauthorized,
    Violation,
)

_SCOPE_CODES = frozenset({"api_key_scope", "missing_scope", "insufficient_scope", "scope_required"})
_UNSETTLED_CODES = frozenset({"idempotency_in_progress", "idempotency_outcome_unknown"})
_SCOPE = re.compile(r"does not have the '([^']+)' scope")
_REQUIRED = re.compile(r"requires at least (-?\$-?[\d,]*\.?\d+)")
_AVAILABLE = re.compile(r"balance is (-?\$-?[\d,]*\.?\d+)")
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Envelope:
    """What a refusal says. Texts are single clean lines; `message` is empty where it gives no reason."""

    message: str
    code: str | None
    hint: str | None
    request_id: str | None
    data: dict[str, Any]
    violations: tuple[Violation, ...]

    @property
    def facts(self) -> dict[str, Any]:
        return {"code": self.code, "hint": self.hint, "request_id": self.request_id}


def read_envelope(document: Any, body: bytes, headers: Mapping[str, str], scrub: Scrubber) -> Envelope:
    """`document` is the scrubbed JSON of the body, or null where the body is not JSON."""
    fields = _object(document)
    error = _object(fields.get("error"))
    violations = _violations(fields)
    places = (error.get("data"), fields.get("message"), fields.get("detail"))
    said = _message(fields, violations) or (document if isinstance(document, str) else "")
    return Envelope(
        message=scrub.sentence(said) or (_page(body, scrub) if document is None else ""),
        code=scrub.sentence(_string(error.get("code"))) or None,
        hint=scrub.sentence(_string(error.get("hint"))) or None,
        request_id=scrub.sentence(_string(error.get("request_id")) or headers.get("x-request-id", "")) or None,
        data=next((_object(place) for place in places if _object(place)), {}),
        violations=violations,
    )


def api_error(status: int, envelope: Envelope, *, is_write: bool, **where: Any) -> ApiError:
    """The error for a status of 400 or more. `where` goes to it as it is: method, path, retry_after."""
    message, code, data = envelope.message, envelope.code, envelope.data
    facts = {"status": status, "data": data, **envelope.facts, **where}
    if status == 401:
        return Unauthorized(message or "The API key is not accepted", **facts)
    if status == 402:
        return QuotaExceeded(
            message or "Budget exceeded",
            window=_string(data.get("window")) or None,
            budget_usd=_number(data.get("budget_usd")),
            spent_usd=_number(data.get("spent_usd")),
            **facts,
        )
    if status == 403:
        return _forbidden(message or "Permission denied", code, facts)
    if status == 404:
        return NotFound(message or "Not found", **facts)
    if status == 409:
        pending = tuple(pod for pod in _list(data.get("pending_pods")) if isinstance(pod, str))
        unsettled = code in _UNSETTLED_CODES
        return Conflict(message or "Conflict", pending_pods=pending, outcome_unknown=unsettled, **facts)
    if status == 429:
        return RateLimited(message or "Rate limit exceeded", outcome_unknown=is_write, **facts)
    if status in (400, 422):
        return Invalid(message or "The request is not valid", violations=envelope.violations, **facts)
    if status >= 500:
        return ServerError(message or "The service failed", outcome_unknown=is_write, **facts)
    return ApiError(message or "Request failed", **facts)


def _forbidden(message: str, code: str | None, facts: dict[str, Any]) -> Forbidden:
    scope = _SCOPE.search(message)
    if scope or code in _SCOPE_CODES:
        return MissingScope(message, scope=scope[1] if scope else None, **facts)
    if code == "insufficient_balance" or (code is None and "insufficient balance" in message.lower()):
        required, available = _usd(_REQUIRED.search(message)), _usd(_AVAILABLE.search(message))
        return InsufficientBalance(message, required=required, available=available, **facts)
    return Forbidden(message, **facts)


def _message(fields: dict[str, Any], violations: tuple[Violation, ...]) -> str:
    """The reason in words, from the first place that has one."""
    message, detail = fields.get("message"), fields.get("detail")
    if violations:
        listed = "; ".join(f"{field}: {why}" if field else why for field, why in violations)
        return f"{message}: {listed}" if isinstance(message, str) and message else listed
    for place in (_object(detail), _object(message)):
        if text := _string(place.get("message")):
            active = _string(place.get("active_operation_id"))
            return f"{text} (active operation: {active})" if active else text
    return _string(detail) or _string(message) or _string(_object(fields.get("error")).get("message"))


def _violations(fields: dict[str, Any]) -> tuple[Violation, ...]:
    """`validation_errors` (field, message), else a list in `detail` (loc, msg)."""
    named = [
        Violation(_string(row.get("field")), _string(row.get("message")))
        for row in map(_object, _list(fields.get("validation_errors")))
    ]
    located = [
        Violation(_place(_list(row.get("loc"))), _string(row.get("msg")))
        for row in map(_object, _list(fields.get("detail")))
    ]
    return tuple(fault for fault in named if fault.message) or tuple(fault for fault in located if fault.message)


def _place(loc: list[Any]) -> str:
    parts = [str(part) for part in loc if isinstance(part, (str, int))]
    return ".".join(parts[1:] if parts[:1] == ["body"] else parts)


def _page(body: bytes, scrub: Scrubber) -> str:
    """What a body that is no JSON says: the title of a web page, or the plain text."""
    text = body[:20_000].decode("utf-8", "replace").strip()
    if not text.startswith("<"):
        return scrub.sentence(text)
    title = _TITLE.search(text)
    return scrub.sentence(f"a web page came, not an answer of the API: {title[1] if title else 'it has no title'}")


def _usd(found: re.Match[str] | None) -> float | None:
    return _number(found[1].replace("$", "").replace(",", "")) if found else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
