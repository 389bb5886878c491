# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a role leaves on a host, so that it can be taken back exactly.

A footprint is a set of files, loaded modules, kernel settings, modes of device nodes, netdevs set up, firewall rules
and services. `absent` walks its ledger backwards and touches nothing else; what others changed since then is left as
it is and named.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import FirewallRule, Run, undo_of
from ansible_collections.lium.cluster.plugins.module_utils._kmod import (
    explain_modprobe,
    holders,
    loaded_modules,
    unload_order,
)
from ansible_collections.lium.cluster.plugins.module_utils._ledger import Entry, Ledger, read_text, write_text
from ansible_collections.lium.cluster.plugins.module_utils._packages import name_of_file, present_packages

#: What a rental may live on. It stays while one runs; the rest of a footprint takes effect at the next boot or login.
_LIVE = ("link", "firewall", "mode", "sysctl")


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
    """What the role wants on the host. ``modes`` maps a pattern of paths to a mode; ``loaded_since`` names modules that
    came with the role's packages."""

    files: Sequence[ManagedFile] = ()
    modules: Sequence[str] = ()
    loaded_since: Sequence[str] = ()
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


class Footprint:
    """The footprint of one role on this host. ``root`` and ``run`` stand in for the host in tests."""

    def __init__(self, role: str, root: str = "/", run: Run | None = None, dry: bool = False) -> None:
        self._root = root
        self._run_command = run or run_command
        # A listing of the firewall takes its time, and what is done to one rule says nothing about another.
        self._ask_once = functools.lru_cache(maxsize=None)(self._run_command)
        self._dry = dry
        self._ledger = Ledger(role, root, dry)
        self.outcome = Outcome()

    @property
    def apt(self) -> bool:
        """Whether packages come by apt on this host, and not by dnf."""
        return os.path.exists(self._path("/usr/bin/apt-get"))

    @property
    def packages(self) -> list[str]:
        """Packages that came with the role, or were about to, and were not there before."""
        return [entry["name"] for entry in self._ledger.of_kind("package")]

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def _must(self, argv: Sequence[str]) -> None:
        rc, text = self._run_command(argv)
        if rc != 0:
            raise FootprintError(f"{' '.join(argv)}: {text.strip() or f'exit code {rc}'}")

    # Present

    def apply(self, wanted: Wanted) -> Outcome:
        """Makes the host as wanted. A second call changes nothing."""
        for name in wanted.packages:
            self._ledger.note("package", name)
        for name in wanted.loaded_since:
            self._ledger.note("module", name)
        wanted_paths = {file.path for file in wanted.files}
        for entry in self._ledger.of_kind("file"):
            if entry["name"] not in wanted_paths and self._undo_file(entry):  # of an earlier set of options
                self._ledger.forget("file", entry["name"])
        for file in wanted.files:
            self._apply_file(file)
        loads = [self._apply_module(module) for module in wanted.modules]
        if any(loads) and not self._dry:
            # Their device nodes come a moment later, and the modes below are theirs.
            self._run_command(["udevadm", "settle", "--timeout=10"])
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

    def note_packages(self, names: Sequence[str], files: Sequence[str] = ()) -> None:
        """Notes what is about to be installed and is not there yet, so that a run that dies in between can be undone.
        Of a package's file, which belongs to the role as well, the name is read once it is there."""
        for file in files:
            self._ledger.note("download", file)
        paths = [path for path in map(self._path, files) if os.path.exists(path)]
        for name in [*names, *(name_of_file(self._run_command, path, self.apt) for path in paths)]:
            if not present_packages(self._run_command, [name], self.apt):
                self._ledger.note("package", name)

    def _apply_file(self, file: ManagedFile) -> None:
        path = self._path(file.path)
        old = read_text(path)
        mode = None if old is None else stat.S_IMODE(os.stat(path).st_mode)
        if old == file.content and mode == file.mode:
            return
        self.outcome.changes.append(f"write {file.path}")
        shown = {"before": old or "", "after": file.content}
        if file.secret:
            shown = {"before": "(secret)\n" if old else "", "after": "(another secret)\n" if old else "(secret)\n"}
        self.outcome.before[file.path], self.outcome.after[file.path] = shown["before"], shown["after"]
        self._make_folder(os.path.dirname(file.path))
        self._ledger.note("file", file.path, sha256=_digest(file.content), original=old, original_mode=mode)
        if not self._dry:
            write_text(path, file.content, file.mode)

    def _make_folder(self, folder: str) -> None:
        if not self._dry and not os.path.isdir(self._path(folder)):
            self._make_folder(os.path.dirname(folder))
            self._ledger.note("folder", folder)
            os.mkdir(self._path(folder), 0o755)

    def _apply_module(self, module: str) -> bool:
        if os.path.isdir(self._path(f"/sys/module/{module}")):
            return False
        self.outcome.changes.append(f"load module {module}")
        self._ledger.note("module", module)
        if not self._dry:
            before = loaded_modules(self._root)
            rc, text = self._run_command(["modprobe", module])
            if rc != 0:
                self._ledger.forget("module", module)
                raise FootprintError(explain_modprobe(module, text))
            for name in sorted(loaded_modules(self._root) - before - {module}):
                self._ledger.note("module", name)  # those that it needs came with it
        return True

    def _apply_sysctl(self, key: str, value: str) -> None:
        path = self._path(sysctl_path(key))
        old = read_text(path)
        if old is None:
            raise FootprintError(f"{key}: this kernel has no such setting")
        if old.strip() == value:
            return
        self.outcome.changes.append(f"set {key}={value}")
        self.outcome.before[key], self.outcome.after[key] = old.strip() + "\n", value + "\n"
        self._ledger.note("sysctl", key, original=old.strip(), value=value)
        self._write_setting(path, value)

    def _write_setting(self, path: str, value: str) -> None:
        if not self._dry:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(value + "\n")

    def _apply_mode(self, path: str, mode: int) -> None:
        old = stat.S_IMODE(os.stat(path).st_mode)
        if old == mode:
            return
        self.outcome.changes.append(f"mode {mode:04o} for {path}")
        self._ledger.note("mode", path, original=old, value=mode)
        if not self._dry:
            os.chmod(path, mode)

    def _apply_link(self, netdev: str) -> None:
        up = self._link_is_up(netdev)
        if up is None:
            raise FootprintError(f"{netdev}: no such netdev on this host")
        if not up:
            self.outcome.changes.append(f"set {netdev} up")
            self._ledger.note("link", netdev)
            if not self._dry:
                self._must(["ip", "link", "set", netdev, "up"])

    def _link_is_up(self, netdev: str) -> bool | None:
        flags = read_text(self._path(f"/sys/class/net/{netdev}/flags"))
        return None if flags is None else bool(int(flags, 16) & 1)

    def _apply_firewall(self, rule: FirewallRule) -> None:
        if rule.found(self._ask_once):  # just so, or in another form that someone has chosen
            return
        self.outcome.changes.append(f"allow {rule}")
        self._ledger.note("firewall", str(rule), rule=dataclasses.asdict(rule))
        if not self._dry:
            self._must(rule.add_command)

    def _apply_service(self, unit: str) -> None:
        """Enables and starts a unit; what was enabled or running before stays so when the role goes."""
        enabled, active = self._unit_state(unit)
        if not (enabled and active):
            self.outcome.changes.append(f"enable and start {unit}")
            self._ledger.note("service", unit, original_enabled=enabled, original_active=active)
            if not self._dry:
                self._must(["systemctl", "enable", "--now", unit])

    def _unit_state(self, unit: str) -> tuple[bool, bool]:
        enabled = self._run_command(["systemctl", "is-enabled", "--quiet", unit])[0] == 0
        return enabled, self._run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0

    # Absent

    def remove(self, busy: str = "") -> Outcome:
        """Undoes what the ledger holds, newest first. ``busy`` says why what a rental lives on must be left alone now:
        it stays noted for the next time."""
        undo: dict[str, Callable[[Entry], bool]] = {
            "file": self._undo_file,
            "folder": self._undo_folder,
            "sysctl": self._undo_sysctl,
            "mode": self._undo_mode,
            "link": self._undo_link,
            "firewall": self._undo_firewall,
            "service": self._undo_service,
            "download": self._undo_download,
            "package": lambda entry: entry["name"] not in kept,
        }
        kept = self._kept_packages(busy)
        modules = [entry["name"] for entry in self._ledger.of_kind("module")]
        for entry in reversed(self._ledger.entries):
            kind, name = entry["kind"], entry["name"]
            if kind in _LIVE and busy:
                self.outcome.left.append(f"{kind} {name}: {busy}")
            elif kind != "module" and undo[kind](entry):
                self._ledger.forget(kind, name)
        self._undo_modules(modules, busy)
        return self.outcome

    def _kept_packages(self, busy: str) -> set[str]:
        """Packages that stay noted. The role's tasks remove them, and have done so before this."""
        names = set(self.packages)
        if not names or (self._dry and not busy):
            return set()
        kept = names if busy else names & present_packages(self._run_command, sorted(names), self.apt)
        if kept:
            self.outcome.left.append(f"packages {', '.join(sorted(kept))}: {busy or 'still installed'}")
        return kept

    def _undo_file(self, entry: Entry) -> bool:
        path = self._path(entry["name"])
        now = read_text(path)
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
                write_text(path, entry["original"], entry["original_mode"])
        return True

    def _undo_folder(self, entry: Entry) -> bool:
        path = self._path(entry["name"])
        if not self._dry and os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)
        return True

    def _undo_download(self, entry: Entry) -> bool:
        path = self._path(entry["name"])
        if os.path.exists(path):
            self.outcome.changes.append(f"remove {entry['name']}")
            if not self._dry:
                os.unlink(path)
        return True

    def _undo_modules(self, modules: Sequence[str], busy: str) -> None:
        """Unloads what the role has loaded, users before used; what something else uses by now stays."""
        if busy:
            self.outcome.left += [f"module {name}: {busy}" for name in modules]
            return
        present = [name for name in modules if os.path.isdir(self._path(f"/sys/module/{name}"))]
        order = unload_order(present, self._root)
        for name in modules:
            if name in present and name not in order:
                count, users = holders(name, self._root)
                used_by = ", ".join(sorted(users)) or f"{count} users"
                self.outcome.left.append(f"module {name}: in use ({used_by}); gone after a reboot")
        for name in order:
            self.outcome.changes.append(f"unload module {name}")
            # modprobe takes modules that nobody needs any more along.
            if not self._dry and os.path.isdir(self._path(f"/sys/module/{name}")):
                self._must(["modprobe", "-r", name])
        for name in modules:
            self._ledger.forget("module", name)

    def _undo_sysctl(self, entry: Entry) -> bool:
        path = self._path(sysctl_path(entry["name"]))
        now = read_text(path)
        if now is None or now.strip() != entry["value"]:
            return True  # the netdev is gone, or someone else has set it since
        self.outcome.changes.append(f"set {entry['name']}={entry['original']}")
        self._write_setting(path, entry["original"])
        return True

    def _undo_mode(self, entry: Entry) -> bool:
        path = entry["name"]
        if os.path.exists(path) and stat.S_IMODE(os.stat(path).st_mode) == entry["value"]:
            self.outcome.changes.append(f"mode {entry['original']:04o} for {path}")
            if not self._dry:
                os.chmod(path, entry["original"])
        return True

    def _undo_link(self, entry: Entry) -> bool:
        if self._link_is_up(entry["name"]):
            self.outcome.changes.append(f"set {entry['name']} down")
            if not self._dry:
                self._must(["ip", "link", "set", entry["name"], "down"])
        return True

    def _undo_firewall(self, entry: Entry) -> bool:
        undo = undo_of(entry, self._ask_once)
        self.outcome.left += undo.left
        for rule in undo.rules:
            self.outcome.changes.append(f"no longer allow {rule}")
            if not self._dry:
                self._must(rule.remove_command)
        return undo.settled

    def _undo_service(self, entry: Entry) -> bool:
        unit = entry["name"]
        enabled, active = self._unit_state(unit)
        was = {"stop": entry["original_active"], "disable": entry["original_enabled"]}
        for verb, now in (("stop", active), ("disable", enabled)):
            if now and not was[verb]:
                self.outcome.changes.append(f"{verb} {unit}")
                if not self._dry:
                    self._must(["systemctl", verb, unit])
        return True


def sysctl_path(key: str) -> str:
    """``net.ipv4.conf.eth0/100.rp_filter`` stands for a netdev ``eth0.100``, as in sysctl's own files."""
    return "/proc/sys/" + "/".join(part.replace("/", ".") for part in key.split("."))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """Exit code and both outputs of a command on this host; 127 when it is not installed."""
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            list(argv), capture_output=True, text=True, errors="replace", timeout=120, env=env, check=False
        )
    except FileNotFoundError:
        return 127, f"{argv[0]} is not installed"
    return done.returncode, done.stderr + done.stdout
