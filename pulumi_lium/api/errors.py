"""The one tree of errors of this package.

Each error says what went wrong, where (method and path), the service's code, the HTTP status, the request id, and
what to do next. No error holds the API key: what the service sends is cleaned of it before it gets here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple


class Violation(NamedTuple):
    """One field that the service refused, and why."""

    field: str
    message: str


class LiumError(Exception):
    """The root. Everything that this package raises for a reason outside the program is one.

    `hint` is the advice of the service, or of whoever raises; without one the class gives its own `advice`.
    `outcome_unknown` is true where a write may have been carried out although it failed here: look before you resend.
    """

    advice: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        hint: str | None = None,
        outcome_unknown: bool = False,
        method: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.request_id = request_id
        self.hint = hint
        self.outcome_unknown = outcome_unknown
        self.method = method
        self.path = path

    def __str__(self) -> str:
        facts = [
            f"{self.method} {self.path}" if self.method and self.path else "",
            f"HTTP {self.status}" if self.status is not None else "",
            f"code {self.code}" if self.code else "",
            f"request {self.request_id}" if self.request_id else "",
        ]
        known = ", ".join(fact for fact in facts if fact)
        sentences = [
            f"{self.message.rstrip(' .')} [{known}]" if known else self.message,
            self.hint or self.advice,
            "The request may have been carried out: look at the listing before you send it again."
            if self.outcome_unknown
            else "",
        ]
        text = ""
        for sentence in filter(None, sentences):
            text += (" " if text.endswith((".", "!", "?")) else ". ") + sentence if text else sentence
        return text


class InvalidArgument(LiumError, ValueError):
    """A setting or an argument is wrong; nothing was sent."""


class NoApiKey(InvalidArgument):
    """No API key is set for the account."""


class TransportError(LiumError):
    """No answer: the service could not be reached, or the connection broke before the answer was there.

    `sent` is false only where the request certainly never left (no connection was made).
    """

    advice = "Check the network and LIUM_BASE_URL."

    def __init__(self, message: str, *, sent: bool = True, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.sent = sent


class UndecodableAnswer(LiumError):
    """An answer came, but it is not what the contract promises; nothing can be concluded from it, not even "empty"."""

    advice = (
        "The service, or something on the way to it, gave an answer of another kind:"
        " check LIUM_BASE_URL (it ends in /api)."
    )


class RedirectRefused(LiumError):
    """The service pointed to another server, or in circles. The API key is sent to no server but the one configured."""

    advice = "If the service has moved to an address that you trust, set LIUM_BASE_URL to it."


class Refused(LiumError):
    """A definite no inside a 2xx answer (`success: false`); nothing was done."""

    advice = "Correct what the service names, or try again later."


class OrderRefused(Refused):
    """The order was refused as a whole (contract 4.8); nothing is rented."""

    advice = "Nothing was rented. List the offers again and change the order."


class ApiError(LiumError):
    """The service answered with an error status. `data` holds the structured fields that came along (contract 2.1).

    `retry_after` is the time in seconds after which the service wants to be asked again, never above the client's cap;
    null where it said nothing.
    """

    advice = "Check that LIUM_BASE_URL is the service's own address; if it stays so, report it with the request id."

    def __init__(
        self, message: str, *, data: Mapping[str, Any] | None = None, retry_after: float | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.data: dict[str, Any] = dict(data or {})
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401: the API key is not accepted."""

    advice = "Set a valid key in LIUM_API_KEY. For a stack `pulumi config set --secret lium:apiKey` does too."


class Forbidden(ApiError):
    """403: the key is valid but may not do this."""

    advice = "Use a key of the account or workspace that owns this, with the scope that the call needs."


class InsufficientBalance(Forbidden):
    """403: the balance is below what the service asks for. `required` and `available` are USD, where it named them."""

    advice = "Add funds, or order fewer or cheaper nodes."

    def __init__(
        self, message: str, *, required: float | None = None, available: float | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.required = required
        self.available = available


class MissingScope(Forbidden):
    """403: the key lacks a scope; `scope` is its name where the service told it."""

    advice = "Create a key that has this scope and use it."

    def __init__(self, message: str, *, scope: str | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.scope = scope


class QuotaExceeded(ApiError):
    """402: the key's budget is used up (USD; `window` is daily, monthly or max), or a payment failed."""

    advice = "Raise the budget of the API key, or wait until its window starts anew."

    def __init__(
        self,
        message: str,
        *,
        window: str | None = None,
        budget_usd: float | None = None,
        spent_usd: float | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.window = window
        self.budget_usd = budget_usd
        self.spent_usd = spent_usd


class NotFound(ApiError):
    """404: no such thing, or not visible to this key. No proof of absence by itself (contract 7.5)."""

    advice = "Check the id, and that the API key belongs to the workspace that owns it."


class Conflict(ApiError):
    """409: not in this state. `pending_pods` are the members still being created (contract 4.10)."""

    advice = "Something else is under way with it: wait a little."

    def __init__(self, message: str, *, pending_pods: tuple[str, ...] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.pending_pods = pending_pods


class RateLimited(ApiError):
    """429, on every attempt."""

    advice = "Wait a minute; other programs with this account share the limit."


class Invalid(ApiError):
    """400 or 422: the request is wrong; `violations` names the fields, where the service did."""

    advice = "Correct the request."

    def __init__(self, message: str, *, violations: tuple[Violation, ...] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.violations = violations


class ServerError(ApiError):
    """5xx: the service, or a gateway before it, failed."""

    advice = "If it stays so, report it with the request id."
