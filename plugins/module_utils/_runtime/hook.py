# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Puts our runtime into a Docker daemon, and takes it out again, so that Docker runs at the end whatever fails.

Docker is never restarted: runtimes and the default one are taken over by a reload, which leaves containers alone
(host-contract 6.3). The old file is put back when the daemon does not take the new one.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._docker import DAEMON_JSON_PATH, occupancy
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json
from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    CommandError,
    HostProbe,
    ProbeError,
    ToolMissing,
)
from ansible_collections.lium.cluster.plugins.module_utils._runtime.daemon_json import (
    POD,
    RUNTIME,
    DaemonJsonError,
    Merged,
    flag_conflicts,
    for_reload,
    install,
    load,
    remove,
)

RELOAD_LIMIT_S = 30.0


class HookError(Exception):
    """Nothing was changed, or all of it was put back. The text says what stood in the way and what to do."""


@dataclasses.dataclass(frozen=True)
class Places:
    """Where Docker and our programs keep their files. Tests have a daemon with places of its own."""

    daemon_json: str = DAEMON_JSON_PATH
    pid_file: str = "/var/run/docker.pid"
    settings: str = "/etc/lium/rdma-runc.conf"
    undo: str = "/var/lib/lium-cluster/runtime_hook.daemon_json"

    @property
    def backup(self) -> str:
        return f"{self.daemon_json}.before-lium"


@dataclasses.dataclass
class Outcome:
    """What was changed (or would be), what was left and why, and daemon.json before and after."""

    changes: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    before: str = ""
    after: str = ""


class Hook:
    """The hook of one daemon. ``probe`` runs docker and dockerd; ``start`` brings a daemon back that has died."""

    def __init__(
        self,
        probe: HostProbe,
        places: Places,
        *,
        start: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        kill: Callable[[int, int], None] = os.kill,
        dry: bool = False,
    ) -> None:
        self._probe = probe
        self._places = places
        self._start = start
        self._sleep = sleep
        self._now = now
        self._kill = kill
        self._dry = dry
        self.outcome = Outcome()

    # The two verbs

    def install(self, scope: str) -> Outcome:
        """Adds the runtime; with scope ``pod`` it becomes the default. A second call changes nothing.

        Unless the first was cut short: what stands in the file and not in the daemon is reloaded.
        """

        def taken(info: dict[str, Any]) -> bool:
            return RUNTIME in _runtimes(info) and (_default(info) == RUNTIME) == (scope == POD)

        before = _read(self._places.daemon_json)
        try:
            merged = install(before, scope, self._undo())
        except DaemonJsonError as exc:
            raise HookError(f"{self._places.daemon_json}: {exc}") from exc
        settings = _settings_text(merged.chain)
        stale = before != merged.text
        live = self._live()
        reload = stale or not (live is None or taken(live))
        if not reload and _read(self._places.settings) == settings and self._undo() == merged.undo:
            return self.outcome
        self._refuse_when_rented()
        self._refuse_what_docker_will_not_take(merged)
        self.outcome.before, self.outcome.after = before or "", merged.text
        if stale:
            self.outcome.changes.append(f"add runtime {RUNTIME} to {self._places.daemon_json}")
        elif reload:
            self.outcome.changes.append(f"let Docker read {self._places.daemon_json}: it does not show {RUNTIME} yet")
        self.outcome.changes.append(f"runtime behind it: {' '.join(merged.chain)}")
        if self._dry:
            return self.outcome
        # The way back is on disk before the first change.
        self._write_undo(merged.undo)
        if before is not None and not os.path.exists(self._places.backup):
            _write(self._places.backup, before, like=self._places.daemon_json)
        _write(self._places.settings, settings)
        if reload:
            # The file of an install that was cut short is no way back.
            self._exchange(before if stale else remove(merged.text, merged.undo), merged.text, taken)
        return self.outcome

    def remove(self) -> Outcome:
        """Takes the runtime out and restores the default of before. Running containers on it stand in the way."""
        before = _read(self._places.daemon_json)
        undo = self._undo() or {}
        try:
            after = None if before is None else remove(before, undo)
            saved = _read(self._places.backup)
            if after is not None and saved is not None and json.dumps(load(after)) == json.dumps(load(saved)):
                after = saved  # the same settings in the site's own layout
        except DaemonJsonError as exc:
            raise HookError(f"{self._places.daemon_json}: {exc}") from exc
        own = [path for path in (self._places.settings, self._places.undo, self._places.backup) if os.path.exists(path)]
        if after == before and not own:
            return self.outcome
        live = self._live()
        reload = after != before or not (live is None or _is_without(live))
        self._refuse_when_rented()
        self._refuse_when_used()
        if reload:
            self.outcome.changes.append(f"take runtime {RUNTIME} out of {self._places.daemon_json} and out of Docker")
            self.outcome.before, self.outcome.after = before or "", after or ""
        self.outcome.changes += [f"remove {path}" for path in own]
        if self._dry:
            return self.outcome
        # Our own files hold the way back: they go when Docker has taken it.
        if reload:
            named = for_reload(after, "runc" if live and _default(live) == RUNTIME else "")
            self._exchange(before, named, _is_without)
            if after is None:
                os.unlink(self._places.daemon_json)
            elif after != named:
                _write(self._places.daemon_json, after, like=self._places.daemon_json)
        for path in own:
            os.unlink(path)
        folder = os.path.dirname(self._places.settings)
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
        return self.outcome

    # Before a change

    def _refuse_when_rented(self) -> None:
        """The idle guard (host-contract 0.3). A daemon that does not run holds no rental that a reload could reach."""
        if self._daemon() is None:
            return
        rented = occupancy(self._probe).rented
        if rented:
            raise HookError(f"{rented}: Docker is not touched now")

    def _refuse_what_docker_will_not_take(self, merged: Merged) -> None:
        conflicts = flag_conflicts(load(merged.text), self._command_line())
        if conflicts:
            raise HookError(
                f"{self._places.daemon_json} and the command line of dockerd both set {', '.join(conflicts)}: Docker "
                "would not start with it. Take these out of the unit (a drop-in for docker.service) or out of the file"
            )
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(merged.text)
            stream.flush()
            try:
                done = self._probe.run("dockerd", "--validate", "--config-file", stream.name, timeout=60)
            except ToolMissing:
                return
            except CommandError as exc:
                raise HookError(f"{exc}: {self._places.daemon_json} stays as it is") from exc
        if done.rc != 0 and "unknown flag" not in done.stderr:  # versions before 23 have no such check
            raise HookError(f"dockerd refuses the new {self._places.daemon_json}: {done.first_error}")

    def _refuse_when_used(self) -> None:
        if self._daemon() is None:
            return
        form = "{{.Name}} {{.HostConfig.Runtime}} {{.State.Running}}"
        try:
            ids = self._probe.output("docker", "ps", "--all", "--quiet", "--no-trunc").split()
            text = self._probe.output("docker", "inspect", "--format", form, *ids) if ids else ""
        except ProbeError as exc:
            raise HookError(f"cannot tell which containers use {RUNTIME}: {exc}") from exc
        rows = [line.split() for line in text.splitlines()]
        users = [(name.lstrip("/"), running == "true") for name, runtime, running in rows if runtime == RUNTIME]
        running = [name for name, alive in users if alive]
        if running:
            raise HookError(
                f"containers run on {RUNTIME} ({', '.join(running)}): end them first, Docker needs it for that"
            )
        self.outcome.left += [
            f"container {name}: was made for {RUNTIME} and cannot be started again" for name, _ in users
        ]

    def _command_line(self) -> list[str] | str:
        """How dockerd is started: as it runs now, else as the unit says; nothing where neither can be read."""
        pid = self._daemon()
        if pid is not None:
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as stream:
                    return stream.read().split("\0")[1:]
            except OSError:
                pass
        try:
            unit = self._probe.output("systemctl", "cat", "docker.service")
        except ProbeError:
            return ""
        starts = [line for line in unit.replace("\\\n", " ").splitlines() if line.startswith("ExecStart=/")]
        return starts[-1].split()[1:] if starts else ""

    # The change itself

    def _exchange(self, before: str | None, after: str, taken: Callable[[dict[str, Any]], bool]) -> None:
        """Writes the file and lets the daemon take it; puts the old one back when it does not."""
        _write(self._places.daemon_json, after, like=self._places.daemon_json)
        try:
            self._reload(taken)
        except HookError as exc:
            if before is None:
                os.unlink(self._places.daemon_json)
            else:
                _write(self._places.daemon_json, before, like=self._places.daemon_json)
            raise HookError(f"{exc}. The old file is back; {self._revive()}") from exc

    def _reload(self, taken: Callable[[dict[str, Any]], bool]) -> None:
        pid = self._daemon()
        if pid is None:
            return  # it reads the file when it starts
        self._kill(pid, signal.SIGHUP)
        deadline = self._now() + RELOAD_LIMIT_S
        while True:
            reason = "it shows the old settings"
            try:
                if taken(self._info()):
                    return
            except (ProbeError, ParseError) as exc:
                reason = str(exc)
            if self._daemon() is None:
                raise HookError("Docker ended when it read the new file; its journal says why")
            if self._now() >= deadline:
                raise HookError(f"Docker has not taken the new file within {RELOAD_LIMIT_S:g} s: {reason}")
            self._sleep(0.2)

    def _revive(self) -> str:
        """Makes sure that a daemon runs, with the file of before; says so, or what a person has to do."""
        pid = self._daemon()
        try:
            if pid is None:
                self._start()
            else:
                self._kill(pid, signal.SIGHUP)
            deadline = self._now() + RELOAD_LIMIT_S
            while True:
                try:
                    self._info()
                    return "Docker answers"
                except (ProbeError, ParseError):
                    if self._now() >= deadline:
                        raise
                    self._sleep(0.2)
        except (ProbeError, ParseError, OSError) as exc:
            return f"Docker does NOT answer ({exc}): look at `journalctl -u docker` and start it"

    def _live(self) -> dict[str, Any] | None:
        """What the daemon shows; None where none runs, as it reads the file when it starts."""
        if self._daemon() is None:
            return None
        try:
            return self._info()
        except (ProbeError, ParseError) as exc:
            raise HookError(f"Docker runs and does not answer, nothing was changed: {exc}") from exc

    def _info(self) -> dict[str, Any]:
        info = load_json("docker info", self._probe.output("docker", "info", "--format", "{{json .}}", timeout=30))
        if not isinstance(info, dict) or not info.get("ServerVersion"):
            raise ParseError("docker info", "no answer of a server")
        return info

    def _daemon(self) -> int | None:
        """Process id of the running daemon, checked to be one: a stale file may name any process."""
        text = (_read(self._places.pid_file) or "").strip()
        if not text.isdecimal():
            return None
        if (_read(f"/proc/{text}/comm") or "").strip() != "dockerd":
            return None
        return int(text)

    # Our own files

    def _undo(self) -> dict[str, Any] | None:
        text = _read(self._places.undo)
        if text is None:
            return None
        try:
            undo = json.loads(text)
        except ValueError as exc:
            raise HookError(
                f"{self._places.undo}: not readable ({exc}); it holds the default runtime of before"
            ) from exc
        if not isinstance(undo, dict):
            raise HookError(f"{self._places.undo}: not an object; it holds the default runtime of before")
        return undo

    def _write_undo(self, undo: dict[str, Any]) -> None:
        _write(self._places.undo, json.dumps(undo, indent=1) + "\n", mode=0o600)


def _runtimes(info: dict[str, Any]) -> dict[str, Any]:
    known = info.get("Runtimes")
    return known if isinstance(known, dict) else {}


def _default(info: dict[str, Any]) -> str:
    return str(info.get("DefaultRuntime", ""))


def _is_without(info: dict[str, Any]) -> bool:
    return RUNTIME not in _runtimes(info) and _default(info) != RUNTIME


def _settings_text(chain: list[str]) -> str:
    if any("\n" in word for word in chain):
        raise HookError(f"the runtime behind {RUNTIME} has a line break in its command: {chain!r}")
    lines = "".join(f"runtime={word}\n" for word in chain)
    return f"# Written by lium.cluster.runtime_hook: what {RUNTIME} hands on to, one line a word.\n{lines}"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise HookError(f"{path}: {exc.strerror}; run as root") from exc


def _write(path: str, text: str, mode: int = 0o644, like: str = "") -> None:
    """Replaces a file in one step; owner and mode are those of ``like`` where that exists. Folders are made."""
    try:
        status = os.stat(like or path)
    except FileNotFoundError:
        status = None
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.lium-new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        if status:
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) if status else mode)
        os.fsync(descriptor)
    os.replace(new, os.path.realpath(path))
