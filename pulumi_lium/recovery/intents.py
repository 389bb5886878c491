"""The journal of open intents on disk: one small file an intent.

A record is written to a temporary file, synced, renamed into place, and the folder is synced: a reader sees the whole
of the old record or the whole of the new one. Beside each record stands a lock file that the process which opened the
intent keeps locked (`flock`) for as long as it lives, so that the kernel says whether that process is gone, also after
`kill -9`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.intents import Intent

STATE_DIR_VARIABLE = "PULUMI_LIUM_STATE_DIR"
"""Environment variable that moves the journal, for runners whose home folder does not outlive a job."""

_KEY = re.compile(r"[A-Za-z0-9._-]{8,100}")
_NO_WRITING = (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT)


class IntentLogError(LiumError):
    """The journal could not be written or read. Names the file."""


@dataclass(frozen=True)
class OpenIntent:
    """An intent as a look at the journal finds it."""

    intent: Intent
    held: bool
    """A living process holds it: it is at work, and nobody else may settle it."""


@dataclass(frozen=True)
class UnreadableRecord:
    """A record that tells no order: its cluster may bill. `since` is when it was written, where that can be seen."""

    path: Path
    problem: str
    since: datetime | None


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's intents and copies of states are kept (`PULUMI_LIUM_STATE_DIR`, else the platform's folder)."""
    named = environ.get(STATE_DIR_VARIABLE)
    if named:
        return Path(named)
    import platformdirs

    return platformdirs.user_state_path("pulumi-lium")


def journal_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's intents are kept."""
    return state_folder(environ) / "intents"


class FileIntents:
    """`IntentLog` in a folder. Safe under threads, concurrent processes, torn writes and a killed process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.RLock()
        self._locks: dict[str, int] = {}
        """File descriptor of each lock that this process holds, by idempotency key."""
        self._unwritten: dict[str, str] = {}
        """Clusters whose note could not be written, and their keys: this process still closes their intents."""

    def open(self, intent: Intent) -> None:
        key = intent.idempotency_key
        with self._guard, self._failing("be written, so nothing was ordered", self._record(key)):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._lock(key):
                raise IntentLogError(
                    f"Another process is at work on the order with key {key}; nothing was ordered.", code="intent_held"
                )
            try:
                self._write(intent)
            except OSError:
                self._unlock(key, forget=True)
                raise

    def note(self, intent: Intent) -> None:
        with self._guard, self._failing("be renewed", self._record(intent.idempotency_key)):
            if intent.cluster_id:
                self._unwritten[intent.cluster_id] = intent.idempotency_key
            self._write(intent)
            self._unwritten.pop(intent.cluster_id or "", None)

    def close(self, idempotency_key: str) -> None:
        with self._guard, self._failing("be removed", self._record(idempotency_key)):
            with suppress(FileNotFoundError):
                self._record(idempotency_key).unlink()
                self._sync_folder()
            self._unlock(idempotency_key, forget=True)

    def close_cluster(self, cluster_id: str) -> None:
        with self._guard:
            if key := self._unwritten.get(cluster_id):
                self.close(key)
                del self._unwritten[cluster_id]
            unreadable = list[UnreadableRecord]()
            for _, intent in self._intents(unreadable):
                if intent.cluster_id == cluster_id:
                    self.close(intent.idempotency_key)
            for record in unreadable:
                raise IntentLogError(record.problem, code="intent_unreadable")

    def claim_abandoned(self, owner: str | None = None, *, aside: list[UnreadableRecord] | None = None) -> list[Intent]:
        """As the protocol has it. Records that cannot be read are put into `aside` and keep no other from its owner."""
        claimed = []
        with self._alone():
            for path, seen in list(self._intents(aside)):
                if owner is not None and seen.owner != owner:
                    continue
                if seen.idempotency_key in self._locks or not self._lock(seen.idempotency_key):
                    continue
                # Read again under the lock: its last holder may have noted more, or closed it, since the first look.
                intent = self._read(path)
                if intent is None:
                    self._unlock(seen.idempotency_key, forget=True)
                else:
                    claimed.append(intent)
        return sorted(claimed, key=lambda intent: intent.opened_at)

    def release(self, idempotency_key: str) -> None:
        with self._guard:
            self._unlock(idempotency_key, forget=False)

    def held_elsewhere(self, owner: str) -> list[Intent]:
        return [
            entry.intent
            for entry in self.look()
            if entry.held and entry.intent.owner == owner and entry.intent.idempotency_key not in self._locks
        ]

    def abandoned(self) -> list[Intent]:
        """As the protocol has it. Records that cannot be read are left out: they keep every order back as it is."""
        return [entry.intent for entry in self.look(aside=[]) if not entry.held]

    def look(self, *, aside: list[UnreadableRecord] | None = None) -> list[OpenIntent]:
        """Every open intent, oldest first, claiming none. What cannot be read raises, or is put into `aside`."""
        found = []
        with self._alone():
            for _, intent in self._intents(aside):
                held = intent.idempotency_key in self._locks
                if not held:
                    held = not self._lock(intent.idempotency_key)
                    self._unlock(intent.idempotency_key, forget=False)
                found.append(OpenIntent(intent, held))
        return sorted(found, key=lambda entry: entry.intent.opened_at)

    def peek(self) -> list[Intent]:
        """Every open intent that can be read, with no lock taken: for a signal handler, which must not wait."""
        return [intent for _, intent in self._intents([])]

    # -- files ---------------------------------------------------------------------------------------------------------

    def _record(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise IntentLogError(f"{key!r} cannot name an intent: 8 to 100 letters, digits, '.', '_' or '-'.")
        return self._folder / f"{key}.json"

    def _records(self) -> Iterator[Path]:
        with self._failing("be listed", self._folder):
            try:
                names = sorted(os.listdir(self._folder))
            except FileNotFoundError:
                names = []
        return (self._folder / name for name in names if name.endswith(".json") and not name.startswith("."))

    def _intents(self, aside: list[UnreadableRecord] | None) -> Iterator[tuple[Path, Intent]]:
        for path in self._records():
            try:
                intent = self._read(path)
            except IntentLogError as error:
                if aside is None:
                    raise
                aside.append(UnreadableRecord(path, error.message, _written_at(path)))
                continue
            if intent is not None:
                yield path, intent

    def _read(self, path: Path) -> Intent | None:
        """The record in a file; None when it was closed meanwhile."""
        with self._failing("be read", path):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            intent: Intent = _codec().validate_json(text)
        except ValueError as error:
            raise IntentLogError(
                f"The intent in {path} cannot be read, and the cluster that it stands for may be billing. Compare"
                " `pulumi-lium sweep` with what you run, delete what is not yours to keep, then remove that file.",
                code="intent_unreadable",
            ) from error
        if f"{intent.idempotency_key}.json" != path.name:
            raise IntentLogError(
                f"The intent in {path} names another key than its file does.", code="intent_unreadable"
            )
        return intent

    def _write(self, intent: Intent) -> None:
        record = self._record(intent.idempotency_key)
        draft = record.with_name(f".{record.name}.{os.getpid()}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(_codec().dump_json(intent))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, record)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps others from claiming or looking meanwhile, so that a look never seems to be a living holder."""
        with self._guard, self._failing("be read", self._folder):
            if not self._folder.is_dir():
                yield
                return
            descriptor, _ = _open_to_lock(self._folder / ".journal.lock", self._folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    # -- locks ---------------------------------------------------------------------------------------------------------

    def _lock_file(self, key: str) -> Path:
        return self._record(key).with_suffix(".lock")

    def _lock(self, key: str) -> bool:
        """Takes the lock of an intent; False while another process has it."""
        if key in self._locks:
            return True
        while True:
            descriptor, path = _open_to_lock(self._lock_file(key), self._record(key))
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            # The last holder may have removed the file between the two calls: a lock on a removed file guards nothing.
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    self._locks[key] = descriptor
                    return True
            os.close(descriptor)

    def _unlock(self, key: str, *, forget: bool) -> None:
        descriptor = self._locks.pop(key, None)
        if descriptor is None:
            return
        if forget:
            with suppress(FileNotFoundError):
                self._lock_file(key).unlink()
        os.close(descriptor)

    @contextmanager
    def _failing(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IntentLogError(
                f"The intent journal at {path} cannot {what}: {error.strerror or error}. Free space there or make it"
                f" writable, or name another folder in {STATE_DIR_VARIABLE}.",
                code="intent_log",
            ) from error


def _open_to_lock(file: Path, instead: Path) -> tuple[int, Path]:
    """A descriptor for `flock`, and what it is of. The file is made where it is missing.

    Where nothing can be written, what is there is enough: a lock whose file is missing is held by nobody, and those who
    look then agree on `instead`.
    """
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT, 0o600), file
    except OSError as error:
        if error.errno not in _NO_WRITING:
            raise
        for path in (file, instead):
            with suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY), path
        raise


def _written_at(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
    except OSError:
        return None


@cache
def _codec() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Intent)
