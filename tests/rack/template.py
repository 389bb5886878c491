"""A host that was started once, frozen: what every host of a rack is cloned from."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.rack import switch
from tests.rack.cache import entry
from tests.rack.image import DISK, Kind, image
from tests.rack.machine import INTERFACES, Machine, qemu_version
from tests.rack.shell import run
from tools.console import say

#: Use what each clone will use first (a login, Ansible's imports, the module of Soft-RoCE), so that it is in memory.
_WARM_UP = """
systemctl is-system-running --wait
ssh-keygen -q -t ed25519 -N '' -f /tmp/key && cp /root/.ssh/authorized_keys /tmp/authorized_keys
cat /tmp/key.pub >> /root/.ssh/authorized_keys
ssh -i /tmp/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null 127.0.0.1 true || exit
cat /tmp/authorized_keys > /root/.ssh/authorized_keys && rm /tmp/key /tmp/key.pub /tmp/authorized_keys
modprobe rdma_rxe && modprobe --remove rdma_rxe && lsmod && rdma link && ip -brief link && date
python3 -c 'import apt, json, platform, ssl, subprocess, zipfile'
sync
"""
COLD_BOOT_SECONDS = 480.0


@dataclass(frozen=True)
class Template:
    """`boot` is the image; `disk` what a host's disk starts from; without `state` and `memory` hosts boot cold."""

    boot: Path
    disk: Path
    state: Path | None = None
    memory: Path | None = None


def cold(kind: Kind) -> Template:
    """Hosts that boot from the image itself."""
    boot = image(kind)
    return Template(boot, boot / DISK)


def frozen(kind: Kind) -> Template:
    """Hosts that go on from a saved state."""
    boot = image(kind)
    nowhere = Path("x")
    command = _machine(nowhere).command(boot, nowhere, nowhere, save_to_memory=True)
    made_from = [part.encode() for part in (qemu_version(), _WARM_UP, *command)]

    def build(folder: Path) -> None:
        say(f"rack: starting one {kind} host to freeze it")
        _build(boot, folder)

    made = entry("template", made_from, build, need_gib=3)
    return Template(boot, made / "disk.qcow2", made / "state", made / "memory")


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
            machine.agent(timeout=COLD_BOOT_SECONDS, run=_WARM_UP)
            machine.save(folder / "state")
        finally:
            machine.end()


def _machine(folder: Path) -> Machine:
    """The host to freeze: connected to nothing, with addresses that no clone keeps."""
    slots = range(len(INTERFACES))
    return Machine("t", folder, None, tuple(f"t{slot}" for slot in slots), tuple(switch.mac(0, slot) for slot in slots))
