"""Record: a mutable thing of the market that can be stored and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

R = TypeVar("R", bound="Record")


# Metadata of a field that is worked out again from the scenario or from other records, and so is not stored.
UNSTORED = {"stored": False}
_STORED: dict[type[Record], tuple[str, ...]] = {}


def _stored(kind: type[Record]) -> tuple[str, ...]:
    if kind not in _STORED:
        _STORED[kind] = tuple(item.name for item in fields(kind) if item.metadata.get("stored", True))
    return _STORED[kind]


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """Base of the market's records: stored fields hold plain JSON data. `seq` is the order of creation."""

    seq: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'id', self.seq)}>"

    def to_record(self) -> dict[str, Any]:
        """The stored fields as a JSON-able dict that later changes do not reach."""
        record: dict[str, Any] = {}
        for name in _stored(type(self)):
            value = getattr(self, name)
            record[name] = value.copy() if isinstance(value, list | dict) else value
        return record

    def load(self: R, record: Mapping[str, Any]) -> R:
        """Set the stored fields from what `to_record` gave."""
        for name in _stored(type(self)):
            value = record[name]
            setattr(self, name, value.copy() if isinstance(value, list | dict) else value)
        return self

    @classmethod
    def from_record(cls: type[R], record: Mapping[str, Any]) -> R:
        """A thing all of whose other fields have defaults, from what `to_record` gave."""
        return cls(**{name: record[name] for name in _stored(cls)}).load(record)
