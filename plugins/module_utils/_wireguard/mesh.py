# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""A provider's own persistent WireGuard mesh between hosts: what its file holds, and what stands in its way. Pure.

It is not the overlay of cluster pods, which the platform makes inside the pods, and keeps out of its way: another
interface name, another port, another network.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import Interface, is_key

#: First line of every file of ours.
MARK = "# Written by lium.cluster.wireguard; changes are lost."


class MeshError(Exception):
    """The mesh cannot be written as asked for; nothing was written. The text names the hosts."""


@dataclasses.dataclass(frozen=True)
class MeshPeer:
    """Another host of the mesh. ``public_key`` is empty where this run did not learn it."""

    name: str
    address: str
    endpoint: str
    public_key: str = ""


@dataclasses.dataclass(frozen=True)
class MeshInterface:
    """This host's end. ``private_key`` is empty in check mode on a host that has none yet."""

    name: str
    address: str
    network: str
    port: int
    mtu: int
    private_key: str


@dataclasses.dataclass(frozen=True)
class Existing:
    """What a configuration file holds that was there before. Its text is never shown.

    ``keys`` are the peers' public keys: by the peers' names in a file of ours, for an address may move to another host,
    and by their first allowed address in one that names nobody.
    """

    ours: bool
    private_key: str
    keys: Mapping[str, str]

    def key_of(self, peer: MeshPeer) -> str:
        return self.keys.get(peer.name if self.ours else peer.address, "")


def parse_config(text: str) -> Existing:
    """Private key, and the peers' public keys; no text is an error."""
    ours, private_key, peers, remark = text.startswith(MARK), "", [], ""
    for line in text.splitlines():
        name, found, value = line.partition("=")
        key, value = name.strip().lower(), value.split("#")[0].strip()
        if line.startswith("# "):
            remark = line[2:].strip()
        elif line.strip().lower() == "[peer]":
            peers.append({"name": remark})
        elif found and peers:
            peers[-1].setdefault(key, value)
        elif found and key == "privatekey":
            private_key = value
    keys = {
        peer["name"] if ours else peer.get("allowedips", "").split(",")[0].strip().split("/")[0]: peer["publickey"]
        for peer in peers
        if is_key(peer.get("publickey", ""))
    }
    return Existing(ours, private_key if is_key(private_key) else "", keys)


def keys_known(peers: Sequence[MeshPeer], existing: Existing) -> bool:
    """Whether :func:`complete_keys` will find a key for every peer."""
    return all(peer.public_key or existing.key_of(peer) for peer in peers)


def complete_keys(peers: Sequence[MeshPeer], existing: Existing) -> list[MeshPeer]:
    """The peers with their keys: this run's, else those of the file, so that a run on part of the hosts (--limit)
    never loses a peer. A key that nobody knows stops the run."""
    complete = [dataclasses.replace(peer, public_key=peer.public_key or existing.key_of(peer)) for peer in peers]
    missing = [peer.name for peer in complete if not peer.public_key]
    if missing:
        raise MeshError(
            f"no public key of {', '.join(missing)}: run the play on these hosts as well (without --limit), or mend the"
            " way to them; nothing was written"
        )
    wrong = [peer.name for peer in complete if not is_key(peer.public_key)]
    if wrong:
        raise MeshError(f"the public key of {', '.join(wrong)} is no WireGuard key; nothing was written")
    return complete


def check_addresses(interface: MeshInterface, peers: Sequence[MeshPeer], overlay: str = "10.42.0.0/24") -> None:
    """Refuses what WireGuard would take in silence: of two equal allowed addresses only the last peer keeps its."""
    network = ipaddress.ip_network(interface.network)
    if network.overlaps(ipaddress.ip_network(overlay)):
        raise MeshError(f"network {network} overlaps {overlay}, which belongs to the overlay of cluster pods")
    owners: dict[ipaddress.IPv4Address, list[str]] = {}
    for name, text in [("this host", interface.address), *((peer.name, peer.address) for peer in peers)]:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError as exc:
            raise MeshError(f"{name}: {text!r} is not one IPv4 address; a peer gets exactly one (/32)") from exc
        if address not in network:
            raise MeshError(f"{name}: {address} is not in {network}")
        owners.setdefault(address, []).append(name)
    twice = {str(address): names for address, names in owners.items() if len(names) > 1}
    if twice:
        raise MeshError("; ".join(f"{address} belongs to {' and '.join(names)}" for address, names in twice.items()))


def render(interface: MeshInterface, peers: Sequence[MeshPeer]) -> str:
    """The whole file for wg-quick. It has no SaveConfig, which would write an old state over it at the next stop."""
    if not is_key(interface.private_key):
        raise MeshError(f"{interface.name} has no private key; a file without one would take it from the interface")
    prefix = ipaddress.ip_network(interface.network).prefixlen
    lines = [
        MARK,
        "[Interface]",
        f"Address = {interface.address}/{prefix}",
        f"ListenPort = {interface.port}",
        f"MTU = {interface.mtu}",
        f"PrivateKey = {interface.private_key}",
    ]
    for peer in sorted(peers, key=lambda peer: ipaddress.IPv4Address(peer.address)):
        lines += [
            "",
            f"# {peer.name}",
            "[Peer]",
            f"PublicKey = {peer.public_key}",
            f"AllowedIPs = {peer.address}/32",
            f"Endpoint = {peer.endpoint}",
            "PersistentKeepalive = 25",
        ]
    return "\n".join(lines) + "\n"


def foreign_interface(name: str, existing: Existing | None, live: Interface | None, own_public_key: str) -> str:
    """Why an interface of this name is somebody else's and must not be touched; empty when it is ours or free."""
    if existing is not None and not existing.ours:
        return f"/etc/wireguard/{name}.conf was not written by this collection"
    if live is not None and (existing is None or live.public_key != own_public_key):
        return f"{name} is a tunnel of this host already (port {live.listen_port}, {len(live.peers)} peers)"
    return ""


def interface_problems(live: Interface | None, name: str, now: datetime.datetime) -> list[str]:
    """What is wrong with the running mesh, one text a fault."""
    if live is None:
        return [f"{name} is not up"]
    if live.public_key is None:
        return [f"{name} has no private key: no handshake can succeed"]
    return [f"peer {peer.public_key[:8]}… {problem}" for peer in live.peers if (problem := peer.problem(now))]
