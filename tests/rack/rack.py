"""A rack of virtual hosts behind a switch: made, found again by name, reset, ended."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from tests.rack import packages, process, template
from tests.rack.errors import RackError
from tests.rack.host import KEY, Host
from tests.rack.image import Kind, ssh_key
from tests.rack.inventory import inventory
from tests.rack.machine import MEMORY_MIB
from tests.rack.switch import Switch
from tools.console import say

#: Where running racks keep sockets, disks and records: on a disk, under a short path (a socket's may have 107 bytes).
RACKS = Path("/var/tmp/lium-rack")
TREE = Path(__file__).resolve().parents[2]
INVENTORY = TREE / ".rack" / "inventory.yml"
MAX_HOSTS = 16
Boot = Literal["snapshot", "cold"]


def tree_rack_name() -> str:
    """The name of `make rack`'s rack: one a checkout, so that two checkouts do not end each other's."""
    return f"tree-{hashlib.sha256(str(TREE).encode()).hexdigest()[:8]}"


class Rack:
    """The rack `name`. `Rack.up(...)` makes one, `Rack.attach(name)` finds a running one."""

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[a-z0-9-]{1,32}", name):
            raise RackError(f"a rack's name is 1 to 32 lower-case letters, digits and dashes, not {name!r}")
        self.name = name
        self.folder = RACKS / name
        self.hosts: list[Host] = []
        self.kind: Kind = "bare"
        self.roce = True
        self._netns = f"rack-{name}"
        self.switch = Switch(self._netns, self.folder)

    @classmethod
    def up(
        cls,
        hosts: int = 2,
        *,
        name: str | None = None,
        kind: Kind = "bare",
        roce: bool = True,
        boot: Boot | None = None,
        owned: bool = False,
    ) -> Rack:
        """Make a rack of clean hosts; one of that name that runs already is ended first.

        `kind` and `roce` are as in `reset`. `boot` is "snapshot" unless `RACK_BOOT` says "cold". An `owned` rack
        that outlives this process is ended when the next rack is made.

        Raises `RackError` that names what is missing: root, a device, a package, memory, disk space.
        """
        _check_size(hosts)
        packages.ensure()
        _make_racks_folder()
        _end_orphans()
        rack = cls(name or tree_rack_name())
        made_from = _template(kind, boot)
        with rack._alone():
            rack._end()
            try:
                rack._create(owned=owned)
                rack.kind, rack.roce = kind, roce
                rack._start(range(1, hosts + 1), made_from, roce)
            except BaseException:
                rack._end()
                raise
        return rack

    @classmethod
    def attach(cls, name: str | None = None) -> Rack:
        """The running rack of that name; `RackError` if there is none."""
        rack = cls(name or tree_rack_name())
        _check_rights()
        try:
            state = json.loads(rack._state_file.read_text())
        except OSError:
            raise RackError(_not_up(rack.name)) from None
        rack._load(state)
        return rack

    def reset(
        self, *numbers: int, kind: Kind | None = None, roce: bool | None = None, boot: Boot | None = None
    ) -> None:
        """Throw hosts away and clone them anew, all of them unless numbers are given; rules of the switch stay.

        `kind` "bare" has none of the roles' packages, "full" has those that onboarding installs. With `roce` a host has
        a Soft-RoCE device on `eth1`, as a machine with a RoCE card has one from the start; else it has neither RDMA
        device nor RDMA module. Unless given, both are as the rack was made, or reset as a whole.
        """
        chosen = numbers or tuple(host.number for host in self.hosts)
        for number in chosen:
            self.host(number)
        kind, roce = kind or self.kind, self.roce if roce is None else roce
        made_from = _template(kind, boot)
        with self._alone():
            self._check_up()
            if len(set(chosen)) == len(self.hosts):
                self.kind, self.roce = kind, roce
            self._start(chosen, made_from, roce)

    def resize(self, hosts: int, *, kind: Kind | None = None, boot: Boot | None = None) -> None:
        """Add clean hosts, or end those with the highest numbers, until there are that many."""
        present = len(self.hosts)
        _check_size(hosts, running=min(hosts, present))
        made_from = _template(kind or self.kind, boot) if hosts > present else None
        with self._alone():
            self._check_up()
            for host in self.hosts[hosts:]:
                host.end()
            del self.hosts[hosts:]
            if made_from is not None:
                self._start(range(present + 1, hosts + 1), made_from, self.roce)
            self._write_state()

    def down(self) -> None:
        """End hosts, switch and everything else of this rack."""
        _check_rights()
        if self.folder.exists():
            with self._alone():
                self._end()

    def host(self, number: int) -> Host:
        """The host of that number, from 1."""
        if not 1 <= number <= len(self.hosts):
            raise RackError(f"rack {self.name} has hosts 1 to {len(self.hosts)}, no host {number}")
        return self.hosts[number - 1]

    def write_inventory(self, path: Path = INVENTORY, hosts: Iterable[int] | None = None) -> Path:
        """Write the Ansible inventory of the rack (of some of its hosts) and return its path."""
        chosen = self.hosts if hosts is None else [self.host(number) for number in hosts]
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part-{os.getpid()}")
        part.write_text(inventory(chosen, self.folder / KEY))
        part.rename(path)
        return path

    @property
    def _state_file(self) -> Path:
        return self.folder / "rack.json"

    def _create(self, *, owned: bool) -> None:
        self.folder.mkdir()
        if owned:
            (self.folder / "owner").write_text(f"{os.getpid()} {process.start_time(os.getpid())}")
        # A copy, so that the inventory holds also when the cache is emptied.
        shutil.copy(ssh_key(), self.folder / KEY)
        self.switch.create()

    def _start(self, numbers: Iterable[int], made_from: template.Template, roce: bool) -> None:
        chosen = []
        for number in numbers:
            if number > len(self.hosts):
                self.switch.connect(number)
                self.hosts.append(Host(number, self._netns, self.folder))
            chosen.append(self.hosts[number - 1])
        (self.folder / "known_hosts").write_text("".join(f"{host.known_host()}\n" for host in self.hosts))
        _each(chosen, lambda host: host.start(made_from, roce=roce))
        self._write_state()

    def _check_up(self) -> None:
        if not self._state_file.exists():
            raise RackError(_not_up(self.name))

    def _write_state(self) -> None:
        part = self._state_file.with_suffix(".part")
        part.write_text(json.dumps({"hosts": len(self.hosts), "kind": self.kind, "roce": self.roce}))
        part.rename(self._state_file)

    def _load(self, state: dict[str, Any]) -> None:
        self.kind, self.roce = state["kind"], state["roce"]
        self.hosts = [Host(number, self._netns, self.folder) for number in range(1, state["hosts"] + 1)]

    def _end(self) -> None:
        # By the records, not by `self.hosts`: also what a killed run has left half made is ended.
        for record in self.folder.glob("host*.process"):
            Host(int(record.stem.removeprefix("host")), self._netns, self.folder).end()
        self.switch.remove()
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.hosts = []

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One command at a time changes a rack. The lock's file goes with the rack."""
        path = RACKS / f"{self.name}.lock"
        with contextlib.ExitStack() as stack:
            while True:
                lock = stack.enter_context(open(path, "w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Whoever held it before may have ended the rack and removed the file.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                        break
            try:
                yield
            finally:
                if not self.folder.exists():
                    path.unlink()


def _not_up(name: str) -> str:
    return f"no rack {name!r} is up; start one with `make rack`"


def _check_rights() -> None:
    if RACKS.exists() and not os.access(RACKS, os.R_OK | os.W_OK | os.X_OK):
        raise RackError(f"racks in {RACKS} belong to another user; run this as root, as `make rack` was")


def _template(kind: Kind, boot: Boot | None) -> template.Template:
    wanted = boot or os.environ.get("RACK_BOOT") or "snapshot"
    if wanted not in ("snapshot", "cold"):
        raise RackError(f"RACK_BOOT is {wanted!r}; it may be snapshot or cold")
    return template.frozen(kind) if wanted == "snapshot" else template.cold(kind)


def _each(hosts: list[Host], action: Callable[[Host], None]) -> None:
    with ThreadPoolExecutor(len(hosts)) as pool:
        for done in [pool.submit(action, host) for host in hosts]:
            done.result()


def _check_size(hosts: int, *, running: int = 0) -> None:
    if not 1 <= hosts <= MAX_HOSTS:
        raise RackError(f"a rack has 1 to {MAX_HOSTS} hosts, not {hosts}")
    with open("/proc/meminfo") as meminfo:
        available = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable:")) // 1024
    needed = (hosts - running) * (MEMORY_MIB + 128)
    if available < needed:
        raise RackError(f"{hosts - running} hosts need {needed} MiB of memory, {available} MiB are available")


def _make_racks_folder() -> None:
    RACKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    if RACKS.stat().st_uid != os.geteuid():
        raise RackError(f"{RACKS} belongs to another user; remove it, or run as that user")


def _end_orphans() -> None:
    """End racks whose owner is gone without ending them."""
    for owner in RACKS.glob("*/owner"):
        folder = owner.parent
        if not process.alive(owner):
            say(f"rack: ending rack {folder.name}, which a run that is gone has left")
            Rack(folder.name).down()
