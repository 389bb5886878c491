"""What racks are made from: whole or absent, whatever ends a build, and a clear word when the disk is full."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rack.cache import cache_folder, content, entry
from tests.rack.errors import RackError
from tests.rack.template import frozen

pytestmark = pytest.mark.rack

#: Freezes a host from the real image, under a key of its own.
FREEZE = """
import sys
from tests.rack import template
template._WARM_UP = sys.argv[1]
template.frozen("bare")
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_an_entry_is_made_once(own_cache: Path) -> None:
    made: list[Path] = []
    folders = {entry("thing", [b"1"], made.append, need_gib=0) for _ in range(2)}
    other = entry("thing", [b"2"], made.append, need_gib=0)
    assert len(folders) == 1
    assert other not in folders
    assert len(made) == 2


def test_a_full_disk_is_named_and_nothing_is_left(own_cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(RackError, match=r"no space on the disk of .*thing could not be written.*XDG_CACHE_HOME"):
        entry("thing", [b"1"], build, need_gib=0)
    assert _files(own_cache) == []


def test_a_program_that_finds_the_disk_full_is_understood(own_cache: Path) -> None:
    def build(folder: Path) -> None:
        raise RackError("mke2fs ended with 1:\nwrite: No space left on device")

    with pytest.raises(RackError, match="no space on the disk of"):
        entry("thing", [b"1"], build, need_gib=0)


def test_too_little_space_is_said_before_the_work(own_cache: Path) -> None:
    with pytest.raises(RackError, match=r"1000000\.0 GiB are needed for thing, [\d.]+ GiB are free"):
        entry("thing", [b"1"], lambda folder: pytest.fail("it was built"), need_gib=1_000_000)
    assert _files(own_cache) == []


def test_entries_that_no_one_used_for_long_make_room(own_cache: Path) -> None:
    old = entry("thing", [b"old"], lambda folder: None, need_gib=0)
    recent = entry("thing", [b"recent"], lambda folder: None, need_gib=0)
    os.utime(old, (0, 0))
    entry("thing", [b"new"], lambda folder: None, need_gib=0)
    assert not old.exists()
    assert recent.exists()


def test_content_sees_a_changed_file_name_and_mode(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = content(tmp_path)
    (tmp_path / "a").chmod(0o755)
    second = content(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert first != second != content(tmp_path)


def _machines_of(part: str) -> list[str]:
    """Command lines of running processes that name a path."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if part in line:
            lines.append(line)
    return lines


def _until(what: str, condition: object) -> None:
    deadline = time.monotonic() + 60
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.05)


def test_another_process_finds_what_this_one_has_made(session_rack: object) -> None:
    """Nothing of the process that asks may be part of a key."""
    made = frozen("bare")
    ask = "from tests.rack import template; print(template.frozen('bare'))"
    done = subprocess.run([sys.executable, "-c", ask], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{made}\n", "")


def test_a_killed_freeze_leaves_no_machine_and_no_entry(session_rack: object) -> None:
    root = cache_folder()
    before = set(root.glob("template-*/"))
    command = [sys.executable, "-c", FREEZE, f"echo {os.getpid()} {time.time()}; sleep 600"]
    builder = subprocess.Popen(command)
    try:
        _until("the machine runs", lambda: _machines_of(f".part-{builder.pid}/memory"))
    finally:
        builder.send_signal(signal.SIGKILL)
        builder.wait()
    _until("the machine is gone", lambda: not _machines_of(f".part-{builder.pid}/"))
    left = set(root.glob("template-*/")) - before
    assert [folder.name.endswith(f".part-{builder.pid}") for folder in left] == [True]
    # The next build of the same thing clears what was left; here the test does, for there will be none.
    for folder in left:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        (root / f"{folder.name.split('.')[0]}.lock").unlink()
