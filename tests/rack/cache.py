"""What racks are made from, kept between runs: folders named by the digest of what made them (see `tools.cache`)."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.rack.errors import RackError
from tools.cache import cache_root, digest, made_once
from tools.console import say

#: An entry that no rack has used for so long makes room when the next one is built.
STALE_AFTER_SECONDS = 14 * 24 * 3600


def cache_folder() -> Path:
    """Where entries are."""
    return cache_root() / "rack"


def content(path: Path) -> list[bytes]:
    """A file, or all files of a folder with their paths and modes, as parts for `entry`."""
    if path.is_file():
        return [path.read_bytes()]
    files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return [
        part
        for file in files
        for part in (str(file.relative_to(path)).encode(), oct(file.stat().st_mode).encode(), file.read_bytes())
    ]


def entry(kind: str, made_from: list[bytes], build: Callable[[Path], None], *, need_gib: float) -> Path:
    """The folder `KIND-DIGEST`, built by `build(folder)` if it is not there yet.

    Raises `RackError` when the disk has not `need_gib` free or fills up, or what `build` raises; nothing is left then.
    """
    root = cache_folder()

    def make(folder: Path) -> None:
        _drop_stale(root, kind)
        free = shutil.disk_usage(root).free / 2**30
        if free < need_gib:
            raise RackError(_disk_full(root, f"{need_gib:.1f} GiB are needed for {kind}, {free:.1f} GiB are free"))
        started = time.monotonic()
        try:
            build(folder)
        except (OSError, RackError) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(error):
                raise RackError(_disk_full(root, f"{kind} could not be written")) from error
            raise
        say(f"rack: {kind} made in {time.monotonic() - started:.0f} s")

    made = made_once(root, f"{kind}-{digest(made_from)}", make)
    os.utime(made)
    return made


def _drop_stale(root: Path, kind: str) -> None:
    for folder in root.glob(f"{kind}-*"):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > STALE_AFTER_SECONDS:
            say(f"rack: removing {folder.name}, unused for {STALE_AFTER_SECONDS // 86400} days")
            shutil.rmtree(folder, ignore_errors=True)


def _disk_full(root: Path, what: str) -> str:
    return f"no space on the disk of {root}: {what}. Free some, or set XDG_CACHE_HOME to a folder on another disk"
