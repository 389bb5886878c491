# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of each end of a test, native or in the platform's image (host-contract 5.1, 5.2).

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import control_address

#: The container's name. Not the platform's own (``lium_roce_probe``): each leaves the other's alone.
CONTAINER = "lium_roce_verify"


class RailAt(NamedTuple):
    """One rail of a host: device, port, GID index and address, and what it can carry (``None``: not readable).

    ``netdevs`` are the physical ones below it, whose counters are read in an incast.
    """

    device: str
    port: int
    gid_index: int
    address: str
    link_gbps: float | None = None
    slot: tuple[float, int] | None = None
    numa: int | None = None
    netdevs: tuple[str, ...] = ()


class Settings(NamedTuple):
    """How a test is run. The defaults are the platform's own probe: same arguments, same port.

    ``image`` runs it in that container image, which must be there already; ``None`` runs the host's perftest.
    ``incast`` has all others send to one host at a time; ``bidirectional`` lets data flow both ways.
    """

    port: int = 18515
    iterations: int = 1000
    duration_s: int = 0
    qps: int = 1
    tclass: int | None = None
    image: str | None = None
    perftest: str = "ib_write_bw"
    diagnostic: bool = False
    incast: bool = False
    bidirectional: bool = False

    def port_of(self, number: int) -> int:
        """The TCP port of a test: one for all in the platform's mode, else one a rail, or one a sender of an incast."""
        return self.port + number if self.diagnostic else self.port


def perftest(settings: Settings, own: RailAt, number: int, server_address: str | None) -> list[str]:
    """The command of one end, on the port of that number; ``server_address`` makes it the client of that server."""
    if server_address:
        server_address = control_address([server_address])
    port = settings.port_of(number)
    if settings.image:
        role = ["server", str(port), str(settings.iterations)]
        if server_address:
            role = ["client", str(port), str(settings.iterations), server_address]
        return [
            *("docker", "run", "--rm", "--name", CONTAINER, "--network", "host", "--device", "/dev/infiniband"),
            *("--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1", settings.image, *role),
        ]
    argv = [settings.perftest, "-d", own.device, "-i", str(own.port), "-x", str(own.gid_index), "-p", str(port)]
    argv += ["-D", str(settings.duration_s)] if settings.duration_s else ["-n", str(settings.iterations)]
    if settings.qps != 1:
        argv += ["-q", str(settings.qps)]
    if settings.tclass is not None:
        argv.append(f"--tclass={settings.tclass}")
    if settings.bidirectional:
        argv.append("-b")
    if settings.diagnostic:
        argv.append("-F")
    argv.append("--report_gbits")
    return [*argv, server_address] if server_address else argv


def bound_to_node(argv: Sequence[str], numa: int | None, environ: Mapping[str, str]) -> list[str]:
    """The command on the CPUs and memory next to the NIC, where that is known and ``numactl`` is installed."""
    if numa is None or numa < 0 or not shutil.which("numactl", path=environ.get("PATH")):
        return list(argv)
    return ["numactl", f"-N{numa}", f"-m{numa}", *argv]
