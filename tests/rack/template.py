"""A host that was started once, frozen: what every host of a rack is cloned from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.rack.cache import Cache, digest
from tests.rack.image import DISK, Kind, image
from tests.rack.machine import INTERFACES, Machine, qemu_version
from tests.rack.packages import Say
from tests.rack.shell import run

#: Load what Ansible's modules load, so that each clone finds it in memory.
_WARM_UP = "python3 -c 'import apt, json, platform, ssl, subprocess, zipfile'; systemctl is-system-running --wait; sync"
COLD_BOOT_SECONDS = 240.0


@dataclass(frozen=True)
class Template:
    """`boot` is the image; `disk` what a host's disk starts from; without `state` and `memory` hosts boot cold."""

    boot: Path
    disk: Path
    state: Path | None = None
    memory: Path | None = None


def cold(cache: Cache, say: Say, kind: Kind) -> Template:
    """Hosts that boot from the image itself."""
    boot = image(cache, say, kind)
    return Template(boot, boot / DISK)


def frozen(cache: Cache, say: Say, kind: Kind) -> Template:
    """Hosts that go on from a saved state."""
    boot = image(cache, say, kind)
    nowhere = Path("x")
    command = _machine(nowhere).command(boot, nowhere, nowhere, save_to_memory=True)
    key = digest(qemu_version(), _WARM_UP, command)

    def build(folder: Path) -> None:
        say(f"starting one {kind} host to freeze it")
        _build(boot, folder)

    entry = cache.entry("template", key, build, need_gib=3)
    return Template(boot, entry / "disk.qcow2", entry / "state", entry / "memory")


def create_disk(disk: Path, base: Path) -> None:
    """An empty layer over `base`, which is never written."""
    base_format = "qcow2" if base.suffix == ".qcow2" else "raw"
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", base_format, "-b", base, disk])


def _build(boot: Path, folder: Path) -> None:
    create_disk(folder / "disk.qcow2", boot / DISK)
    with tempfile.TemporaryDirectory(prefix="rack-") as sockets:
        machine = _machine(Path(sockets))
        try:
            machine.start(boot, folder / "disk.qcow2", folder / "memory", save_to_memory=True, with_us=True)
            machine.wait_for_agent(COLD_BOOT_SECONDS)
            machine.agent(timeout=COLD_BOOT_SECONDS, run=f"{_WARM_UP}; true")
            machine.save(folder / "state")
        finally:
            machine.end()


def _machine(folder: Path) -> Machine:
    """The host to freeze: connected to nothing, with addresses that no clone keeps."""
    return Machine("t", folder, None, (), tuple(f"52:54:00:bb:{slot:02x}:00" for slot in range(len(INTERFACES))))
