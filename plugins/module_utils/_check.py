# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Checks as declared objects: id, title, severity and the reason stand in one place, the verdict is a function.

A check function takes the probe (or facts made from it) and answers with one of the verdict methods of its
:class:`Check`. It may raise :class:`ProbeError` or :class:`ParseError`: :func:`evaluate` turns both into ``UNKNOWN``.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._record import (
    MUST_FIX,
    OK,
    SKIPPED,
    UNKNOWN,
    WARN,
    Record,
)

Subject = TypeVar("Subject")


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of the host contract. ``why`` says what it means for a sale; ``expected`` what a good host shows."""

    id: str
    title: str
    severity: str
    expected: str
    why: str
    source: str

    def _record(self, status: str, observed: str, remediation: str, expected: str | None, source: str | None) -> Record:
        if remediation:
            remediation = f"{remediation.rstrip('.')}. Why: {self.why}"
        return Record(
            id=self.id,
            title=self.title,
            status=status,
            observed=observed,
            expected=self.expected if expected is None else expected,
            remediation=remediation,
            evidence_source=self.source if source is None else source,
            severity=self.severity,
        )

    def ok(self, observed: str, *, expected: str | None = None, source: str | None = None) -> Record:
        return self._record(OK, observed, "", expected, source)

    def warn(self, observed: str, fix: str, *, expected: str | None = None, source: str | None = None) -> Record:
        return self._record(WARN, observed, fix, expected, source)

    def must_fix(self, observed: str, fix: str, *, expected: str | None = None, source: str | None = None) -> Record:
        return self._record(MUST_FIX, observed, fix, expected, source)

    def unknown(self, reason: str, fix: str | None = None, *, source: str | None = None) -> Record:
        """What could not be read. ``fix`` says how to make it readable."""
        how = fix or f"Make it readable ({self.source if source is None else source}) and run the audit again"
        return self._record(UNKNOWN, reason, how, None, source)

    def skipped(self, reason: str) -> Record:
        return self._record(SKIPPED, reason, "", None, None)


@dataclasses.dataclass(frozen=True)
class BoundCheck(Generic[Subject]):
    """A check with its verdict function."""

    check: Check
    verdict: Callable[[Subject], Record]


@dataclasses.dataclass(frozen=True)
class Section(Generic[Subject]):
    """Checks that are looked at together. A blocker in a section that it ``needs`` makes it pointless."""

    name: str
    checks: Sequence[BoundCheck[Subject]]
    needs: tuple[str, ...] = ()


def evaluate(sections: Iterable[Section[Subject]], subject: Subject) -> list[Record]:
    """Runs the sections in their order; one record a check, whatever happens to it.

    A blocker stops the sections that need the one it stands in, with ``SKIPPED`` and a reason (host-contract 1); its
    own section is looked at to the end, and so is what does not depend on it, so that one run names all there is to do.
    """
    records: list[Record] = []
    blockers: dict[str, list[str]] = {}
    for section in sections:
        stops = [blocker for name in section.needs for blocker in blockers.get(name, [])]
        if stops:
            reason = f"not looked at: {', '.join(stops)} must be fixed first"
            records.extend(bound.check.skipped(reason) for bound in section.checks)
            continue
        seen = [_verdict(bound, subject) for bound in section.checks]
        records.extend(seen)
        blockers[section.name] = [record.id for record in seen if record.blocks]
    return records


def skip_all(sections: Iterable[Section[Subject]], reason: str) -> list[Record]:
    """Every check of the sections as ``SKIPPED``, where the collection must keep its hands off a host."""
    return [bound.check.skipped(reason) for section in sections for bound in section.checks]


def _verdict(bound: BoundCheck[Subject], subject: Subject) -> Record:
    try:
        return bound.verdict(subject)
    except (ProbeError, ParseError) as exc:
        return bound.check.unknown(str(exc))
