# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section H of the host contract: Docker and the executor's own set-up (section 7). Read only, whatever is found.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._docker import DAEMON_JSON_PATH
from ansible_collections.lium.cluster.plugins.module_utils._firewall import PROBE_TCP_PORT, blocked, input_state
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values, load_json
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, Missing, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import ROCE
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._sockets import UNSEEN, port_holders

TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
PROBE_IMAGE = "daturaai/lium-rdma-probe:0.0.1"
MINIMUM_RENTING_PORTS = 3

_INSTALL = "Run the executor's installer (nvidia_docker_sysbox_setup.sh)"

DOCKER = Check(
    id="docker.present",
    title="Docker answers",
    severity="blocker",
    expected="a running Docker daemon",
    why="rentals are containers; without Docker the executor cannot start",
    source="docker info",
)
DAEMON_JSON = Check(
    id="docker.daemon_json",
    title="Docker's settings",
    severity="blocker",
    expected="valid JSON with the runtimes sysbox-runc and nvidia, native.cgroupdriver=cgroupfs and features.cdi false",
    why="with the systemd cgroup driver a container loses its devices at the next daemon-reload",
    source=DAEMON_JSON_PATH,
)
RESTART_SAFE = Check(
    id="docker.restart_safe",
    title="Docker may be restarted",
    severity="info",
    expected="no container pod_*",
    why="a restart of Docker stops running rentals",
    source="docker ps",
)
SYSBOX = Check(
    id="sysbox.runtime",
    title="Sysbox",
    severity="blocker",
    expected="the runtime sysbox-runc, known to Docker",
    why="validators reject a machine without it",
    source="docker info",
)
TOOLKIT = Check(
    id="nvidia.toolkit",
    title="NVIDIA container toolkit",
    severity="blocker",
    expected="the runtime nvidia, and no-cgroups = false in its config.toml",
    why="without it no pod gets a GPU",
    source=f"docker info, {TOOLKIT_CONFIG}",
)
PORTS = Check(
    id="executor.ports",
    title="Renting ports of the executor",
    severity="blocker",
    expected=f"RENTING_PORT_RANGE or RENTING_PORT_MAPPINGS, not both, with at least {MINIMUM_RENTING_PORTS} ports",
    why="pods are reached over these ports; with fewer the machine is not listed",
    source="the executor's .env",
)
IMAGE = Check(
    id="probe.image_cached",
    title="Image of the platform's RDMA measurement",
    severity="degraded",
    expected=f"{PROBE_IMAGE} present",
    why="the platform gives each command 120 s; pulling the image is the one slow step of its measurement",
    source=f"docker image inspect {PROBE_IMAGE}",
)
TCP = Check(
    id="probe.tcp_18515",
    title="TCP port of the platform's RDMA measurement",
    severity="degraded",
    expected="TCP 18515 free on this host and open between the fabric addresses",
    why="the measurement of every pair shakes hands there first",
    source="/proc/net/tcp, nft -j list ruleset, iptables -S",
)


def docker_present(host: Host) -> Record:
    try:
        version = host.docker_info.get("ServerVersion")
    except ToolMissing:
        return DOCKER.must_fix("docker is not installed", "Install Docker Engine from Docker's repository")
    except CommandError as exc:
        return DOCKER.must_fix(str(exc), "Start it (`systemctl start docker`) and see `journalctl -u docker`")
    return DOCKER.ok(f"version {version}")


def daemon_json_problems(settings: Any) -> list[str]:
    """What the executor's installer would have set and is not there."""
    if not isinstance(settings, dict):
        return ["not a JSON object"]
    runtimes, features = settings.get("runtimes"), settings.get("features")
    runtimes = runtimes if isinstance(runtimes, dict) else {}
    features = features if isinstance(features, dict) else {}
    problems = [f"runtime {name} missing" for name in ("sysbox-runc", "nvidia") if name not in runtimes]
    options = settings.get("exec-opts")
    if not isinstance(options, list) or "native.cgroupdriver=cgroupfs" not in options:
        problems.append("exec-opts lacks native.cgroupdriver=cgroupfs")
    if features.get("cdi") is not False:
        problems.append("features.cdi is not false")
    if settings.get("default-runtime") == "lium-rdma":
        problems.append("default-runtime is lium-rdma, which belongs into the pod's inner Docker only")
    return problems


def daemon_json(host: Host) -> Record:
    try:
        text = host.probe.read(DAEMON_JSON_PATH)
    except Missing:
        return DAEMON_JSON.must_fix(f"{DAEMON_JSON_PATH} does not exist", _INSTALL)
    if not text:
        return DAEMON_JSON.must_fix("the file is empty", f"{_INSTALL}; it merges its keys into the file")
    try:
        settings = load_json(DAEMON_JSON_PATH, text)
    except ParseError as exc:
        return DAEMON_JSON.must_fix(
            str(exc), "Restore the file from its backup or correct it (`python3 -m json.tool` names the place)"
        )
    problems = daemon_json_problems(settings)
    if problems:
        return DAEMON_JSON.must_fix(
            "; ".join(problems), f"{_INSTALL}, or merge these keys into the file without replacing its other ones"
        )
    return DAEMON_JSON.ok("valid, with the executor's keys")


def restart_safe(host: Host) -> Record:
    if not host.occupancy.docker:
        return RESTART_SAFE.skipped("docker is not installed")
    if host.occupancy.unreadable:
        return RESTART_SAFE.unknown(host.occupancy.rented)
    if host.occupancy.rentals:
        return RESTART_SAFE.warn(
            host.occupancy.rented, "Leave Docker and the drivers alone until the rental ends; roles do so by themselves"
        )
    fillers = f", filler job {', '.join(host.occupancy.fillers)}" if host.occupancy.fillers else ""
    return RESTART_SAFE.ok(f"no rental{fillers}")


def _runtimes(host: Host) -> dict[str, Any]:
    runtimes = host.docker_info.get("Runtimes")
    return runtimes if isinstance(runtimes, dict) else {}


def sysbox(host: Host) -> Record:
    try:
        known = _runtimes(host)
    except ToolMissing:
        return SYSBOX.skipped("docker is not installed")
    if "sysbox-runc" in known:
        return SYSBOX.ok("sysbox-runc")
    if host.probe.which("sysbox-runc"):
        return SYSBOX.must_fix(
            f"installed, but Docker knows only {', '.join(known)}",
            f"Add runtimes.sysbox-runc to {DAEMON_JSON_PATH} and restart Docker when no rental runs",
        )
    return SYSBOX.must_fix("not installed", f"{_INSTALL}: it brings Sysbox CE 0.6.6")


def toolkit(host: Host) -> Record:
    try:
        known = _runtimes(host)
    except ToolMissing:
        return TOOLKIT.skipped("docker is not installed")
    if "nvidia" not in known:
        return TOOLKIT.must_fix(
            f"Docker knows only {', '.join(known)}", f"{_INSTALL}: it brings nvidia-container-toolkit"
        )
    try:
        text = host.probe.read(TOOLKIT_CONFIG)
    except Missing:
        return TOOLKIT.must_fix(f"{TOOLKIT_CONFIG} does not exist", _INSTALL)
    match = re.search(r"^\s*no-cgroups\s*=\s*(\w+)", text, re.MULTILINE)
    if match is None or match.group(1) != "false":
        return TOOLKIT.must_fix(
            match.group(0).strip() if match else "no-cgroups is not set", f"Set no-cgroups = false in {TOOLKIT_CONFIG}"
        )
    return TOOLKIT.ok("runtime nvidia, no-cgroups = false")


def renting_ports(text: str) -> set[int]:
    """``9000-9009`` or ``9001,9002`` as host ports; mappings ``[[9001, 19001], ...]`` by their first number."""
    ports: set[int] = set()
    if text.startswith("["):
        rows = load_json("RENTING_PORT_MAPPINGS", text)
        for row in rows if isinstance(rows, list) else []:
            if not isinstance(row, list) or not row or not isinstance(row[0], int):
                raise ParseError("RENTING_PORT_MAPPINGS", "not a list of pairs", str(row))
            ports.add(row[0])
        return ports
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*", part)
        if match is None:
            raise ParseError("RENTING_PORT_RANGE", "not a range of ports", part)
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 < first <= last < 65536:
            raise ParseError("RENTING_PORT_RANGE", "not a range of ports", part)
        ports.update(range(first, last + 1))
    return ports


def executor_ports(host: Host) -> Record:
    if host.executor_env is None:
        return PORTS.skipped("no executor is installed here yet")
    settings = key_values(host.executor_env)
    given = {key: settings[key] for key in ("RENTING_PORT_RANGE", "RENTING_PORT_MAPPINGS") if settings.get(key)}
    if len(given) == 2:
        return PORTS.must_fix("both are set", "Keep one of the two in the executor's .env")
    if not given:
        return PORTS.warn(
            "neither is set: the platform takes all ports as open",
            "Set RENTING_PORT_RANGE in the executor's .env to the ports that your edge forwards, TCP and UDP",
        )
    ((key, value),) = given.items()
    ports = renting_ports(value)
    if len(ports) < MINIMUM_RENTING_PORTS:
        return PORTS.must_fix(f"{key}={value}: {len(ports)} port(s)", f"Give at least {MINIMUM_RENTING_PORTS} ports")
    return PORTS.ok(f"{key}={value}: {len(ports)} ports")


def image_cached(host: Host) -> Record:
    if host.view.kind != ROCE:
        return IMAGE.skipped(f"used on RoCE hosts only (fabric kind {host.view.kind})")
    try:
        done = host.probe.run("docker", "image", "inspect", "--format", "{{.Id}}", PROBE_IMAGE)
    except ToolMissing:
        return IMAGE.skipped("docker is not installed")
    if done.rc == 0:
        return IMAGE.ok("present")
    if "No such image" in done.stderr:
        return IMAGE.warn("not present", f"Run `docker pull {PROBE_IMAGE}` (38 MB)")
    raise CommandError(done.argv, done.first_error)


def tcp_port(host: Host) -> Record:
    if host.view.kind != ROCE:
        return TCP.skipped(f"used on RoCE hosts only (fabric kind {host.view.kind})")
    holders = port_holders(host.probe, "tcp", PROBE_TCP_PORT)
    if holders and not host.occupancy.measuring:
        names = ", ".join(holder or UNSEEN for holder in holders)
        return TCP.must_fix(f"held by {names}", "End the program that listens there, an old ib_write_bw for example")
    tools, blocks = input_state(host, "tcp", PROBE_TCP_PORT)
    if blocks:
        return blocked(TCP, blocks, tools)
    held = "held by the platform's measurement" if holders else "free"
    return TCP.ok(f"{held}; whether it is open between hosts is seen by verify_roce only")


CHECKS = (
    BoundCheck(DOCKER, docker_present),
    BoundCheck(DAEMON_JSON, daemon_json),
    BoundCheck(RESTART_SAFE, restart_safe),
    BoundCheck(SYSBOX, sysbox),
    BoundCheck(TOOLKIT, toolkit),
    BoundCheck(PORTS, executor_ports),
    BoundCheck(IMAGE, image_cached),
    BoundCheck(TCP, tcp_port),
)
