"""The intent journal in memory, with the semantics of `pulumi_lium.recovery.intents.FileIntents`.

A record changes whole or not at all (there it is renamed into place); its lock goes with its process; a write can fail
before the change, or after it (the folder's sync). `test_wire.py` holds this journal against the one on a real disk.
"""

from __future__ import annotations

from collections.abc import Callable

from pulumi_lium.lifecycle.intents import Intent, IntentLog
from pulumi_lium.recovery.intents import IntentLogError, OpenIntent

from .points import Points

Failing = Callable[[str], "str | None"]
"""How the next write (`open`, `note` or `close`) goes wrong: None, `before` or `after` the change."""
FULL = "The intent journal cannot be written: no space left."


class DiskIntents:
    """`IntentLog` of one process on a disk."""

    def __init__(self, disk: Disk, process: int, points: Points, failing: Failing) -> None:
        self._disk, self._process, self._points, self._failing = disk, process, points, failing
        self._unwritten: dict[str, str] = {}

    def _write(self, label: str, change: Callable[[], object]) -> None:
        self._points.enter(label)
        failure = self._failing(label)
        if failure != "before":
            change()
        if failure is not None:
            raise IntentLogError(FULL, code="intent_log")
        self._points.leave()

    def open(self, intent: Intent) -> None:
        key = intent.idempotency_key
        if self._disk.locks.get(key, self._process) != self._process:
            raise IntentLogError("Another process is at work on the order.", code="intent_held")
        self._disk.locks[key] = self._process
        try:
            self._write("open", lambda: self._disk.records.__setitem__(key, intent))
        except IntentLogError:
            self._disk.locks.pop(key, None)
            raise

    def note(self, intent: Intent) -> None:
        if intent.cluster_id:
            self._unwritten[intent.cluster_id] = intent.idempotency_key
        self._write("note", lambda: self._disk.records.__setitem__(intent.idempotency_key, intent))
        self._unwritten.pop(intent.cluster_id or "", None)

    def close(self, idempotency_key: str) -> None:
        if idempotency_key in self._disk.records:
            self._write("close", lambda: self._disk.records.pop(idempotency_key))
        self._disk.locks.pop(idempotency_key, None)

    def close_cluster(self, cluster_id: str) -> None:
        if key := self._unwritten.get(cluster_id):
            self.close(key)
            del self._unwritten[cluster_id]
        for key, intent in list(self._disk.records.items()):
            if intent.cluster_id == cluster_id:
                self.close(key)

    def claim_abandoned(self, owner: str | None = None, *, aside: object = None) -> list[Intent]:
        claimed = []
        for key, intent in self._disk.records.items():
            if owner in (None, intent.owner) and key not in self._disk.locks:
                self._disk.locks[key] = self._process
                claimed.append(intent)
        return sorted(claimed, key=lambda intent: intent.opened_at)

    def release(self, idempotency_key: str) -> None:
        self._disk.locks.pop(idempotency_key, None)

    def held_elsewhere(self, owner: str) -> list[Intent]:
        return [
            intent
            for key, intent in self._disk.records.items()
            if intent.owner == owner and self._disk.locks.get(key, self._process) != self._process
        ]

    def abandoned(self) -> list[Intent]:
        return [entry.intent for entry in self.look() if not entry.held]

    def look(self, *, aside: object = None) -> list[OpenIntent]:
        """Every open intent, oldest first."""
        found = [OpenIntent(intent, key in self._disk.locks) for key, intent in self._disk.records.items()]
        return sorted(found, key=lambda entry: entry.intent.opened_at)


class Disk:
    """What outlives a process: the records, and which living process holds each."""

    def __init__(self) -> None:
        self.records: dict[str, Intent] = {}
        self.locks: dict[str, int] = {}

    def journal(self, process: int, points: Points, failing: Failing) -> IntentLog:
        """The journal of a new process."""
        return DiskIntents(self, process, points, failing)

    def end(self, process: int) -> None:
        """The process is gone, and its locks with it."""
        for key in [key for key, holder in self.locks.items() if holder == process]:
            del self.locks[key]
