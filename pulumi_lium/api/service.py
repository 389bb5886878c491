"""What this service can do (contract 4.1)."""

from __future__ import annotations

from ._http import HttpCore
from ._model import Model

RENT_IDEMPOTENCY = "rent_idempotency"
"""The feature that makes an order with the same idempotency key safe to send again."""


class ServiceVersion(Model):
    """The version's name and the features that the service promises."""

    version: str | None = None
    features: frozenset[str] = frozenset()


class ServiceClient:
    """`/version`."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def version(self) -> ServiceVersion:
        """An answer without a list of features promises none (contract 4.1)."""
        document = self._http.get("/version").document
        known = document if isinstance(document, dict) else {}
        version, features = known.get("version"), known.get("features")
        return ServiceVersion(
            version=version if isinstance(version, str) else None,
            features=frozenset(
                name for name in (features if isinstance(features, list) else []) if isinstance(name, str)
            ),
        )
