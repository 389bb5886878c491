# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The one record that every check of the collection answers with (host-contract, "status vocabulary").

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

OK = "OK"
WARN = "WARN"
MUST_FIX = "MUST_FIX"
UNKNOWN = "UNKNOWN"
SKIPPED = "SKIPPED"

#: Worst first: the status of a group of records is the first of these that occurs in it. A left-out check counts least.
STATUSES = (MUST_FIX, UNKNOWN, WARN, OK, SKIPPED)
SEVERITIES = ("blocker", "degraded", "info")


@dataclasses.dataclass(frozen=True)
class Record:
    """What one check saw on one host.

    ``severity`` belongs to the check, ``status`` to what was seen: a ``blocker`` that is ``MUST_FIX`` keeps the host
    from being sold. ``remediation`` is empty only when nothing has to be done.
    """

    id: str
    title: str
    status: str
    observed: str
    expected: str
    remediation: str
    evidence_source: str
    severity: str

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.id}: status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.severity not in SEVERITIES:
            raise ValueError(f"{self.id}: severity {self.severity!r} is none of {', '.join(SEVERITIES)}")
        if self.status in (MUST_FIX, WARN, UNKNOWN) and not self.remediation:
            raise ValueError(f"{self.id}: a record with status {self.status} says what to do")

    @property
    def blocks(self) -> bool:
        """Whether the host cannot be sold as it is."""
        return self.status == MUST_FIX and self.severity == "blocker"

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Record:
        """A record that came back as JSON. Unknown keys are refused, so that a typing error cannot pass as a check."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(row) != names:
            wrong = ", ".join(sorted(map(str, set(row) ^ names)))
            raise ValueError(f"a record has exactly the keys {', '.join(sorted(names))}; differing: {wrong}")
        return cls(**{name: str(row[name]) for name in names})


def worst_status(statuses: Iterable[str]) -> str:
    """The status that a group of checks has together. An empty group was not looked at: ``UNKNOWN``, never ``OK``."""
    seen = set(statuses)
    return next((status for status in STATUSES if status in seen), UNKNOWN)


def merge_by_id(*groups: Iterable[Record]) -> list[Record]:
    """Joins the records of several looks at one host; of two with one id the later wins, in the earlier's place."""
    merged: dict[str, Record] = {}
    for group in groups:
        for record in group:
            merged[record.id] = record
    return list(merged.values())
