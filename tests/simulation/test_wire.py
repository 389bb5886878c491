"""The fast parts of the simulator against what they stand for: the whole client, and the journal on a real disk."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.lifecycle.intents import Intent, IntentLog
from pulumi_lium.recovery.intents import FileIntents, IntentLogError

from .disk import FULL, Disk, Failing
from .points import Points
from .schedule import schedule_of
from .simulator import run
from .wire import whole_api


class FileDisk(Disk):
    """A folder of a real file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._living: dict[int, MortalFileIntents] = {}

    @property
    def records(self) -> dict[str, Intent]:  # type: ignore[override]
        return {entry.intent.idempotency_key: entry.intent for entry in FileIntents(self._folder).look()}

    def journal(self, process: int, points: Points, failing: Failing) -> IntentLog:
        self._living[process] = MortalFileIntents(self._folder, points, failing)
        return self._living[process]

    def end(self, process: int) -> None:
        self._living.pop(process).die()


class MortalFileIntents(FileIntents):
    """The product's journal in a process that can die around each write, on a disk that can fail."""

    def __init__(self, folder: Path, points: Points, failing: Failing) -> None:
        super().__init__(folder)
        self._points, self._failure = points, failing

    def open(self, intent: Intent) -> None:
        self._around("open", lambda: super(MortalFileIntents, self).open(intent), intent.idempotency_key)

    def note(self, intent: Intent) -> None:
        self._around("note", lambda: super(MortalFileIntents, self).note(intent))

    def close(self, idempotency_key: str) -> None:
        if self._record(idempotency_key).exists():
            self._around("close", lambda: super(MortalFileIntents, self).close(idempotency_key))
        else:
            super().close(idempotency_key)

    def _around(self, label: str, write: Any, unlock: str | None = None) -> None:
        self._points.enter(label)
        failure = self._failure(label)
        if failure != "before":
            write()
        if failure is not None:
            if unlock:
                self._unlock(unlock, forget=True)
            raise IntentLogError(FULL, code="intent_log")
        self._points.leave()

    def die(self) -> None:
        """As the kernel does it: locks are let go, files stay."""
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_the_fast_parts_tell_the_same_story_as_the_whole(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        schedule, fast, whole = schedule_of(seed), list[str](), list[str]()
        folders = (tmp_path / f"{seed}-{number}" for number in itertools.count())
        expected = run(schedule, say=fast.append)
        verdict = run(schedule, say=whole.append, wire=whole_api, disk=lambda folders=folders: FileDisk(next(folders)))
        assert whole == fast, f"seed {seed}"
        assert verdict == expected, f"seed {seed}"
