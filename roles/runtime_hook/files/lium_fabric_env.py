#!/usr/bin/python3
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Names the fabric of a cluster pod for NCCL, and refuses to start a job without one (host-contract 0.1, 3.2).

    lium-fabric-env [env]            the variables, as KEY=VALUE lines
    lium-fabric-env gate             ends with 1 when no RDMA port is active
    lium-fabric-env check            what stands between this pod and a job over RDMA
    lium-fabric-env explain [VALUE]  the ports that a value of NCCL_IB_HCA selects

Ends with 0 when all is well, 1 when the fabric is not usable or could not be read (stderr says why), 2 on wrong use.
Only the standard library: it runs in pods and on hosts that have nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import ipaddress
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

CLASS = "sys/class/infiniband"
OVERLAY = "10.42.0.0/24"
ROCE_V2 = "RoCE v2"
GATE_TRIES = 5
GATE_PAUSE_S = 2.0


class FabricError(Exception):
    """The fabric cannot be named. The text says what was seen and what to do."""


@dataclasses.dataclass(frozen=True)
class Gid:
    """A filled entry of a GID table. ``address`` is the IPv4 address behind it, empty when there is none."""

    index: int
    type: str
    address: str


class Port(NamedTuple):
    """A port of an RDMA device; ``state`` in the words of sysfs without the number (``ACTIVE``, ``DOWN``)."""

    device: str
    number: int
    state: str
    link_layer: str
    gids: tuple[Gid, ...]

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


class Rail(NamedTuple):
    """A port that carries the fabric, with the GID to use."""

    port: Port
    gid: Gid


class Fabric(NamedTuple):
    """``kind`` is ``roce`` or ``infiniband``; InfiniBand has no rails to name. ``notes`` are for people."""

    kind: str
    rails: tuple[Rail, ...]
    notes: tuple[str, ...]


# Reading


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read().strip()


def _attribute(path: str, read: Callable[[str], str]) -> str:
    """An attribute of the kernel; empty where it is missing, or is an empty slot (EINVAL), which is no error."""
    try:
        return read(path)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
            return ""
        raise FabricError(f"{path}: {exc.strerror}; run as root, or make it readable") from exc


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            return []
        raise FabricError(f"{folder}: {exc.strerror}; run as root, or make it readable") from exc


def gid(index: int, value: str, kind: str) -> Gid | None:
    """An entry of a table, from either of its two spellings; None for an empty one."""
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError as exc:
        raise FabricError(f"GID {index} is {value!r}, which is no GID") from exc
    if not int(address):
        return None
    return Gid(index, kind, str(address.ipv4_mapped or ""))


def read_sysfs(root: str = "/", read: Callable[[str], str] = read_text) -> list[Port]:
    """All ports below ``root``; without the tree, or with an empty one, none."""
    ports = []
    for device in _names(os.path.join(root, CLASS)):
        for number in _names(os.path.join(root, CLASS, device, "ports")):
            folder = os.path.join(root, CLASS, device, "ports", number)
            gids = []
            for index in sorted(int(name) for name in _names(f"{folder}/gids") if name.isdecimal()):
                value = _attribute(f"{folder}/gids/{index}", read)
                entry = gid(index, value, _attribute(f"{folder}/gid_attrs/types/{index}", read)) if value else None
                if entry:
                    gids.append(entry)
            state = _attribute(f"{folder}/state", read).partition(":")[2].strip()
            ports.append(Port(device, int(number), state, _attribute(f"{folder}/link_layer", read), tuple(gids)))
    return ports


def parse_ibv_devinfo(text: str) -> list[Port]:
    """Ports in the output of ``ibv_devinfo -v`` (host-contract 3.1). RoCE v1 entries are printed in full, v2 short."""
    ports: list[Port] = []
    device = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "hca_id":
            device = value
        elif key == "port" and device and value.isdecimal():
            ports.append(Port(device, int(value), "", "", ()))
        elif ports and ports[-1].device == device and key == "state":
            named = re.fullmatch(r"PORT_(\w+) \(\d+\)", value)
            ports[-1] = ports[-1]._replace(state=named[1] if named else value)
        elif ports and ports[-1].device == device and key == "link_layer":
            ports[-1] = ports[-1]._replace(link_layer=value)
        else:
            found = re.match(r"\s*GID\[\s*(\d+)\]:\s*([0-9a-fA-F:.]+)(?:, (.+))?$", line)
            entry = gid(int(found[1]), found[2], (found[3] or "").strip()) if found and ports else None
            if entry:
                ports[-1] = ports[-1]._replace(gids=(*ports[-1].gids, entry))
    return ports


def overlay_interface(ip_json: str, overlay: str = OVERLAY) -> str:
    """Name of the interface with an address of the overlay, from ``ip -j addr show``. Names are not to be relied on."""
    network = ipaddress.IPv4Network(overlay)
    rows = interface_addresses(ip_json)
    names = sorted({name for name, address in rows if ipaddress.IPv4Address(address) in network})
    if not names:
        raise FabricError(f"no interface has an address in {overlay}: the overlay is not up; look at `wg show`")
    if len(names) > 1:
        raise FabricError(f"{' and '.join(names)} have an address in {overlay}; keep the overlay's only")
    return names[0]


def interface_addresses(ip_json: str) -> list[tuple[str, str]]:
    """(interface, IPv4 address) rows of ``ip -j addr show``."""
    try:
        rows = json.loads(ip_json)
        return [
            (str(row["ifname"]), str(ipaddress.IPv4Address(entry["local"])))
            for row in rows
            if row  # old versions print empty objects for what a filter left out
            for entry in row.get("addr_info", [])
            if entry.get("family") == "inet"
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise FabricError(f"ip -j addr show: not understood ({exc})") from exc


# Choosing


def segment_of(address: str) -> str:
    """The /24 that the platform takes for an address's segment, whatever its real prefix is (host-contract 0.2, P4)."""
    return str(ipaddress.IPv4Network(f"{address}/24", strict=False))


def peers_segment(endpoints: str) -> str:
    """The segment of the peers' endpoints in ``wg show all endpoints``; empty unless they are in one and the same.

    On RoCE the pods of a cluster dial each other's fabric address, so this is the fabric (host-contract 0.1).
    """
    addresses = re.findall(r"\s(\d{1,3}(?:\.\d{1,3}){3}):\d+$", endpoints, re.MULTILINE)
    segments = {segment_of(address) for address in addresses}
    return segments.pop() if len(segments) == 1 else ""


def rail_gid(port: Port, segment: str = "") -> Gid | None:
    """The first RoCE v2 entry with a usable IPv4 address, on ``segment`` where one is given (host-contract 3.2)."""
    for entry in port.gids:
        if entry.type != ROCE_V2 or not entry.address:
            continue
        address = ipaddress.IPv4Address(entry.address)
        if address.is_link_local or address.is_loopback or address.is_unspecified:
            continue
        if not segment or address in ipaddress.IPv4Network(segment):
            return entry
    return None


def choose(ports: Iterable[Port], segment: str = "") -> Fabric:
    """The fabric of these ports. Raises FabricError where none is usable, or several are and ``segment`` names none."""
    active = [port for port in ports if port.active]
    if not active:
        raise FabricError("no usable RDMA fabric: no port is ACTIVE")
    infiniband = [port.name for port in active if port.link_layer.lower() != "ethernet"]
    if infiniband:
        others = [port.name for port in active if port.name not in infiniband]
        note = f"active InfiniBand port ({infiniband[0]}), so {', '.join(others)} on Ethernet are left alone"
        return Fabric("infiniband", (), (note,) if others else ())
    found = ((port, rail_gid(port, segment)) for port in active)
    rails = sorted((Rail(port, entry) for port, entry in found if entry), key=lambda rail: rail.port[:2])
    if not rails:
        where = f" in {segment}" if segment else ""
        raise FabricError(
            f"no ACTIVE port ({', '.join(port.name for port in active)}) has a RoCE v2 GID of an IPv4 address{where}; "
            "give the fabric's netdev its IPv4 address"
        )
    segments = {segment_of(rail.gid.address): rail.port.name for rail in rails}
    if len(segments) > 1 and not segment:
        seen = ", ".join(f"{name} on {network}" for network, name in sorted(segments.items()))
        raise FabricError(f"cards on several segments ({seen}); name the fabric's with --segment")
    notes = []
    if len({rail.gid.index for rail in rails}) > 1:
        indexes = ", ".join(f"{rail.port.name} {rail.gid.index}" for rail in rails)
        notes.append(f"the rails differ in their GID index ({indexes}): NCCL_IB_GID_INDEX stays unset")
    return Fabric("roce", tuple(rails), tuple(notes))


def environment(fabric: Fabric, interface: str) -> dict[str, str]:
    """The variables. A leading ``=`` asks NCCL for exact names: without it mlx5_1 stands for mlx5_10 as well."""
    variables = {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
    if fabric.rails:
        variables["NCCL_IB_HCA"] = "=" + ",".join(rail.port.name for rail in fabric.rails)
        indexes = {rail.gid.index for rail in fabric.rails}
        if len(indexes) == 1:
            variables["NCCL_IB_GID_INDEX"] = str(indexes.pop())
    return variables


# A user's own NCCL_IB_HCA


def select(value: str, ports: Sequence[Port]) -> list[Port]:
    """The ports that a value of NCCL_IB_HCA selects, as NCCL reads it: ``^`` leaves out, ``=`` wants exact names.

    Raises FabricError naming the token that stands for no device or port, where NCCL would quietly take others.
    """
    rest = value
    exclude, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    tokens = [token for token in rest.split(",") if token]
    hit: set[str] = set()
    for token in tokens:
        name, colon, number = token.partition(":")
        devices = [port for port in ports if (port.device == name if exact else name and port.device.startswith(name))]
        if not devices:
            known = ", ".join(sorted({port.device for port in ports})) or "none"
            raise FabricError(f"NCCL_IB_HCA={value}: {token!r} names no RDMA device (there are: {known})")
        if colon:
            devices = [port for port in devices if number == str(port.number)]
            if not devices:
                raise FabricError(f"NCCL_IB_HCA={value}: {token!r} names a port that {name} does not have")
        hit.update(port.name for port in devices)
    chosen = [port for port in ports if not tokens or (port.name in hit) != exclude]
    if not chosen:
        raise FabricError(f"NCCL_IB_HCA={value}: leaves out every device")
    return chosen


def explain(value: str, ports: Sequence[Port], fabric: Fabric | None) -> list[str]:
    """One line a selected port: whether it is active, and whether it belongs to the fabric where that is known."""
    rails = {rail.port.name for rail in fabric.rails} if fabric else set()
    lines = []
    for port in select(value, ports):
        state = "active" if port.active else f"not active ({port.state or 'state unknown'})"
        where = (", on the fabric" if port.name in rails else ", NOT on the fabric") if rails else ""
        lines.append(f"{port.name}: {state}{where}")
    return lines


# Before a job


def presence(nodes: Iterable[str], devices: Sequence[str]) -> str:
    """What the names in /dev/infiniband and in sysfs say together. An empty /dev alone is no proof of absence."""
    if any(name.startswith("uverbs") for name in nodes):
        return "present"
    if not devices:
        return "absent"
    listed = ", ".join(devices)
    return f"present, not mapped: the host has {listed}, this container no /dev/infiniband/uverbs*; drop --runtime"


def foreign_gids(ports: Iterable[Port], addresses: Iterable[str]) -> list[str]:
    """Ports whose GID is the address of another network namespace: verbs look fine, and no byte may cross."""
    own = set(addresses)
    return [
        f"{port.name}: GID {entry.index} is {entry.address}, no GID of an address in this namespace; "
        "host network (or a function of its own) needed"
        for port in ports
        for entry in [rail_gid(port)]
        if entry and entry.address not in own
    ]


def gate(
    read_ports: Callable[[], Sequence[Port]],
    sleep: Callable[[float], None],
    say: Callable[[str], None],
    tries: int = GATE_TRIES,
) -> bool:
    """Whether a port is active, asked a few times: links come up while a pod starts. What cannot be read is no port."""
    reason = ""
    for attempt in range(tries):
        if attempt:
            sleep(GATE_PAUSE_S)
        try:
            ports = read_ports()
        except FabricError as exc:
            reason = str(exc)
            continue
        if any(port.active for port in ports):
            return True
        states = ", ".join(f"{port.name} {port.state or 'unknown'}" for port in ports)
        reason = f"no port is ACTIVE ({states})" if ports else "no RDMA device"
    say(f"no usable RDMA fabric: {reason}")
    return False


# The edge


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise FabricError(f"{' '.join(argv)}: {exc}") from exc
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise FabricError(f"{' '.join(argv)}: {reason[0]}")
    return done.stdout


def _ports(root: str) -> list[Port]:
    """From sysfs; in a pod its attributes read back empty, and verbs are asked (host-contract 0.2, P8)."""
    ports = read_sysfs(root)
    if ports and not any(port.state for port in ports) and root == "/":
        return parse_ibv_devinfo(_run("ibv_devinfo", "-v"))
    return ports


def _fabric(ports: Sequence[Port], segment: str) -> Fabric:
    try:
        return choose(ports, segment)
    except FabricError:
        try:
            peers = "" if segment else peers_segment(_run("wg", "show", "all", "endpoints"))
        except FabricError:
            peers = ""
        if not peers:
            raise
        return choose(ports, peers)


def _check(
    ports: Sequence[Port], root: str, segment: str, user_value: str, addresses: Iterable[str]
) -> tuple[list[str], list[str]]:
    """What is wrong, and what only traffic can prove; one line each."""
    seen = presence(_names(os.path.join(root, "dev/infiniband")), _names(os.path.join(root, CLASS)))
    problems = [] if seen == "present" else [f"RDMA devices: {seen}"]
    fabric = None
    try:
        fabric = _fabric(ports, segment)
    except FabricError as exc:
        problems.append(str(exc))
    foreign = foreign_gids((rail.port for rail in fabric.rails) if fabric else (), addresses)
    # A cluster pod has verbs without the netdev by design; that works where devices are shared between namespaces.
    shared = _attribute(os.path.join(root, "sys/module/ib_core/parameters/netns_mode"), read_text) == "Y"
    problems += [] if shared else foreign
    if user_value:
        try:
            problems += [line for line in explain(user_value, ports, fabric) if "not active" in line or "NOT" in line]
        except FabricError as exc:
            problems.append(str(exc))
    return problems, foreign if shared else []


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="lium-fabric-env", description=__doc__.splitlines()[0])
    parser.add_argument("verb", nargs="?", choices=("env", "gate", "check", "explain"), default="env")
    parser.add_argument("value", nargs="?", help="value of NCCL_IB_HCA to explain; else the one that is set")
    parser.add_argument("--segment", default="", help="the fabric's network, where cards have addresses in several")
    parser.add_argument("--root", default="/", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)

    def say(text: str) -> None:
        print(f"lium-fabric-env: {text}", file=sys.stderr)

    user_value = environ.get("NCCL_IB_HCA", "") if options.value is None else options.value
    try:
        if options.segment:
            ipaddress.IPv4Network(options.segment)
    except ValueError as exc:
        parser.error(f"--segment: {exc}")
    try:
        if options.verb == "gate":
            return 0 if gate(lambda: _ports(options.root), time.sleep, say) else 1
        ports = _ports(options.root)
        if options.verb == "check":
            addresses = [row[1] for row in interface_addresses(_run("ip", "-j", "addr", "show"))]
            problems, unproven = _check(ports, options.root, options.segment, user_value, addresses)
            for line in problems + [f"proven by traffic only: {line}" for line in unproven]:
                say(line)
            return 1 if problems else 0
        if options.verb == "explain":
            try:
                fabric: Fabric | None = _fabric(ports, options.segment)
            except FabricError:
                fabric = None  # the ports are told all the same
            print("\n".join(explain(user_value, ports, fabric)))
            return 0
        fabric = _fabric(ports, options.segment)
        for key, value in environment(fabric, overlay_interface(_run("ip", "-j", "addr", "show"))).items():
            print(f"{key}={value}")
        for note in fabric.notes:
            say(note)
        if user_value:
            for line in explain(user_value, ports, fabric):
                say(f"your NCCL_IB_HCA={user_value} selects {line}")
    except FabricError as exc:
        say(str(exc))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], os.environ))
