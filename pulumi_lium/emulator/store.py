"""The market on disk: one SQLite file, one transaction for each change (design 4.3, `--state FILE`)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORMAT = 1
APPLICATION = 0x4C49554D
"""Marks the file as this program's, so that no other database is taken for a market."""
_UNWRITTEN = "what this request did is not on disk, and is written with the next one that finds room: free some"


class StoreError(Exception):
    """The state file cannot be used; the text names it and says what to do."""


class Store:
    """A file that holds one market, or none yet.

    A change is written in one transaction with full synchronisation, so that a process killed at any moment leaves
    either all of it or nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises StoreError where that fails, or where another process has it open."""
        self.path = path
        with self._failing(
            "use a file that no other emulator has open and that this program wrote, or a new one, on a disk with space"
        ):
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            try:
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._check()
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _check(self) -> None:
        empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and self._value("application_id") != APPLICATION:
            raise StoreError(f"state file {self.path}: is a database of another program; use a new file")
        version = self._value("user_version")
        if version not in (0, FORMAT):
            raise StoreError(
                f"state file {self.path}: has format {version}, this version reads {FORMAT}; start with a new file"
            )

    def _prepare(self) -> None:
        with self._transaction():
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS meta (id INTEGER PRIMARY KEY CHECK (id = 1), value TEXT NOT NULL)"
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS record (kind TEXT, id TEXT, value TEXT NOT NULL, PRIMARY KEY (kind, id))"
                " WITHOUT ROWID"
            )
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _value(self, pragma: str) -> int:
        value: int = self._db.execute(f"PRAGMA {pragma}").fetchone()[0]
        return value

    def load(self) -> dict[str, Any] | None:
        """The stored market, as `Market.restore` takes it; None where the file holds none yet."""
        with self._failing("it is damaged: start with a new file"):
            meta = self._db.execute("SELECT value FROM meta").fetchone()
            if meta is None:
                return None
            tables: dict[str, dict[str, Any]] = {}
            for kind, identity, value in self._db.execute("SELECT kind, id, value FROM record"):
                tables.setdefault(kind, {})[identity] = json.loads(value)
            return {"meta": json.loads(meta[0]), "tables": tables}

    def replace(self, market: dict[str, Any]) -> None:
        """Forget the stored market and keep this one (`Market.snapshot`). Raises StoreError where it cannot be kept."""
        with self._failing(_UNWRITTEN), self._transaction():
            self._db.execute("DELETE FROM record")
            self._write(market["meta"], market["tables"])

    def commit(self, changes: dict[str, Any]) -> None:
        """Add what has changed (`Market.take_changes`). It is on disk when this returns; else StoreError is raised."""
        with self._failing(_UNWRITTEN), self._transaction():
            self._db.executemany(
                "DELETE FROM record WHERE kind = ? AND id = ?",
                ((kind, identity) for kind, identities in changes["drop"].items() for identity in identities),
            )
            self._write(changes["meta"], changes["put"])

    def close(self) -> None:
        self._db.close()

    def _write(self, meta: dict[str, Any], tables: dict[str, dict[str, Any]]) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (1, ?)", (json.dumps(meta),))
        self._db.executemany(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?)",
            (
                (kind, identity, json.dumps(record))
                for kind, records in tables.items()
                for identity, record in records.items()
            ),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended it already
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _failing(self, advice: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, json.JSONDecodeError) as error:
            raise StoreError(f"state file {self.path}: {error}; {advice}") from error
