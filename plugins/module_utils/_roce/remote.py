# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The agent as a module handles it on its host: start it once, collect once, leave nothing.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import time
import zlib
from collections.abc import Mapping
from typing import Any

_AGENT = "lium-roce-agent"
_PLAN = "plan.json"
_RECORDS = "records.jsonl"
#: An agent that is told to stop writes its records and ends its test within this time.
_STOP_S = 20.0
_START_S = 20.0
_POLL_S = 0.2
#: The agent's exit code where another one holds the lock.
_LOCKED = 3


class AgentError(Exception):
    """The agent could not be started or read; ``code`` is one word for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RemoteAgent:
    """The folder, the lock and the process of the agent on this host."""

    def __init__(self, folder: str, lock: str) -> None:
        self._folder = folder
        self._lock = lock
        self._records = os.path.join(folder, _RECORDS)

    def start(self, plan: Mapping[str, Any], program: bytes, interpreter: str) -> bool:
        """Starts the agent on a plan; false when it works on this very plan already.

        An agent of an earlier run, whose playbook has gone, is stopped first. Raises :class:`AgentError` when the
        lock is held by somebody else, or when the agent ends at once.
        """
        text = json.dumps(plan, separators=(",", ":"))
        pid = self._running()
        if pid is not None:
            if self._read_plan() == text:
                return False
            self._stop(pid)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(self._lock), exist_ok=True)
        agent = os.path.join(self._folder, _AGENT)
        self._write(agent, program, 0o755)
        self._write(os.path.join(self._folder, _PLAN), text.encode(), 0o600)
        if os.path.exists(self._records):
            os.remove(self._records)
        pid = self._spawn([interpreter, "-I", agent, os.path.join(self._folder, _PLAN), self._folder, self._lock])
        deadline = time.monotonic() + _START_S
        code = None
        while not self._lines() and code is None and time.monotonic() < deadline:
            time.sleep(0.01)
            ended, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if ended else None
        if code == _LOCKED:
            raise AgentError("locked", f"{self._lock} is taken: another verification runs on this host")
        if not self._lines():
            raise AgentError("not_started", f"the agent did not start: {self._log()}")
        return True

    def collect(self, run: str, wait_s: float) -> dict[str, Any]:
        """Waits for the agent's end and answers its records, packed: JSON lines, compressed, base64."""
        deadline = time.monotonic() + wait_s
        pid = self._running()
        while pid is not None and os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            if self._last_words().startswith(b'{"end"'):
                break
            time.sleep(_POLL_S)
        alive = self._running() is not None
        lines = self._lines()
        if not lines or f'"begin":{json.dumps(run)}' not in lines[0]:
            raise AgentError("no_records", f"no records of run {run} in {self._records}: {self._log()}")
        end = json.loads(lines[-1]) if lines[-1].startswith('{"end"') else {}
        rows = [line for line in lines if line.startswith('{"schema"') and line.endswith("}")]
        return {
            "ended": end.get("end", "running" if alive else "killed"),
            "why": end.get("why", ""),
            "seconds": end.get("seconds"),
            "count": len(rows),
            "packed": base64.b64encode(zlib.compress("\n".join(rows).encode())).decode(),
        }

    def _spawn(self, argv: list[str]) -> int:
        """Starts a process in a session of its own, which outlives this one."""
        log = os.path.join(self._folder, "agent.log")
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        return os.posix_spawn(argv[0], argv, os.environ, file_actions=files, setsid=True)

    def remove(self, *, really: bool) -> bool:
        """Stops an agent and removes its folder; whether there was one."""
        there = os.path.isdir(self._folder)
        if there and really:
            pid = self._running()
            if pid is not None:
                self._stop(pid)
            shutil.rmtree(self._folder)
        return there

    def _running(self) -> int | None:
        """The process of the agent of this folder, known by the lock it holds and by its command line."""
        lines = self._lines()
        try:
            pid = int(json.loads(lines[0])["pid"]) if lines else 0
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                command = stream.read().split(b"\0")
        except (OSError, ValueError, KeyError):
            return None
        return pid if os.path.join(self._folder, _AGENT).encode() in command and self._locked() else None

    def _locked(self) -> bool:
        try:
            with open(self._lock, "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _stop(self, pid: int) -> None:
        fd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(fd, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_S
            while self._locked() and time.monotonic() < deadline:
                time.sleep(0.05)
            if self._locked():
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(fd)

    def _lines(self) -> list[str]:
        try:
            with open(self._records, encoding="utf-8", errors="replace") as stream:
                return stream.read().splitlines()
        except OSError:
            return []

    def _last_words(self) -> bytes:
        """The last line, without reading the file again and again while the agent works."""
        try:
            with open(self._records, "rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - 1024))
                return (stream.read().splitlines() or [b""])[-1]
        except OSError:
            return b""

    def _read_plan(self) -> str:
        try:
            with open(os.path.join(self._folder, _PLAN), encoding="utf-8") as stream:
                return stream.read()
        except OSError:
            return ""

    def _log(self) -> str:
        try:
            with open(os.path.join(self._folder, "agent.log"), encoding="utf-8", errors="replace") as stream:
                return stream.read().strip()[-500:] or "it said nothing"
        except OSError:
            return "it said nothing"

    @staticmethod
    def _write(path: str, content: bytes, mode: int) -> None:
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
            stream.write(content)
        os.replace(f"{path}.new", path)
