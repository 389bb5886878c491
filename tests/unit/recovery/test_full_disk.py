"""The journal's disk fills up at each step of an order: nothing is ordered off the record, nothing ordered is lost.

And what is on record is removed, whatever can be written by then: a cluster that cannot be deleted bills.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.lifecycle.order import order
from pulumi_lium.lifecycle.remove import remove
from pulumi_lium.recovery.intents import STATE_DIR_VARIABLE, FileIntents, IntentLogError
from pulumi_lium.recovery.survey import survey
from pulumi_lium.recovery.sweep import clean, still_open
from tests.support.dying import RENT as ORDER
from tests.support.dying import Process, at
from tests.support.world import World


class Disk:
    """A disk that takes so many changes and then, until it is cleared, no more."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = room
        self._patch = monkeypatch
        for name in ("fsync", "replace", "mkdir"):
            self._guard(name, getattr(os, name))
        real = os.open

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            if flags & os.O_CREAT and not os.path.exists(path):
                self._take()
            return real(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", opened)

    def _guard(self, name: str, real: Callable[..., Any]) -> None:
        def guarded(*arguments: Any, **more: Any) -> Any:
            self._take()
            return real(*arguments, **more)

        self._patch.setattr(os, name, guarded)

    def _take(self) -> None:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= 1


def ordered_with(
    room: int, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str | IntentLogError, int]:
    """The cluster that `create` handed to the engine, or how it failed; and the room that was left."""
    inputs = world.check()
    with monkeypatch.context() as patch:
        disk = Disk(room, patch)
        try:
            return order(world.context(intents=FileIntents(folder)), inputs).cluster_id, disk.room
        except IntentLogError as error:
            return error, disk.room


def test_whenever_the_disk_fills_up_what_bills_is_in_the_engines_hands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, returned = 0, 0
    for room in range(100):
        world, folder = World(), tmp_path / str(room)
        outcome, left = ordered_with(room, world, folder, monkeypatch)
        log = FileIntents(folder)
        if isinstance(outcome, IntentLogError):
            refused += 1
            assert "No space left on device" in str(outcome)
            assert STATE_DIR_VARIABLE in str(outcome), "what to do"
            assert world.calls("POST", ORDER) == 0
            # With room again the same inputs order, whatever the failed attempt has left in the folder.
            outcome = order(world.context(intents=log), world.check()).cluster_id
        else:
            returned += 1
        assert world.calls("POST", ORDER) == 1
        assert {pod["cluster_id"] for pod in world.listed()} == {outcome}
        remove(world.context(intents=log), outcome, {})
        world.pass_time(60)
        assert world.listed() == []
        if left:
            break
    assert left, "at last there was room for everything"
    assert refused > 2
    assert returned > 2


def _full(monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(0, monkeypatch)


def _read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a volume that was mounted again read-only: what is there can be opened to be read."""
    real = os.open

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **more)

    def refused(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", opened)
    for name in ("replace", "unlink", "mkdir"):
        monkeypatch.setattr(os, name, refused)


@pytest.mark.parametrize("trouble", [_full, _read_only])
@pytest.mark.parametrize("has_locks", [True, False])
def test_what_is_on_record_is_removed_when_the_disk_takes_no_note(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[pytest.MonkeyPatch], None],
    has_locks: bool,
) -> None:
    world, folder = World(), tmp_path / "intents"
    Process(world, folder, dies_at=at("POST", ORDER, "after")).order_and_die()
    if not has_locks:
        for path in (*folder.glob("*.lock"), *folder.glob(".*.lock")):
            path.unlink()
    sweeper = Process(world, folder, seed=9)
    with monkeypatch.context() as patch:
        trouble(patch)
        found = survey(lambda account: sweeper.ctx, sweeper.intents)
        (finding,) = found.findings
        assert finding.removable
        removals = clean(lambda account: sweeper.ctx, sweeper.intents, found)
        assert still_open(found, removals) == []
        assert sweeper.said("warning: The intent journal at")
    assert world.listed() == []
    # What could not be written says only more than is true; a sweep that can write settles it.
    clean(lambda account: sweeper.ctx, sweeper.intents, survey(lambda account: sweeper.ctx, sweeper.intents))
    assert sweeper.intents.look() == []


def test_one_record_that_cannot_be_read_keeps_no_other_from_its_removal(tmp_path: Path) -> None:
    world, folder = World(), tmp_path / "intents"
    Process(world, folder, dies_at=at("POST", ORDER, "after")).order_and_die()
    lost = folder / "0000000000.json"
    lost.write_bytes(b"")
    sweeper = Process(world, folder, seed=9)
    found = survey(lambda account: sweeper.ctx, sweeper.intents, ours=lambda owner: True)
    removals = clean(lambda account: sweeper.ctx, sweeper.intents, found)
    assert world.listed() == []
    (left,) = still_open(found, removals)
    assert (left.kind, left.name, left.price_per_hour) == ("unreadable", str(lost), None)
    assert left.problem is not None
    assert "remove that file" in left.problem
    assert lost.exists(), "it is the only trace of its order"
