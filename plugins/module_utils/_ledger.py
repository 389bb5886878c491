# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger of a role on a host: how to undo each of its changes, written down before the change is made.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import json
import os
from typing import Any

FOLDER = "/var/lib/lium-cluster"
VERSION = 1

Entry = dict[str, Any]


class LedgerError(Exception):
    """The ledger cannot be read; nothing was changed."""


class Ledger:
    """Entries in the order of the changes, each with ``kind`` and ``name``. ``dry`` keeps the file as it is."""

    def __init__(self, role: str, root: str, dry: bool) -> None:
        self._path = os.path.join(root, FOLDER.lstrip("/"), f"{role}.json")
        self._dry = dry
        self._entries: list[Entry] = self._load()

    def _load(self) -> list[Entry]:
        try:
            with open(self._path, encoding="utf-8") as stream:
                ledger = json.load(stream)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as exc:
            raise LedgerError(
                f"{self._path}: not readable ({exc}); it holds how to undo the role, restore it from a backup"
            ) from exc
        if not isinstance(ledger, dict) or ledger.get("version") != VERSION:
            raise LedgerError(f"{self._path}: written by another version of the collection")
        return list(ledger["entries"])

    @property
    def entries(self) -> list[Entry]:
        return list(self._entries)

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self._entries if entry["kind"] == kind]

    def known(self, kind: str, name: str) -> Entry | None:
        return next((entry for entry in self.of_kind(kind) if entry["name"] == name), None)

    def note(self, kind: str, name: str, **undo: Any) -> None:
        """Notes a change. At a second one to the same thing the first ``original…`` stays: it leads back to the host
        as it was; the rest says what the role has set last."""
        entry = self.known(kind, name)
        if entry is None:
            self._entries.append({"kind": kind, "name": name, **undo})
        else:
            entry.update({key: value for key, value in undo.items() if not key.startswith("original")})
        self._save()

    def forget(self, kind: str, name: str) -> None:
        """Takes an entry out, whose change is undone or was never made."""
        if not self._dry:
            self._entries = [entry for entry in self._entries if (entry["kind"], entry["name"]) != (kind, name)]
            self._save()

    def _save(self) -> None:
        if self._dry:
            return
        if self._entries:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            write_text(self._path, json.dumps({"version": VERSION, "entries": self._entries}, indent=1), 0o600)
        elif os.path.exists(self._path):
            os.unlink(self._path)
            folder = os.path.dirname(self._path)
            if not os.listdir(folder):
                os.rmdir(folder)


def read_text(path: str) -> str | None:
    """A file's text, whatever bytes are in it; None without the file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write_text(path: str, text: str, mode: int) -> None:
    """Replaces a file in one step; nobody sees half of it, and its mode is never wider than asked for."""
    temporary = f"{path}.lium-new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    os.replace(temporary, path)
