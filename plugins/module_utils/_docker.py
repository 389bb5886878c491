# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What runs in Docker on a host, and the idle guard that stands before each disruptive task (host-contract 0.3).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, HostProbe, ToolMissing

#: The platform's own measurement; RDMA tests stay away while it runs.
MEASUREMENT_CONTAINER = "lium_roce_probe"


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
    """Why this host belongs to the platform's confidential-VM path, whose set-up no role may touch; else empty."""
    if probe.exists("/var/lib/lium-cvm"):
        return "host for confidential VMs (/var/lib/lium-cvm)"
    return ""
