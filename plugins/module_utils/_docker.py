# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What runs in Docker on a host, and the idle guard that stands before each disruptive task (host-contract 0.3).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    CommandError,
    HostProbe,
    ProbeError,
    ToolMissing,
)

DAEMON_JSON_PATH = "/etc/docker/daemon.json"
#: The platform's own measurement; RDMA tests stay away while it runs.
MEASUREMENT_CONTAINER = "lium_roce_probe"

_CVM_STATE = "/var/lib/lium-cvm"
#: PCI classes of display controllers and of accelerators.
GPU_CLASSES = ("0x03", "0x12")
#: Virtual machines, as the kernel names their processes; ``qemu-x86_64`` and its like only emulate a program.
_QEMU = ("qemu-system", "qemu-kvm")


class Occupancy(NamedTuple):
    """What keeps a host busy. ``unreadable`` is set when that could not be found out: the host counts as busy then."""

    docker: bool
    rentals: tuple[str, ...]
    fillers: tuple[str, ...]
    measuring: bool
    unreadable: str

    @property
    def rented(self) -> str:
        """Why nothing that could cost a rental may be done; empty on a host without one."""
        if self.unreadable:
            return f"cannot tell whether a rental runs: {self.unreadable}"
        return f"a rental runs ({', '.join(self.rentals)})" if self.rentals else ""

    @property
    def busy_for_tests(self) -> str:
        """Why no RDMA or network test may run; empty when it may."""
        return self.rented or ("the platform is measuring this host" if self.measuring else "")

    @property
    def busy_for_drivers(self) -> str:
        """Why no driver may be reloaded: fillers hold GPUs, so they count here as well."""
        return self.busy_for_tests or (f"a filler job runs ({', '.join(self.fillers)})" if self.fillers else "")


def container_names(probe: HostProbe) -> tuple[str, ...]:
    """Names of the running containers. Raises ToolMissing without Docker, CommandError when it does not answer."""
    return tuple(probe.output("docker", "ps", "--format", "{{.Names}}").split())


def occupancy(probe: HostProbe) -> Occupancy:
    """Who uses the host. Without Docker there can be no rental; a Docker that does not answer hides one."""
    try:
        names = container_names(probe)
    except ToolMissing:
        return Occupancy(False, (), (), False, "")
    except CommandError as exc:
        return Occupancy(True, (), (), False, str(exc))
    return Occupancy(
        docker=True,
        # As `docker ps --filter name=pod_` does, which the platform asks: the text may stand anywhere in the name.
        rentals=tuple(name for name in names if "pod_" in name),
        fillers=tuple(name for name in names if name.startswith("filler_")),
        measuring=MEASUREMENT_CONTAINER in names,
        unreadable="",
    )


def confidential_vm_host(probe: HostProbe) -> str:
    """Why this host belongs to the platform's confidential-VM path, whose set-up no role may touch; else empty.

    Any of the three signs of host-contract 7 is enough: its state, a GPU bound to vfio, a running QEMU.
    """
    signs = []
    if probe.exists(_CVM_STATE):
        signs.append(_CVM_STATE)
    signs += [f"GPU {address} bound to vfio-pci" for address in _gpus_of_vfio(probe)]
    signs += [f"QEMU running (pid {pid})" for pid in _qemu_processes(probe)]
    return f"host for confidential VMs ({', '.join(signs)})" if signs else ""


def _gpus_of_vfio(probe: HostProbe) -> list[str]:
    names = probe.entries_or_none("/sys/bus/pci/drivers/vfio-pci") or []
    devices = [name for name in names if name.count(":") == 2]
    # A device whose class cannot be found out may be a GPU: hands off.
    return [
        name
        for name in devices
        if (probe.read_or_none(f"/sys/bus/pci/devices/{name}/class") or GPU_CLASSES[0]).startswith(GPU_CLASSES)
    ]


def _qemu_processes(probe: HostProbe) -> list[str]:
    found = []
    for pid in probe.entries_or_none("/proc") or []:
        if not pid.isdecimal():
            continue
        try:
            name = probe.read(f"/proc/{pid}/comm")
        except ProbeError:
            continue  # ended meanwhile
        if name.startswith(_QEMU):
            found.append(pid)
    return found
