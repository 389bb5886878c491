"""What the verbs raise beside the client's own errors. What may still bill is always named with its price per hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulumi_lium.api.errors import LiumError


class InvalidInputs(LiumError, ValueError):
    """Inputs that cannot be used: one `(property, reason)` each. Nothing was sent."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in failures), code="invalid_inputs")
        self.failures = tuple(failures)


class NothingMatches(LiumError):
    """No fabric on sale fits. Says what was closest, and why each fabric was ruled out."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="nothing_matches")


class OrderUnsettled(LiumError):
    """An order was sent, and neither its answer nor the listing tells whether machines are rented."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, code="order_unsettled", **facts)


class OperationFailed(LiumError):
    """A long-running step ended badly: a node failed to start, a member refuses to go."""


class OperationTimeout(OperationFailed):
    """A long-running step was not done within its limit."""
