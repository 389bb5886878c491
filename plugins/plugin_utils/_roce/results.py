# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Records of tests on the control node: joined from both ends, taken over from an earlier run, judged together.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.culprit import Outcome
from ansible_collections.lium.cluster.plugins.module_utils._roce.outliers import outliers
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import FAIL, NOT_MEASURED, OK, SKIPPED, WARN
from ansible_collections.lium.cluster.plugins.module_utils._roce.records import told_of
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest

GOOD = (OK, WARN)
#: Nothing ran: neither proven nor failed.
NO_TEST = (NOT_MEASURED, SKIPPED)
Records = dict[LinkTest, dict[str, Any]]
Pair = frozenset[str]


class ResultsError(ValueError):
    """A file of results that is none; the text names the file and what is wrong."""


def test_of(record: Mapping[str, Any]) -> LinkTest:
    """The test that a record is about. Data flows from the client to the server."""
    forward = record["direction"] == "a_to_b"
    server, client = (record["b"], record["a"]) if forward else (record["a"], record["b"])
    return LinkTest(server, client, int(record["rail"]))


def joined(sent: Iterable[tuple[str, dict[str, Any]]]) -> Records:
    """One record a test.

    Both ends send theirs; one that measured counts before one that says that nothing was measured.
    """
    records: Records = {}
    for _, record in sent:
        test = test_of(record)
        known = records.get(test)
        if known is None or (known["status"] in NO_TEST and record["status"] not in NO_TEST):
            records[test] = record
    return records


def with_reruns(swept: Mapping[LinkTest, dict[str, Any]], again: Mapping[LinkTest, dict[str, Any]]) -> Records:
    """The final record of each test: what it showed alone counts for the pair, and both numbers are kept (5.5).

    The platform measures one pair at a time, so a pair that is good alone will be proven there; it is ``WARN`` here.
    """
    final = {test: dict(record) for test, record in swept.items()}
    for test, record in again.items():
        before = final.get(test)
        if record["status"] in NO_TEST:
            continue
        if before is None or not record["alone"]:
            if before is None or before["status"] in NO_TEST:
                final[test] = dict(record)
            continue
        both = {"isolated": record["gigabits_per_second"], "loaded": before["gigabits_per_second"]}
        final[test] = {**record, **both}
        if record["status"] == OK and before["status"] not in (OK, *NO_TEST):
            final[test].update(
                status=WARN, hint=f"good alone; while other tests ran: {before['class'] or before['hint']}"
            )
    return final


def outcomes(records: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """What the search for the guilty part needs to know of each test that ran.

    Without a ceiling (soft-RoCE) a rate far below the others' is slow, as a share of their median.
    """
    ran = [record for record in records if record["status"] not in NO_TEST]
    soft = [record for record in ran if record["ceiling_gbps"] is None and record["gigabits_per_second"]]
    rates = [record["gigabits_per_second"] for record in soft]
    low = {id(record) for record, out in zip(soft, outliers(rates, soft=True)) if out}
    middle = sorted(rates)[len(rates) // 2] if rates else None
    found = []
    for record in ran:
        bad, share = record["status"] != OK, record["share"]
        if id(record) in low:
            bad, share = True, record["gigabits_per_second"] / middle
        found.append(Outcome(test_of(record), bad, share, record["class"], record["accused"], bool(record["alone"])))
    return found


def mark_outliers(records: Records) -> None:
    """Turns ``OK`` into ``WARN`` for tests far below the median of those with the same ceiling."""
    alike: dict[float | None, list[dict[str, Any]]] = defaultdict(list)
    for record in records.values():
        if record["status"] == OK:
            alike[record["ceiling_gbps"]].append(record)
    for ceiling, group in alike.items():
        flags = outliers([record["gigabits_per_second"] for record in group], soft=ceiling is None)
        for record, out in zip(group, flags):
            if out:
                record.update(status=WARN, hint="far below the median of the pairs with the same ceiling")


def load(path: str) -> list[dict[str, Any]]:
    """The records of an earlier run; none where the file does not exist yet. Raises :class:`ResultsError`."""
    content = _read(path)
    return [] if content is None else list(content["records"])


def for_report(path: str) -> dict[str, Any] | None:
    """An earlier run with its verdicts (docs/schema/roce.schema.json); None where the file does not exist.

    Raises :class:`ResultsError`, also for a file that lacks what the report shows.
    """
    content = _read(path)
    if content is None:
        return None
    fabrics = content.get("fabrics")
    if not isinstance(fabrics, list):
        raise ResultsError(f"{path}: has no list of fabrics")
    for rows, wanted in ((fabrics, _SHOWN_OF_FABRIC), (content["records"], _SHOWN_OF_RECORD)):
        for row in rows:
            if not isinstance(row, dict) or not wanted <= set(row):
                raise ResultsError(f"{path}: an entry lacks {', '.join(sorted(wanted - set(row)))}")
    return content


_SHOWN_OF_FABRIC = {"segment", "hosts", "pairs", "proven", "failed", "not_measured", "guilty", "blocking"}
_SHOWN_OF_RECORD = {"a", "b", "status", "gigabits_per_second", "share", "cause"}


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise ResultsError(
            f"{path}: not a readable file of results ({exc}); move it away to measure all pairs anew"
        ) from exc
    records = content.get("records") if isinstance(content, dict) else None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ResultsError(f"{path}: has no list of records; move it away to measure all pairs anew")
    return dict(content)


def still_proven(
    records: Iterable[Mapping[str, Any]],
    rails: Mapping[str, Sequence[RailAt]],
    *,
    settings: Settings,
    now: datetime,
    max_age_s: float,
) -> Records:
    """The records that need no new test: good, fresh, measured the same way, and of rails that are still the same.

    A good record proves nothing beside one of the same thing that is not good (a failed pair whose rerun with the
    roles swapped was good leaves both), nor where a later test of its pair in the other mode was not good. A record
    that is not understood proves nothing and is measured anew.
    """
    told = told_of(settings)
    good: list[tuple[datetime, Mapping[str, Any]]] = []
    not_good: set[tuple[Any, ...]] = set()
    other_mode: dict[Pair, datetime] = {}
    for record in records:
        try:
            at, pair = _time(record), _pair(record)
            if record["status"] not in GOOD:
                not_good.add(_key(record))
                if record["mode"] != told["mode"]:
                    other_mode[pair] = max(at, other_mode.get(pair, at))
            elif (
                timedelta(0) <= now - at <= timedelta(seconds=max_age_s)
                and all(record.get(name) == value for name, value in told.items())
                and all(_same(record, side, rails) for side in ("a", "b"))
            ):
                good.append((at, record))
        except (KeyError, TypeError, ValueError):
            continue
    return {
        test_of(record): dict(record)
        for at, record in good
        if _key(record) not in not_good and at >= other_mode.get(_pair(record), at)
    }


def newest_mode(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each pair the records of the mode that measured it last; what the other mode saw before is history."""
    known = list(records)
    newest: dict[Pair, tuple[datetime, str]] = {}
    for record in known:
        seen = _time(record), str(record["mode"])
        newest[_pair(record)] = max(seen, newest.get(_pair(record), seen))
    return [record for record in known if newest[_pair(record)][1] == record["mode"]]


def _same(record: Mapping[str, Any], side: str, rails: Mapping[str, Sequence[RailAt]]) -> bool:
    own = rails.get(record[side], ())
    if record["rail"] >= len(own):
        return False
    rail = own[record["rail"]]
    told = record[f"{side}_device"], record[f"{side}_gid_index"], record[f"{side}_address"]
    return told == (f"{rail.device}:{rail.port}", rail.gid_index, rail.address)


def carried_over(earlier: Iterable[Mapping[str, Any]], judged: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Earlier records that this run says nothing about: of hosts that it left out, or of the other mode.

    So a run over some hosts, or one in the other mode, loses nothing that was proven before.
    """
    superseded = {_key(record) for record in judged}
    kept = []
    for record in earlier:
        try:
            if _key(record) not in superseded and _time(record):
                kept.append(dict(record))
        except (KeyError, TypeError, ValueError):
            continue  # not a record
    return kept


def _key(record: Mapping[str, Any]) -> tuple[Pair, int | None, str | None, str]:
    """What a later record of the same thing replaces.

    In the platform's mode that is the pair: either direction stands for it, and other rails are measured by reruns
    alone, to find the guilty part.
    """
    pair, mode = _pair(record), str(record["mode"])
    return (pair, None, None, mode) if mode == "platform" else (pair, int(record["rail"]), record["direction"], mode)


def _pair(record: Mapping[str, Any]) -> Pair:
    return frozenset((str(record["a"]), str(record["b"])))


def _time(record: Mapping[str, Any]) -> datetime:
    at = datetime.fromisoformat(str(record["measured_at"]))
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def good_pairs(records: Records) -> set[frozenset[str]]:
    """Pairs of which every test is good. One failed or missing test makes a pair unproven."""
    by_pair: dict[frozenset[str], list[str]] = defaultdict(list)
    for test, record in records.items():
        by_pair[frozenset(test[:2])].append(record["status"])
    return {pair for pair, statuses in by_pair.items() if all(status in GOOD for status in statuses)}


def failed_pairs(records: Records) -> set[frozenset[str]]:
    """Pairs with a test that failed, as against those that merely were not measured."""
    return {frozenset(test[:2]) for test, record in records.items() if record["status"] == FAIL}
