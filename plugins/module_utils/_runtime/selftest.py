# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The runtime tried with real containers (host-contract 6.6): one on it, and one on runc that must get nothing of it.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._docker import occupancy
from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    CommandError,
    CommandTimeout,
    HostProbe,
    ToolMissing,
)
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._runtime.daemon_json import HOST, RUNTIME

CONTAINER = "lium_hook_selftest"
DEVICES = "/dev/infiniband"
#: What the containers print: the devices that they have, one a line, and last the limit of locked memory.
_LOOK = f"ls {DEVICES} 2>/dev/null; ulimit -l"
#: Time for Docker to unpack and start a small container on a busy host.
_LIMIT_S = 120.0

SELFTEST = Check(
    id="runtime.selftest",
    title="A container on the runtime has what NCCL needs",
    severity="degraded",
    expected="all uverbs devices and rdma_cm, no umad or issm, locked memory unlimited; with runc none of the devices",
    why="a job in a container without them falls back to TCP, or does not start",
    source=f"docker run --runtime {RUNTIME}, docker run --runtime runc",
)


class Inside(NamedTuple):
    """What a container sees."""

    devices: frozenset[str]
    memlock: str

    def __str__(self) -> str:
        return f"{', '.join(sorted(self.devices)) or 'no device'}; locked memory {self.memlock}"


def selftest(probe: HostProbe, image: str, scope: str, *, devices: str = DEVICES) -> Record:
    """The record of both containers. Starts nothing where a rental runs; leaves no container behind, whatever fails.

    ``image`` is one that Docker has already (nothing is pulled), with ``sh`` and ``ls`` in it. ``devices`` is the
    folder from which the hook gives.
    """
    rented = occupancy(probe).rented
    if rented and scope == HOST:
        return SELFTEST.skipped(rented)
    try:
        nodes = {name for name in probe.entries_or_none(devices) or [] if not name.startswith("by-")}
        wanted = frozenset(name for name in nodes if name.startswith("uverbs") or name == "rdma_cm")
        if not wanted:
            return SELFTEST.skipped(f"there is no device in {devices} to give")
        # In a pod the runtime is the default, and whether it is belongs to the test.
        with_hook = _run(probe, image, ("--runtime", RUNTIME) if scope == HOST else ())
        without = _run(probe, image, ("--runtime", "runc"))
    except ToolMissing:
        return SELFTEST.skipped("docker is not installed")
    except CommandTimeout as exc:
        return SELFTEST.unknown(
            str(exc), "See why Docker does not start a container (docker info, journalctl -u docker)"
        )
    except CommandError as exc:
        return SELFTEST.must_fix(str(exc), f"See that Docker has the image {image} and knows {RUNTIME}, then try again")
    faults = _faults(with_hook, without, wanted)
    if not faults:
        return SELFTEST.ok(f"{RUNTIME}: {with_hook}; runc: {without}")
    return SELFTEST.must_fix(
        f"{'; '.join(fault for fault, _ in faults)} ({RUNTIME}: {with_hook}; runc: {without})",
        "; ".join(dict.fromkeys(fix for _, fix in faults)),
    )


def _faults(with_hook: Inside, without: Inside, wanted: frozenset[str]) -> list[tuple[str, str]]:
    """What is wrong, each with what mends it."""
    again = "Run the role runtime_hook again"
    found = []
    if missing := wanted - with_hook.devices:
        found.append((f"{', '.join(sorted(missing))} missing", again))
    if more := {name for name in with_hook.devices if name.startswith(("umad", "issm"))}:
        found.append((f"{', '.join(sorted(more))} given, which manage the fabric", again))
    if with_hook.memlock != "unlimited":
        found.append(
            (
                f"locked memory limited to {with_hook.memlock}",
                "Let the Docker daemon itself lift the limit (LimitMEMLOCK=infinity, CAP_SYS_RESOURCE)",
            )
        )
    if without.devices:
        found.append(
            (
                "runc gives the devices too, so the test proves nothing",
                "Find what else hands out the devices, then test again",
            )
        )
    return found


def _run(probe: HostProbe, image: str, runtime: tuple[str, ...]) -> Inside:
    """One container of the host's network, as the hook acts on those; it is gone when this returns."""
    start = ("docker", "run", "--rm", "--pull", "never", "--name", CONTAINER, "--network", "host", *runtime)
    try:
        lines = probe.output(*start, "--entrypoint", "sh", image, "-c", _LOOK, timeout=_LIMIT_S).split()
    except CommandTimeout:
        probe.run("docker", "rm", "--force", CONTAINER)
        raise
    return Inside(frozenset(lines[:-1]), lines[-1] if lines else "unknown")
