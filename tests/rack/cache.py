"""What a rack is made from, kept between runs: entries named by the digest of what made them.

An entry is a folder. It is built under another name and renamed when whole, so a reader sees all of it or nothing; one
build of an entry runs at a time, and what a killed build left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from platformdirs import user_cache_path

from tests.rack.errors import RackError
from tests.rack.packages import Say

#: An entry that no rack has used for so long makes room when the next one is built.
STALE_AFTER_SECONDS = 14 * 24 * 3600


def default_cache() -> Path:
    """`LIUM_RACK_CACHE`, or a folder in the user's cache."""
    named = os.environ.get("LIUM_RACK_CACHE")
    return Path(named).absolute() if named else user_cache_path("pulumi-lium") / "rack"


def digest(*parts: object) -> str:
    """A short name for what something is made from; a `Path` counts with its content, a folder with all its files."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for file in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if file.is_file() and "__pycache__" not in file.parts:
                    name = file.relative_to(part if part.is_dir() else part.parent)
                    whole.update(f"{name}\0{file.stat().st_mode & 0o777}\0".encode())
                    whole.update(hashlib.sha256(file.read_bytes()).digest())
        else:
            whole.update(json.dumps(part, sort_keys=True).encode() + b"\0")
    return whole.hexdigest()[:16]


class Cache:
    """Entries under `root`, each of a `kind` and a `key` (see `digest`)."""

    def __init__(self, root: Path, say: Say) -> None:
        self.root = root
        self._say = say

    def path(self, kind: str, key: str) -> Path:
        """Where the entry is, or will be."""
        return self.root / f"{kind}-{key}"

    def entry(self, kind: str, key: str, build: Callable[[Path], None], *, need_gib: float) -> Path:
        """The folder of an entry, built by `build(folder)` if it is not there yet.

        Raises `RackError` when the disk has not `need_gib` free or fills up, or what `build` raises; then nothing is left
        behind.
        """
        entry = self.path(kind, key)
        self.root.mkdir(parents=True, exist_ok=True)
        with self._only_builder(entry):
            if entry.is_dir():
                os.utime(entry)
                return entry
            for left in self.root.glob(f"{entry.name}.part-*"):
                shutil.rmtree(left)
            self._drop_stale(kind)
            free = shutil.disk_usage(self.root).free / 2**30
            if free < need_gib:
                raise RackError(self._disk_full(f"{need_gib:.1f} GiB are needed for {kind}, {free:.1f} GiB are free"))
            part = self.root / f"{entry.name}.part-{os.getpid()}"
            part.mkdir()
            try:
                started = time.monotonic()
                build(part)
                part.rename(entry)
                self._say(f"{kind} made in {time.monotonic() - started:.0f} s")
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise RackError(self._disk_full(f"{kind} could not be written")) from error
                raise
            except RackError as error:
                if "No space left on device" in str(error):
                    raise RackError(self._disk_full(f"{kind} could not be written")) from error
                raise
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return entry

    @contextlib.contextmanager
    def _only_builder(self, entry: Path) -> Iterator[None]:
        with open(self.root / f"{entry.name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(f"waiting for another build of {entry.name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _drop_stale(self, kind: str) -> None:
        for entry in self.root.glob(f"{kind}-*"):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > STALE_AFTER_SECONDS:
                self._say(f"removing {entry.name}, unused for {STALE_AFTER_SECONDS // 86400} days")
                shutil.rmtree(entry, ignore_errors=True)

    def _disk_full(self, what: str) -> str:
        return f"no space on the disk of {self.root}: {what}. Free some, or set LIUM_RACK_CACHE to a folder elsewhere"
