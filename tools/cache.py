"""Folders that are made once and kept outside the tree, named by a hash of what they are made from.

Two processes that want the same folder at once make it once: the second waits for the first's lock. A maker that is
killed leaves only a scratch folder, which the next one clears; the real name appears by a rename, so that it is whole
or absent.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tools.console import say


def cache_root(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The user's cache folder for this project: XDG_CACHE_HOME, else the platform's own place."""
    base = environ.get("XDG_CACHE_HOME", "")
    if base and Path(base).is_absolute():  # the XDG specification tells us to ignore a relative one
        return Path(base) / "pulumi-lium"
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (home / "Library" / "Caches" if platform == "darwin" else home / ".cache") / "pulumi-lium"


def digest(parts: Iterable[bytes]) -> str:
    """Sixteen hex digits over `parts`; the length of each goes in too, so that no two lists of parts look the same."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def made_once(root: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `root/name`, made by `make(scratch folder)` unless it is there already."""
    target = root / name
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f"{name}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another process is making {target}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        _remove_parts(root, name)
        scratch = root / f"{name}.part-{os.getpid()}"
        scratch.mkdir()
        try:
            make(scratch)
            scratch.rename(target)
        finally:
            # Of a killed build too once more: a program that it had started may have written on for a moment.
            _remove_parts(root, name)
    return target


def _remove_parts(root: Path, name: str) -> None:
    """Ours, and what killed builds have left. The lock must be held."""
    for part in root.glob(f"{name}.part-*"):
        shutil.rmtree(part, ignore_errors=True)
