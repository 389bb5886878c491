"""The market on disk: one SQLite file, one transaction for each change (design 4.3, `--state FILE`)."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

FORMAT = 1


class StoreError(ValueError):
    """The state file cannot be used; the text names it and says what to do."""


class Store:
    """A file that holds one market, or none yet.

    A change is written in one transaction with full synchronisation, so that a process killed at any moment leaves either
    all of it or nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises StoreError where that fails, or where another process has it open."""
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except sqlite3.Error as error:
            raise StoreError(
                f"state file {path}: {error}; use a file that no other emulator has open and that this program wrote, "
                f"or a new one"
            ) from error

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT):
            raise StoreError(
                f"state file {self.path}: has format {version}, this version reads {FORMAT}; start with a new file"
            )
        with self._transaction():
            self._db.execute("CREATE TABLE IF NOT EXISTS meta (id INTEGER PRIMARY KEY CHECK (id = 1), value TEXT NOT NULL)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS record (kind TEXT, id TEXT, value TEXT NOT NULL, PRIMARY KEY (kind, id))"
                " WITHOUT ROWID"
            )
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def load(self) -> dict[str, Any] | None:
        """The stored market, as `Market.restore` takes it; None where the file holds none yet."""
        meta = self._db.execute("SELECT value FROM meta").fetchone()
        if meta is None:
            return None
        tables: dict[str, dict[str, Any]] = {}
        for kind, identity, value in self._db.execute("SELECT kind, id, value FROM record"):
            tables.setdefault(kind, {})[identity] = json.loads(value)
        return {"meta": json.loads(meta[0]), "tables": tables}
