# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the container runtime (host-contract 6): the hook where it belongs, and nowhere else. Read only.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check, Section, evaluate, skip_all
from ansible_collections.lium.cluster.plugins.module_utils._checks.executor import DAEMON_JSON_PATH
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._facts import host_facts
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, HostProbe, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._runtime.daemon_json import (
    HOST,
    RUNTIME,
    WRAPPER,
    DaemonJsonError,
    default_runtime,
    flag_conflicts,
    load,
    runs_wrapper,
)
from ansible_collections.lium.cluster.plugins.module_utils._runtime.hook import Places

SETTINGS = Places().settings

START = Check(
    id="runtime.docker_start",
    title="Docker would start again",
    severity="blocker",
    expected="daemon.json is valid and sets no key that the command line of dockerd sets as well",
    why="a daemon that runs now stays down after its next restart, with all its containers",
    source=f"{DAEMON_JSON_PATH}, docker.service",
)
DEFAULT = Check(
    id="runtime.default",
    title="Default container runtime",
    severity="blocker",
    expected=f"on a host any but {RUNTIME}; inside a cluster pod {RUNTIME}",
    why="as a host's default it would put the RDMA devices into partial rentals as well, which may not have them",
    source=f"docker info, {DAEMON_JSON_PATH}",
)
HOOK = Check(
    id="runtime.hook",
    title="Runtime for containers with RDMA",
    severity="degraded",
    expected=f"{RUNTIME} known to Docker, its program in place, and a runtime behind it",
    why="containers on it start with the devices, the rights and the limit of locked memory that NCCL needs",
    source=f"docker info, {WRAPPER}, {SETTINGS}",
)


class Subject(NamedTuple):
    """A host, and where the hook is looked for: ``host`` or ``pod``."""

    host: Host
    scope: str

    def settings(self) -> dict[str, Any]:
        """What daemon.json says; without the file nothing. Raises DaemonJsonError."""
        return load(self.host.probe.read_or_none(DAEMON_JSON_PATH) or "")

    def readable_settings(self) -> dict[str, Any]:
        """The same; nothing of a file that `runtime.docker_start` says to be wrong."""
        try:
            return self.settings()
        except DaemonJsonError:
            return {}


def docker_start(subject: Subject) -> Record:
    try:
        settings = subject.settings()
    except DaemonJsonError as exc:
        return START.must_fix(str(exc), f"Correct {DAEMON_JSON_PATH}, then `systemctl restart docker` on an idle host")
    try:
        unit = subject.host.probe.output("systemctl", "cat", "docker.service")
    except ToolMissing:
        return START.skipped("there is no unit of Docker to compare with")
    except CommandError as exc:
        if "No files found" in str(exc):
            return START.skipped("there is no unit of Docker to compare with")
        raise
    starts = [line for line in unit.replace("\\\n", " ").splitlines() if line.startswith("ExecStart=/")]
    both = flag_conflicts(settings, starts[-1]) if starts else []
    if both:
        return START.must_fix(
            f"set in both: {', '.join(both)}",
            f"Take {', '.join(both)} out of {DAEMON_JSON_PATH}, or out of the unit with a drop-in for docker.service",
        )
    return START.ok("valid, no key set twice")


def default(subject: Subject) -> Record:
    in_file = subject.readable_settings()
    named = default_runtime(in_file)
    ours = runs_wrapper(in_file, named)
    where = DAEMON_JSON_PATH
    # On a host either is one too many; in a pod it is Docker that starts the containers, whatever the file says.
    if not ours or subject.scope != HOST:
        try:
            info = subject.host.docker_info
        except ToolMissing:
            return DEFAULT.skipped("docker is not installed")
        named = str(info.get("DefaultRuntime", ""))
        known = info.get("Runtimes")
        ours = runs_wrapper({"runtimes": known if isinstance(known, dict) else {}}, named)
        where = "docker info"
    if subject.scope == HOST and ours:
        return DEFAULT.must_fix(
            f"{named} ({where})",
            f"Set default-runtime in {DAEMON_JSON_PATH} back to what it was (runc, or nvidia) and reload Docker",
        )
    if subject.scope != HOST and not ours:
        return DEFAULT.must_fix(named, "Run the role runtime_hook with scope pod inside the pod")
    return DEFAULT.ok(named)


def hook(subject: Subject) -> Record:
    probe = subject.host.probe
    try:
        known = subject.host.docker_info.get("Runtimes")
    except ToolMissing:
        return HOOK.skipped("docker is not installed")
    again = "Run the role runtime_hook again"
    if not isinstance(known, dict) or RUNTIME not in known:
        if RUNTIME in subject.readable_settings().get("runtimes", {}):
            return HOOK.must_fix(f"{DAEMON_JSON_PATH} names {RUNTIME}, which Docker has not read", again)
        if subject.scope == HOST:
            return HOOK.skipped("not installed; a host needs it for containers of its own only")
        return HOOK.must_fix("not installed", "Run the role runtime_hook with scope pod inside the pod")
    if not probe.exists(WRAPPER):
        return HOOK.must_fix(f"Docker knows {RUNTIME}, but {WRAPPER} does not exist", again)
    if not probe.stat(WRAPPER).st_mode & 0o111:
        return HOOK.must_fix(f"{WRAPPER} may not be executed", again)
    words = [
        line.partition("=")[2]
        for line in (probe.read_or_none(SETTINGS) or "").splitlines()
        if line.startswith("runtime=")
    ] or ["runc"]
    there = probe.exists(words[0]) if words[0].startswith("/") else probe.which(words[0])
    if not there:
        return HOOK.must_fix(f"{words[0]}, the runtime behind {RUNTIME}, is not there", f"Install it. {again}")
    if words[0].rsplit("/", 1)[-1] == WRAPPER.rsplit("/", 1)[-1]:
        return HOOK.must_fix(f"{SETTINGS} makes {RUNTIME} call itself", again)
    return HOOK.ok(f"{RUNTIME}, with {' '.join(words)} behind it")


SECTIONS = (
    Section(
        "container runtime", (BoundCheck(START, docker_start), BoundCheck(DEFAULT, default), BoundCheck(HOOK, hook))
    ),
)


def look_at_runtime(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Records of the checks ``runtime.*``; the facts say whether the host is rented."""
    # What a tenant runs in a pod is the tenant's own.
    confidential = confidential_vm_host(probe) if options["scope"] == HOST else ""
    if confidential:
        return Look(skip_all(SECTIONS, confidential), {"kept_out": confidential})
    host = Host(probe)
    return Look(evaluate(SECTIONS, Subject(host, options["scope"])), host_facts(host))
