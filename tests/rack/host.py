"""One virtual host of a rack."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.rack import process, switch
from tests.rack.errors import RackError
from tests.rack.machine import INTERFACES, Machine
from tests.rack.shell import ENVIRON, run
from tests.rack.template import COLD_BOOT_SECONDS, Template, create_disk
from tools.console import say

#: Interface MTUs of a fresh host: management as everywhere, fabric as RoCE wants it (host-contract 1.D).
MTUS = (1500, 9000)
#: Name of the file with the SSH key in a rack's folder.
KEY = "key"
RDMA_DEVICE, RDMA_NETDEV = "rxe0", INTERFACES[1]
_RESTORE_SECONDS = 150.0


@dataclass(frozen=True)
class Completed:
    """How a command on a host ended."""

    returncode: int
    stdout: str
    stderr: str


class Host:
    """A host by its number in the rack; it is `hostN`, with N as the last part of its addresses.

    What makes it this host (SSH host key, machine id, hardware addresses) stays the same over resets.
    """

    def __init__(self, number: int, netns: str, folder: Path) -> None:
        slots = range(len(INTERFACES))
        self.number = number
        self.name = f"host{number}"
        self.address = switch.address(number, 0)
        self.fabric_address = switch.address(number, 1)
        self._folder = folder
        self._netns = netns
        taps, macs = (tuple(of(number, slot) for slot in slots) for of in (switch.tap, switch.mac))
        self._machine = Machine(self.name, folder, netns, taps, macs)

    def run(self, command: str, *, check: bool = True, timeout: float = 120.0, text: str | None = None) -> Completed:
        """Run shell text as root over SSH, with `text` as its standard input.

        Raises `RackError` when it ends with another code than 0 and `check` is set, or after `timeout` seconds.
        """
        try:
            done = subprocess.run(
                [*self.ssh_command(), command],
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout,
                env=ENVIRON,
            )
        except subprocess.TimeoutExpired as error:
            raise RackError(f"{self.name}: {command!r} has not ended after {timeout:.0f} s") from error
        if check and done.returncode != 0:
            text = (done.stdout + done.stderr)[-2000:].strip()
            raise RackError(f"{self.name}: {command!r} ended with {done.returncode}:\n{text}")
        return Completed(done.returncode, done.stdout, done.stderr)

    def write(self, path: str, content: str, mode: str = "644") -> None:
        """Put a file on the host."""
        quoted = shlex.quote(path)
        self.run(f'mkdir -p "$(dirname {quoted})" && cat > {quoted} && chmod {mode} {quoted}', text=content)

    def console(self, command: str, *, timeout: float = 60.0) -> str:
        """Run shell text as root over the serial port, without network; its output. `RackError` if it fails."""
        return self._machine.agent(timeout=timeout, run=command)

    def add_rdma_device(self, name: str = RDMA_DEVICE, netdev: str = RDMA_NETDEV) -> None:
        """Plug a Soft-RoCE device in on top of a network interface."""
        self.run(f"modprobe rdma_rxe && rdma link add {name} type rxe netdev {netdev}")

    def remove_rdma_device(self, name: str = RDMA_DEVICE) -> None:
        """Pull a Soft-RoCE device out."""
        self.run(f"rdma link delete {name}")

    def start(self, template: Template, *, roce: bool) -> None:
        """Make this host anew and clean, whatever it was before; returns when SSH answers.

        With `roce` it has a Soft-RoCE device on its fabric interface, also after a reboot. If the saved state does not
        come up, the host boots cold.
        """
        self.end()
        disk = self._machine.file("disk.qcow2")
        if template.state is not None and template.memory is not None:
            try:
                create_disk(disk, template.disk)
                self._machine.start(template.boot, disk, template.memory, incoming=True)
                self._machine.restore(template.state)
                self._become_itself(_RESTORE_SECONDS, roce=roce)
                return
            except RackError as error:
                say(f"rack: {self.name}: the saved state does not come up, booting cold ({error})")
                self.end()
        create_disk(disk, template.disk)
        self._machine.start(template.boot, disk, None)
        self._machine.wait_for_agent(COLD_BOOT_SECONDS)
        self._become_itself(COLD_BOOT_SECONDS, roce=roce)

    def reboot(self) -> None:
        """Restart the host from its disk as it is now, and wait for SSH."""
        self._close_connections()
        self._machine.restart()
        self._machine.wait_for_agent(COLD_BOOT_SECONDS)
        self.wait_for_ssh(COLD_BOOT_SECONDS)

    def end(self) -> None:
        """Switch the host off and throw its disk away."""
        self._close_connections()
        self._machine.end()
        self._machine.file("disk.qcow2").unlink(missing_ok=True)

    def alive(self) -> bool:
        """Whether the host is switched on."""
        return process.alive(self._machine.file("process"))

    def wait_for_ssh(self, timeout: float) -> None:
        """Wait until a command over SSH succeeds."""
        deadline = time.monotonic() + timeout
        while True:
            done = self.run("true", check=False, timeout=max(1.0, deadline - time.monotonic()))
            if done.returncode == 0:
                return
            if time.monotonic() > deadline or not self.alive():
                raise RackError(f"{self.name} does not answer SSH within {timeout:.0f} s: {done.stderr.strip()}")
            time.sleep(0.1)

    def ssh_options(self) -> list[str]:
        """Options for `ssh` from outside the namespace; the host key is checked."""
        options = {
            "ControlPath": self.control_path,
            "IdentitiesOnly": "yes",
            "PreferredAuthentications": "publickey",
            "ProxyCommand": f"nsenter --net=/run/netns/{self._netns} busybox nc %h %p",
            "ServerAliveInterval": "30",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": self._folder / "known_hosts",
        }
        return ["-F", "none", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]

    def ssh_command(self) -> list[str]:
        """`ssh` to root on this host, to be followed by a command. Connections are shared and stay open for a while."""
        shared = [
            "-o",
            "ControlMaster=auto",
            "-o",
            "ControlPersist=120",
            "-o",
            "ConnectTimeout=30",
            "-o",
            "BatchMode=yes",
        ]
        return ["ssh", *self.ssh_options(), *shared, "-i", str(self._folder / KEY), f"root@{self.address}"]

    @property
    def control_path(self) -> Path:
        """The socket of the shared SSH connection; closed before the host ends, so that none hangs on a dead host."""
        return self._machine.file("ssh")

    def known_host(self) -> str:
        """This host's line in `known_hosts`; makes its key and machine id when they are not there yet."""
        key = self._machine.file("hostkey")
        if not key.exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key])
            self._machine.file("machine-id").write_text(uuid.uuid4().hex)
        kind, public, _ = key.with_suffix(f"{key.suffix}.pub").read_text().split()
        return f"{self.address} {kind} {public}"

    def _become_itself(self, timeout: float, *, roce: bool) -> None:
        self._machine.agent(timeout=timeout, entropy=secrets.token_hex(64))
        self._machine.agent(timeout=timeout, clock=f"{time.time():.3f}")
        self._machine.agent(timeout=timeout, run=self._identity(roce=roce))
        self.wait_for_ssh(timeout)

    def _identity(self, *, roce: bool) -> str:
        network = ["ip -batch - <<END"]
        for slot, interface in enumerate(INTERFACES):
            network += [
                f"link set {interface} down",
                f"address flush dev {interface}",
                # Before any RDMA device: its GUID and GIDs come from the hardware address.
                f"link set {interface} address {switch.mac(self.number, slot)} mtu {MTUS[slot]} up",
                f"address add {switch.address(self.number, slot)}/24 brd + dev {interface}",
            ]
        network += [f"route replace default via {switch.NETWORKS[0]}.{switch.GATEWAY}", "END"]
        if roce:
            network += ["modprobe rdma_rxe", f"rdma link add {RDMA_DEVICE} type rxe netdev {RDMA_NETDEV}"]
        key = self._machine.file("hostkey")
        files = {
            "/etc/hostname": f"{self.name}\n",
            "/etc/hosts": f"127.0.0.1 localhost\n{self.address} {self.name}\n",
            "/etc/machine-id": f"{self._machine.file('machine-id').read_text()}\n",
            "/etc/ssh/ssh_host_ed25519_key": key.read_text(),
            "/etc/ssh/ssh_host_ed25519_key.pub": key.with_suffix(f"{key.suffix}.pub").read_text(),
            "/etc/rack/network": "\n".join(network) + "\n",
        }
        lines = ["set -e", "umask 077"]
        lines += [f"printf %s {shlex.quote(content)} > {path}" for path, content in files.items()]
        # sshd reads its host key for each connection, so it need not be told.
        lines += ["chmod 644 /etc/hostname /etc/hosts /etc/machine-id", f"hostname {self.name}", ". /etc/rack/network"]
        return "\n".join(lines)

    def _close_connections(self) -> None:
        if self.control_path.exists():
            command = ["ssh", *self.ssh_options(), "-O", "exit", self.address]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, check=False, timeout=10, env=ENVIRON)
            self.control_path.unlink(missing_ok=True)
