"""The journal: every API request since the reset, in order of arrival (design 4.3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Entry:
    """One request. `status` is None while it runs, and for good when the connection was cut without an answer.

    `key_id` is the id of the API key, never the key. `committed` says whether this request changed the market;
    a replayed answer changed nothing.
    """

    method: str
    path: str
    key_id: str | None
    idempotency_key: str | None
    status: int | None = None
    committed: bool = False


class Journal:
    """Entries in order of arrival."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def open(self, method: str, path: str, key_id: str | None, idempotency_key: str | None) -> Entry:
        """Note an arrival; the caller fills in `status` and `committed` when they are known."""
        entry = Entry(method, path, key_id, idempotency_key)
        self._entries.append(entry)
        return entry

    def clear(self) -> None:
        self._entries.clear()

    def rows(self) -> list[dict[str, Any]]:
        """The entries as plain rows, oldest first."""
        return [asdict(entry) for entry in self._entries]
