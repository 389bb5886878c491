"""One QEMU machine: started cold or from a saved state, spoken to over QMP and over the agent's serial port."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rack import image, process
from tests.rack.errors import RackError
from tests.rack.shell import ending_with_us, run

MEMORY_MIB = 768
#: Interfaces of a host in slot order: management (default route, SSH, WireGuard) and fabric (RDMA).
INTERFACES = ("eth0", "eth1")
HARDWARE = (
    *("-machine", "q35,memory-backend=ram", "-cpu", "Nehalem", "-smp", "1", "-m", str(MEMORY_MIB)),
    *("-accel", "tcg,thread=multi,tb-size=256", "-nodefaults", "-no-user-config", "-display", "none"),
    *("-object", "rng-random,id=entropy,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=entropy"),
    *("-device", "vmgenid,guid=auto"),
)
_KERNEL_LINE = (
    "console=ttyS0 quiet root=/dev/vda rw net.ifnames=0 mitigations=off cryptomgr.notests apparmor=0 audit=0 nokaslr "
    "random.trust_cpu=on tsc=reliable"
)
_MAX_SOCKET_PATH = 100


def qemu_version() -> str:
    """The first line of `qemu-system-x86_64 --version`."""
    return run(["qemu-system-x86_64", "--version"]).splitlines()[0]


class _Channel:
    """Lines of JSON over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._path = path
        self._pending = b""
        while True:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(str(path))
                return
            except OSError as error:
                self._socket.close()
                self.left(error)
                time.sleep(0.02)

    def close(self) -> None:
        self._socket.close()

    def left(self, why: object = "no answer") -> float:
        """Seconds until the deadline; `RackError` when there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise RackError(f"{self._path.name}: {why}; see the .console and .log files in {self._path.parent}")
        return left

    def send(self, message: dict[str, Any]) -> None:
        self._socket.settimeout(self.left())
        # The leading newline ends what an earlier, broken-off request may have left.
        self._socket.sendall(b"\n" + json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._pending:
            self._socket.settimeout(self.left())
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                continue
            except OSError as error:
                raise RackError(f"{self._path.name}: {error}") from error
            if not data:
                raise RackError(f"{self._path.name}: closed by QEMU; see the .log file in {self._path.parent}")
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            return {}  # what the serial port carried before the agent had it
        return message


class Qmp(_Channel):
    """QEMU's control channel."""

    def __init__(self, path: Path, timeout: float = 60.0) -> None:
        super().__init__(path, timeout)
        self.receive()
        self.ask("qmp_capabilities")

    def ask(self, execute: str, **arguments: Any) -> Any:
        self.send({"execute": execute, "arguments": arguments})
        while True:
            answer = self.receive()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise RackError(f"QEMU refused {execute}: {answer['error'].get('desc', answer['error'])}")

    def ignore_shared_memory(self) -> None:
        """Leave the memory out of the saved state: it is in its file. Experimental in QEMU, hence the cold boot."""
        self.ask("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])


@dataclass(frozen=True)
class Machine:
    """A machine by name; all its files and sockets are in `folder`.

    Its interfaces' taps are in the network namespace `netns`; None stands for one of its own, connected to nothing.
    """

    name: str
    folder: Path
    netns: str | None
    taps: tuple[str, ...]
    macs: tuple[str, ...]

    def file(self, suffix: str) -> Path:
        return self.folder / f"{self.name}.{suffix}"

    def start(
        self,
        boot: Path,
        disk: Path,
        memory: Path | None,
        *,
        save_to_memory: bool = False,
        incoming: bool = False,
        with_us: bool = False,
    ) -> None:
        """Start from the kernel in image `boot`, or wait for a state to go on from (`incoming`).

        `memory` is a file, or None for anonymous memory; it is written only if `save_to_memory`. With `with_us` the
        machine ends when this process does.
        """
        longest = self.file("agent")
        if len(str(longest)) > _MAX_SOCKET_PATH:
            raise RackError(f"{longest} is too long for a Unix socket; choose a shorter folder")
        for socket_name in ("agent", "qmp"):
            self.file(socket_name).unlink(missing_ok=True)
        command = ending_with_us() if with_us else []
        command += ["unshare", "--net"] if self.netns is None else ["nsenter", f"--net=/run/netns/{self.netns}"]
        command += self.command(boot, disk, memory, save_to_memory=save_to_memory)
        if incoming:
            command += ["-incoming", "defer"]
        process.start(self.file("process"), command, log=self.file("log"))

    def command(self, boot: Path, disk: Path, memory: Path | None, *, save_to_memory: bool) -> list[str]:
        """The program and its arguments. A saved state fits only the hardware that this line describes."""
        share = "on" if save_to_memory else "off"
        command = ["qemu-system-x86_64", "-name", self.name, *HARDWARE]
        if memory is None:
            command += ["-object", f"memory-backend-ram,id=ram,size={MEMORY_MIB}M"]
        else:
            command += ["-object", f"memory-backend-file,id=ram,size={MEMORY_MIB}M,mem-path={memory},share={share}"]
        command += ["-kernel", str(boot / image.KERNEL), "-initrd", str(boot / image.INITRD), "-append", _KERNEL_LINE]
        command += ["-drive", f"file={disk},if=none,id=disk,cache=unsafe,format=qcow2"]
        command += ["-device", "virtio-blk-pci,drive=disk"]
        for slot, mac in enumerate(self.macs):
            command += ["-netdev", f"tap,ifname={self.taps[slot]},script=no,downscript=no,id=net{slot}"]
            command += ["-device", f"virtio-net-pci,netdev=net{slot},mac={mac},host_mtu=9000,romfile="]
        command += ["-serial", f"file:{self.file('console')}"]
        for name, user in (("agent", ("-serial", "chardev:agent")), ("qmp", ("-mon", "chardev=qmp,mode=control"))):
            command += ["-chardev", f"socket,id={name},path={self.file(name)},server=on,wait=off", *user]
        return command

    def save(self, state: Path) -> None:
        """Stop the machine and write everything but its memory to `state`; the machine ends."""
        with contextlib.closing(Qmp(self.file("qmp"))) as qmp:
            qmp.ask("stop")
            qmp.ignore_shared_memory()
            qmp.ask("migrate", uri=f"exec:cat > '{state}'")
            while (status := qmp.ask("query-migrate").get("status")) != "completed":
                if status in ("failed", "cancelled"):
                    raise RackError(f"QEMU could not save {self.name}: {status}")
                qmp.left()
                time.sleep(0.05)
            qmp.ask("quit")
        self.end()

    def restore(self, state: Path) -> None:
        """Go on from `state` (after `start(..., incoming=True)`)."""
        with contextlib.closing(Qmp(self.file("qmp"))) as qmp:
            qmp.ignore_shared_memory()
            qmp.ask("migrate-incoming", uri=f"exec:cat '{state}'")
            while (status := qmp.ask("query-status")["status"]) != "running":
                if status == "paused":
                    qmp.ask("cont")
                qmp.left("the saved state does not come up")
                time.sleep(0.02)

    def restart(self) -> None:
        """Press the reset button."""
        with contextlib.closing(Qmp(self.file("qmp"))) as qmp:
            qmp.ask("system_reset")

    def agent(self, *, timeout: float, **request: str) -> str:
        """One request (`run=`, `entropy=` or `clock=`) to the agent in guest/; its output, or `RackError`."""
        number = next(_REQUESTS)
        with contextlib.closing(_Channel(self.file("agent"), timeout)) as channel:
            channel.send({"id": number, **request})
            answer: dict[str, Any] = {}
            # Before the agent has it, the port echoes what is sent.
            while answer.get("id") != number or "rc" not in answer:
                answer = channel.receive()
        if answer["rc"] != 0:
            raise RackError(f"{self.name}: set-up failed with {answer['rc']}:\n{answer['out'][-2000:]}")
        return str(answer["out"])

    def wait_for_agent(self, timeout: float) -> None:
        """Wait until the agent answers: the start-up is then over, but for what starts after SSH."""
        deadline = time.monotonic() + timeout
        while not self._agent_answers():
            if not process.alive(self.file("process")) or time.monotonic() > deadline:
                log = self.file("log").read_text(errors="replace")[-1000:] if self.file("log").exists() else ""
                raise RackError(f"{self.name} did not start within {timeout:.0f} s: {log}")

    def _agent_answers(self) -> bool:
        # What is sent before the agent has its port is lost, so each try is short.
        try:
            self.agent(timeout=2.0, run="true")
        except RackError:
            return False
        return True

    def end(self) -> None:
        process.end(self.file("process"))


_REQUESTS = itertools.count(int(time.time() * 1000))
