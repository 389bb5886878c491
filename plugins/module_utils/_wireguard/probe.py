# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Proves UDP ports between hosts by real WireGuard handshakes, in four steps (host-contract 2.6).

``open``: receivers that have no endpoint and so can only be called, and a sender, each with a throw-away key.
``join``: every host learns the public keys of the others.
``call``: every host calls the others in its order of the timetable; a direction counts only if both ends saw it.
``close``: what was seen is collected and everything is taken away.

The keys live in the kernel's interfaces alone. One container serves receivers and sender: the sender's socket has a
port of its own that is not published, so it opens no way in for anybody.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import Address
from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import Interface, parse_dump
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import holder, netns
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import Place, SetupError

#: First port of the receivers inside the container, as in every cluster pod.
CONTAINER_PORT = 51820
#: Third octet of the probe's own addresses 10.42.x.n: one for the senders, one for each probed port.
SENDER_OCTET, RECEIVER_OCTETS = 254, (255, 253, 252, 251, 250)
#: WireGuard tries again after 5 s, so this allows two attempts.
DEADLINE_S = 10.0
#: Each step may take the lifetime anew; the container, whose end is fixed at its start, must outlive them all.
_STEPS = 5
MAX_HOSTS = 254


@dataclasses.dataclass(frozen=True)
class Member:
    """A host as the others see it. ``keys`` are those of its receivers, in the order of ``ports``."""

    name: str
    number: int
    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    keys: tuple[str, ...]
    sender_key: str

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Member:
        return cls(
            name=row["name"],
            number=int(row["number"]),
            addresses=tuple(row["addresses"]),
            ports=tuple(row["ports"]),
            keys=tuple(row["keys"]),
            sender_key=row["sender_key"],
        )


def sender_address(number: int) -> str:
    return f"10.42.{SENDER_OCTET}.{number}"


def receiver_address(number: int, port_index: int) -> str:
    return f"10.42.{RECEIVER_OCTETS[port_index]}.{number}"


def wire_addresses(addresses: Sequence[Address]) -> list[str]:
    """IPv4 addresses of this host that stand on a wire, and not on a bridge of Docker's or on loopback."""
    inner = ("lo", "docker", "br-", "veth", netns.RENTAL_NETWORK)
    return [row.address for row in addresses if ":" not in row.address and not row.netdev.startswith(inner)]


def open_probe_ports(
    number: int, ports: Sequence[int], own_addresses: Sequence[str], docker: bool, lifetime: float
) -> dict[str, Any]:
    """Step ``open``. Answers the public keys and the path that is tested. Everything ends when no step has come for
    ``lifetime`` seconds. Raises SetupError or holder.Busy."""
    if not 1 <= number <= MAX_HOSTS:
        raise SetupError(f"host number {number}: a probe takes at most {MAX_HOSTS} hosts")
    if not 1 <= len(ports) <= len(RECEIVER_OCTETS):
        raise SetupError(f"{len(ports)} ports: a probe takes 1 to {len(RECEIVER_OCTETS)}")
    lock = holder.take_lock()
    netns.close_place(docker)  # the lock is ours, so whatever is here was left by a probe that was killed
    shutil.rmtree(holder.FOLDER, ignore_errors=True)
    try:
        publish = [(port, CONTAINER_PORT + index) for index, port in enumerate(ports)]
        place = netns.open_place(docker, publish, int(lifetime) * _STEPS)
        keys = []
        for index, (host_port, container_port) in enumerate(publish):
            listen = host_port if place.pid is None else container_port
            keys.append(netns.add_interface(place, f"{netns.RECEIVER}{index}", receiver_address(number, index), listen))
        sender_key = netns.add_interface(place, netns.SENDER, sender_address(number), None)
        found = holder.leave_behind(lock, own_addresses, ports, lifetime, lambda: netns.close_place(docker))
    except BaseException:
        netns.close_place(docker)
        os.close(lock)
        raise
    os.close(lock)  # the holder has it
    state = {"holder": found, "path": place.path, "pid": place.pid, "docker": docker, "ports": list(ports)}
    holder.write_state("state.json", {**state, **holder.lease(lifetime)})
    return {"keys": keys, "sender_key": sender_key, "path": place.path}


def _state() -> dict[str, Any]:
    state = holder.read_state("state.json")
    if not isinstance(state, dict):
        raise SetupError("no probe is open on this host: it ended, or its first step failed")
    if holder.start_time(int(state["holder"]["pid"])) != state["holder"]["start"]:
        raise SetupError("the probe on this host has ended before its time was up")
    holder.renew(state)
    return state


def join(others: Sequence[Member]) -> None:
    """Step ``join``: lets the others call. No endpoint is set, so this end can call nobody through a receiver."""
    state = _state()
    place = Place(state["path"], state["pid"])
    for index in range(len(state["ports"])):
        for other in others:
            netns.add_peer(place, f"{netns.RECEIVER}{index}", other.sender_key, sender_address(other.number), None)


def call(others: Sequence[Member], clock: Callable[[], float] = time.monotonic) -> list[dict[str, Any]]:
    """Step ``call``: one directed test after the other; answers one row for each."""
    state = _state()
    place = Place(state["path"], state["pid"])
    rows = []
    for other in others:
        holder.renew(state)
        for address in other.addresses:
            for index, port in enumerate(other.ports):
                rows.append(_call_one(place, other, address, index, port, clock))
    return rows


def _call_one(
    place: Place, other: Member, address: str, index: int, port: int, clock: Callable[[], float]
) -> dict[str, Any]:
    key, target = other.keys[index], receiver_address(other.number, index)
    netns.add_peer(place, netns.SENDER, key, target, f"{address}:{port}")
    handshake, rtt = False, None
    end = clock() + DEADLINE_S
    while not (handshake and rtt is not None) and clock() < end:
        rtt = _ping(place, target)
        handshake = any(peer.public_key == key and peer.latest_handshake for peer in _sender(place).peers)
    peers = {peer.public_key: peer for peer in _sender(place).peers}
    row = {
        "to": other.name,
        "address": address,
        "port": port,
        "handshake": handshake,
        "rtt_ms": rtt,
        "rx_bytes": peers[key].rx_bytes if key in peers else 0,
        "tx_bytes": peers[key].tx_bytes if key in peers else 0,
        "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **({"udp_error": "", "tcp": ""} if handshake else ask(place, address, port)),
    }
    netns.remove_peer(place, netns.SENDER, key)
    return row


def _sender(place: Place) -> Interface:
    text = netns.run(place.command("wg", "show", netns.SENDER, "dump"))
    return parse_dump(text, netns.SENDER)[0]


def _ping(place: Place, target: str) -> float | None:
    """One echo through the tunnel, which makes WireGuard call. Its round trip in ms, None without an answer."""
    try:
        text = netns.run(place.command("ping", "-n", "-c", "1", "-W", "1", target))
    except SetupError:
        return None
    match = re.search(r"time[=<]([0-9.]{1,12}) ms", text)
    return float(match.group(1)) if match else None


#: Answers what the network says to a stray datagram and to a TCP connection. It runs where the sender's socket is, so
#: that its packets take the same way through this host's firewall.
_ASK = """
import json, socket, sys
address, port = sys.argv[1], int(sys.argv[2])
found = {"udp_error": "", "tcp": "open"}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stray:
    stray.settimeout(1)
    try:
        stray.connect((address, port))
        stray.send(b"\\0")
        stray.recv(1)
    except socket.timeout:
        pass
    except ConnectionRefusedError:
        found["udp_error"] = "ECONNREFUSED"
    except OSError as exc:
        found["udp_error"] = exc.strerror or str(exc)
try:
    socket.create_connection((address, port), 1).close()
except ConnectionRefusedError:
    found["tcp"] = "refused"
except OSError:
    found["tcp"] = "silent"
print(json.dumps(found))
"""


def ask(place: Place, address: str, port: int) -> dict[str, str]:
    """Why a call failed, as far as a socket can know: ``udp_error`` (a refusal, or nothing, which proves nothing) and
    ``tcp`` (``open``, ``refused`` or ``silent``; it says nothing about UDP)."""
    answer = json.loads(netns.run(place.command(sys.executable, "-c", _ASK, address, str(port))))
    return {"udp_error": str(answer["udp_error"]), "tcp": str(answer["tcp"])}


def close(others: Sequence[Member]) -> dict[str, Any]:
    """Step ``close``: what this host's receivers and its wire saw; everything is taken away, whatever fails."""
    state = holder.read_state("state.json")
    received: list[dict[str, Any]] = []
    if not isinstance(state, dict):
        return {"received": received, "wire": [], "path": ""}
    try:
        place = Place(state["path"], state["pid"])
        received = _received(place, state["ports"], others)
    except SetupError:
        received = []  # the probe ended early; the callers' ends say so as well
    finally:
        if not holder.end_holder(state["holder"]):
            netns.close_place(state["docker"])
    wire = holder.read_state("wire.json") or []
    shutil.rmtree(holder.FOLDER, ignore_errors=True)
    return {"received": received, "wire": wire, "path": state["path"]}


def _received(place: Place, ports: Sequence[int], others: Sequence[Member]) -> list[dict[str, Any]]:
    names = {other.sender_key: other.name for other in others}
    rows = []
    for index, port in enumerate(ports):
        name = f"{netns.RECEIVER}{index}"
        (interface,) = parse_dump(netns.run(place.command("wg", "show", name, "dump")), name)
        rows += [
            {
                "from": names[peer.public_key],
                "port": port,
                "handshake": peer.latest_handshake is not None,
                "rx_bytes": peer.rx_bytes,
                "endpoint": peer.endpoint,
            }
            for peer in interface.peers
            if peer.public_key in names
        ]
    return rows
