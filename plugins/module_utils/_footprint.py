# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a role leaves on a host, written down so that it can be taken back exactly.

A footprint is a set of files, loaded modules, kernel settings, modes of device nodes and netdevs set up. Before each
change its undo is written to a ledger on the host; `absent` walks the ledger backwards and touches nothing else. What
others changed since then is left as it is and named.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import FirewallRule, Run

LEDGER_FOLDER = "/var/lib/lium-cluster"
LEDGER_VERSION = 1


class FootprintError(Exception):
    """A change that could not be made. What was done before it stands in the ledger."""


@dataclasses.dataclass(frozen=True)
class ManagedFile:
    """A file that belongs to the role alone. ``secret`` keeps its text out of every diff."""

    path: str
    content: str
    mode: int = 0o644
    secret: bool = False


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the role wants on the host. ``modes`` maps a pattern of paths to a mode."""

    files: Sequence[ManagedFile] = ()
    modules: Sequence[str] = ()
    sysctls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    links_up: Sequence[str] = ()
    firewall: Sequence[FirewallRule] = ()
    services: Sequence[str] = ()
    packages: Sequence[str] = ()


@dataclasses.dataclass
class Outcome:
    """What was done (or would be, in check mode), what was left alone and why, and the diff."""

    changes: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    before: dict[str, str] = dataclasses.field(default_factory=dict)
    after: dict[str, str] = dataclasses.field(default_factory=dict)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Footprint:
    """The footprint of one role on this host. ``root`` and ``run`` stand in for the host in tests."""

    def __init__(self, role: str, root: str = "/", run: Run | None = None, dry: bool = False) -> None:
        self._root = root
        self._run_command = run or _run
        self._dry = dry
        self._ledger_path = self._path(f"{LEDGER_FOLDER}/{role}.json")
        self.outcome = Outcome()
        self._entries: list[dict[str, Any]] = self._load()

    # Ledger

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def _load(self) -> list[dict[str, Any]]:
        try:
            with open(self._ledger_path, encoding="utf-8") as stream:
                ledger = json.load(stream)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as exc:
            raise FootprintError(
                f"{self._ledger_path}: not readable ({exc}); it holds how to undo the role, restore it from a backup"
            ) from exc
        if not isinstance(ledger, dict) or ledger.get("version") != LEDGER_VERSION:
            raise FootprintError(f"{self._ledger_path}: written by another version of the collection")
        return list(ledger["entries"])

    def _save(self) -> None:
        if self._dry:
            return
        if not self._entries:
            if os.path.exists(self._ledger_path):
                os.unlink(self._ledger_path)
                folder = os.path.dirname(self._ledger_path)
                if not os.listdir(folder):
                    os.rmdir(folder)
            return
        os.makedirs(os.path.dirname(self._ledger_path), mode=0o700, exist_ok=True)
        text = json.dumps({"version": LEDGER_VERSION, "entries": self._entries}, indent=1)
        _write(self._ledger_path, text, 0o600)

    def _known(self, kind: str, name: str) -> dict[str, Any] | None:
        return next((entry for entry in self._entries if (entry["kind"], entry["name"]) == (kind, name)), None)

    def _note(self, **entry: Any) -> None:
        """Writes an undo down before its change is made, so that a run that dies can be undone as well."""
        if self._known(entry["kind"], entry["name"]):
            return  # the first undo leads back to the host as it was
        self._entries.append(entry)
        self._save()

    @property
    def packages(self) -> list[str]:
        """Packages that came with the role and were not there before."""
        return [entry["name"] for entry in self._entries if entry["kind"] == "package"]

    # Present

    def apply(self, wanted: Wanted) -> Outcome:
        """Makes the host as wanted. A second call changes nothing."""
        for name in wanted.packages:
            self._note(kind="package", name=name)
        wanted_paths = {file.path for file in wanted.files}
        for entry in [entry for entry in self._entries if entry["kind"] == "file"]:
            if entry["name"] not in wanted_paths:  # a file of an earlier set of options
                self._undo_file(entry)
                self._forget(entry)
        for file in wanted.files:
            self._apply_file(file)
        for module in wanted.modules:
            self._apply_module(module)
        for key, value in wanted.sysctls.items():
            self._apply_sysctl(key, value)
        for pattern, mode in wanted.modes.items():
            for path in sorted(glob.glob(self._path(pattern))):
                self._apply_mode(path, mode)
        for netdev in wanted.links_up:
            self._apply_link(netdev)
        for rule in wanted.firewall:
            self._apply_firewall(rule)
        for unit in wanted.services:
            self._apply_service(unit)
        return self.outcome

    def _apply_file(self, file: ManagedFile) -> None:
        path = self._path(file.path)
        old = _read(path)
        mode = None if old is None else stat.S_IMODE(os.stat(path).st_mode)
        if old == file.content and mode == file.mode:
            return
        self.outcome.changes.append(f"write {file.path}")
        hidden = "(secret)\n"
        self.outcome.before[file.path] = "" if old is None else hidden if file.secret else old
        self.outcome.after[file.path] = hidden if file.secret else file.content
        if file.secret and old is not None and old != file.content:
            self.outcome.after[file.path] = "(another secret)\n"
        self._make_folder(os.path.dirname(file.path))
        known = self._known("file", file.path)
        if known is None:
            self._note(kind="file", name=file.path, sha256=_digest(file.content), original=old, original_mode=mode)
        else:
            known["sha256"] = _digest(file.content)
            self._save()
        if not self._dry:
            _write(path, file.content, file.mode)

    def _make_folder(self, folder: str) -> None:
        if not self._dry and not os.path.isdir(self._path(folder)):
            self._make_folder(os.path.dirname(folder))
            self._note(kind="folder", name=folder)
            os.mkdir(self._path(folder), 0o755)

    def _apply_module(self, module: str) -> None:
        if os.path.isdir(self._path(f"/sys/module/{module}")):
            return
        self.outcome.changes.append(f"load module {module}")
        self._note(kind="module", name=module)
        if not self._dry:
            rc, text = self._run_command(["modprobe", module])
            if rc != 0:
                self._forget(self._known("module", module))
                raise FootprintError(explain_modprobe(module, text))

    def _apply_sysctl(self, key: str, value: str) -> None:
        path = self._path(sysctl_path(key))
        old = _read(path)
        if old is None:
            raise FootprintError(f"{key}: this kernel has no such setting")
        if old.strip() == value:
            return
        self.outcome.changes.append(f"set {key}={value}")
        self.outcome.before[key], self.outcome.after[key] = old.strip() + "\n", value + "\n"
        self._note(kind="sysctl", name=key, original=old.strip(), value=value)
        if not self._dry:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(value + "\n")

    def _apply_mode(self, path: str, mode: int) -> None:
        old = stat.S_IMODE(os.stat(path).st_mode)
        if old == mode:
            return
        self.outcome.changes.append(f"mode {mode:04o} for {path}")
        self._note(kind="mode", name=path, original=old, value=mode)
        if not self._dry:
            os.chmod(path, mode)

    def _apply_link(self, netdev: str) -> None:
        flags = _read(self._path(f"/sys/class/net/{netdev}/flags"))
        if flags is None:
            raise FootprintError(f"{netdev}: no such netdev on this host")
        if int(flags, 16) & 1:
            return
        self.outcome.changes.append(f"set {netdev} up")
        self._note(kind="link", name=netdev)
        if not self._dry:
            self._must(["ip", "link", "set", netdev, "up"])

    def _apply_firewall(self, rule: FirewallRule) -> None:
        if rule.present(self._run_command):
            return
        self.outcome.changes.append(f"allow {rule}")
        self._note(kind="firewall", name=rule.name)
        if not self._dry:
            for argv in rule.add_commands():
                self._must(argv)

    def _apply_service(self, unit: str) -> None:
        """Enables and starts a unit; what was enabled or running before stays so when the role goes."""
        enabled, active = self._unit_state(unit)
        if not (enabled and active):
            self.outcome.changes.append(f"enable and start {unit}")
            self._note(kind="service", name=unit, enabled=enabled, active=active)
            if not self._dry:
                self._must(["systemctl", "enable", "--now", unit])

    def _unit_state(self, unit: str) -> tuple[bool, bool]:
        enabled = self._run_command(["systemctl", "is-enabled", "--quiet", unit])[0] == 0
        return enabled, self._run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0

    # Absent

    def remove(self, busy: str = "") -> Outcome:
        """Undoes what the ledger holds, newest first. ``busy`` says why modules and links must be left alone now."""
        for entry in reversed(list(self._entries)):
            kind = entry["kind"]
            if kind in ("module", "link") and busy:
                self.outcome.left.append(f"{kind} {entry['name']}: {busy}")
                continue
            done: bool | None = {
                "file": self._undo_file,
                "folder": self._undo_folder,
                "module": self._undo_module,
                "sysctl": self._undo_sysctl,
                "mode": self._undo_mode,
                "link": self._undo_link,
                "firewall": self._undo_firewall,
                "service": self._undo_service,
                "package": lambda _entry: True,  # the role has removed them, see its tasks
            }[kind](entry)
            if done:
                self._forget(entry)
        return self.outcome

    def _forget(self, entry: dict[str, Any] | None) -> None:
        if not self._dry:
            self._entries = [known for known in self._entries if known is not entry]
            self._save()

    def _undo_file(self, entry: dict[str, Any]) -> bool:
        path = self._path(entry["name"])
        now = _read(path)
        if now is None:
            return True
        if _digest(now) != entry["sha256"] and now != entry["original"]:
            self.outcome.left.append(f"file {entry['name']}: changed by someone else since")
            return True
        self.outcome.changes.append(f"{'remove' if entry['original'] is None else 'restore'} {entry['name']}")
        if not self._dry:
            if entry["original"] is None:
                os.unlink(path)
            else:
                _write(path, entry["original"], entry["original_mode"])
        return True

    def _undo_folder(self, entry: dict[str, Any]) -> bool:
        path = self._path(entry["name"])
        if not self._dry and os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
        return True

    def _undo_module(self, entry: dict[str, Any]) -> bool:
        name = entry["name"]
        if not os.path.isdir(self._path(f"/sys/module/{name}")):
            return True
        users = (_read(self._path(f"/sys/module/{name}/refcnt")) or "0").strip()
        holders = sorted(os.listdir(self._path(f"/sys/module/{name}/holders"))) if users != "0" else []
        if users != "0":
            used_by = ", ".join(holders) or f"{users} users"
            self.outcome.left.append(f"module {name}: in use ({used_by}); gone after a reboot")
            return True
        self.outcome.changes.append(f"unload module {name}")
        if not self._dry:
            self._must(["modprobe", "-r", name])
        return True

    def _undo_sysctl(self, entry: dict[str, Any]) -> bool:
        path = self._path(sysctl_path(entry["name"]))
        now = _read(path)
        if now is None or now.strip() != entry["value"]:
            return True  # the netdev is gone, or someone else has set it since
        self.outcome.changes.append(f"set {entry['name']}={entry['original']}")
        if not self._dry:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(entry["original"] + "\n")
        return True

    def _undo_mode(self, entry: dict[str, Any]) -> bool:
        path = entry["name"]
        if os.path.exists(path) and stat.S_IMODE(os.stat(path).st_mode) == entry["value"]:
            self.outcome.changes.append(f"mode {entry['original']:04o} for {path}")
            if not self._dry:
                os.chmod(path, entry["original"])
        return True

    def _undo_link(self, entry: dict[str, Any]) -> bool:
        flags = _read(self._path(f"/sys/class/net/{entry['name']}/flags"))
        if flags is not None and int(flags, 16) & 1:
            self.outcome.changes.append(f"set {entry['name']} down")
            if not self._dry:
                self._must(["ip", "link", "set", entry["name"], "down"])
        return True

    def _undo_firewall(self, entry: dict[str, Any]) -> bool:
        rule = FirewallRule.from_name(entry["name"])
        if rule.present(self._run_command):
            self.outcome.changes.append(f"no longer allow {rule}")
            if not self._dry:
                for argv in rule.remove_commands():
                    self._must(argv)
        return True

    def _undo_service(self, entry: dict[str, Any]) -> bool:
        unit = entry["name"]
        enabled, active = self._unit_state(unit)
        for was, now, verb in ((entry["active"], active, "stop"), (entry["enabled"], enabled, "disable")):
            if now and not was:
                self.outcome.changes.append(f"{verb} {unit}")
                if not self._dry:
                    self._must(["systemctl", verb, unit])
        return True

    def _must(self, argv: Sequence[str]) -> None:
        rc, text = self._run_command(argv)
        if rc != 0:
            raise FootprintError(f"{' '.join(argv)}: {text.strip() or f'exit code {rc}'}")


def sysctl_path(key: str) -> str:
    """``net.ipv4.conf.eth0/100.rp_filter`` stands for a netdev ``eth0.100``, as in sysctl's own files."""
    return "/proc/sys/" + "/".join(part.replace("/", ".") for part in key.split("."))


def explain_modprobe(module: str, text: str) -> str:
    """What a failed ``modprobe`` means and what to do: once, without trying again (host-contract 8)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    container = "In a container the host has to load it"
    if "not found in directory" in text:
        kernel = text.split("/lib/modules/")[-1].split()[0].rstrip(".,'\"") if "/lib/modules/" in text else ""
        fix = f"install the extra modules of kernel {kernel} (Ubuntu: linux-modules-extra-{kernel}), or a newer kernel"
        if "cloud" in kernel:
            fix = (
                f"kernel {kernel} is of the cloud flavour, which leaves it out: install the distribution's full kernel"
            )
        return f"module {module} is not there; {fix}. {container}. ({line})"
    if "Key was rejected" in text:
        fix = "enrol its key with mokutil --import and reboot"
        return f"module {module} is unsigned and Secure Boot is on: {fix}. ({line})"
    if "Operation not permitted" in text:
        return f"module {module} may not be loaded here. {container}. ({line})"
    return f"module {module} could not be loaded: {line}"


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        list(argv), capture_output=True, text=True, errors="replace", timeout=120, env={**os.environ, "LC_ALL": "C"}
    )
    return done.returncode, done.stderr + done.stdout


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _write(path: str, text: str, mode: int) -> None:
    """Replaces a file in one step; nobody sees half of it, and its mode is never wider than asked for."""
    temporary = f"{path}.lium-new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())
    os.replace(temporary, path)
