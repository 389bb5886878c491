# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the rules of a packet filter do to the first packet of a peer (host-contract 2.5).

A pod's port is published by Docker: FORWARD path, not INPUT. The measurement's TCP port is the host's own: INPUT.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values

#: Netdevs of containers and virtual machines of this host: no packet of a peer comes in there.
_INSIDE = ("docker", "br-", "lium-rentals", "veth", "virbr", "vnet")
#: Bridges that a pod may be at.
_BRIDGES = ("docker", "br-", "lium-rentals")
#: Where Docker accepts what is sent to a published port. It adds the port's rule when the pod starts.
_DOCKER_ACCEPTS = ("DOCKER", "DOCKER-BRIDGE", "DOCKER-FORWARD")


@dataclasses.dataclass(frozen=True)
class Packet:
    """The first packet of a peer. What is ``None`` is not known, so that a rule about it may stop it or not.

    ``port`` is the one that the peer sends to, ``container_port`` the one behind Docker's DNAT; ``None`` for a packet
    to the host itself. ``netdevs`` are those by which peers come in, ``own`` the addresses of this host.
    """

    protocol: str
    port: int
    container_port: int | None = None
    netdevs: frozenset[str] | None = None
    sources: tuple[ipaddress.IPv4Network, ...] | None = None
    own: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{self.protocol.upper()} {self.port}"

    @property
    def hooks(self) -> tuple[str, ...]:
        return ("ingress", "prerouting", *(("input",) if self.container_port is None else ("forward", "postrouting")))

    def port_at(self, hook: str) -> int:
        behind = hook in ("forward", "postrouting") and self.container_port is not None
        return self.container_port if behind and self.container_port else self.port

    def comes_in_by(self, name: str) -> bool | None:
        """Whether peers come in by a netdev; ``+`` or ``*`` at the end of its name stand for any text."""
        if name == "lo" or name.startswith(_INSIDE):
            return False
        if self.netdevs is None:
            return None
        return _share(fnmatch.fnmatchcase(netdev, _pattern(name)) for netdev in self.netdevs)

    def goes_out_by(self, name: str) -> bool | None:
        if self.container_port is None:
            return False
        return None if name.startswith(_BRIDGES) or fnmatch.fnmatchcase("docker0", _pattern(name)) else False

    def comes_from(self, text: str) -> bool | None:
        network = _network(text)
        if network is None or self.sources is None:
            return None
        if any(network != source and network.subnet_of(source) for source in self.sources):
            return None
        return _share(source.subnet_of(network) for source in self.sources)

    def is_sent_to(self, text: str, hook: str) -> bool | None:
        """Before the DNAT it is sent to an address of this host; behind it to a container's, which is not known."""
        network = _network(text)
        if network is None or self.own is None or hook in ("forward", "postrouting"):
            return None
        return _share(ipaddress.IPv4Address(address) in network for address in self.own)


def _pattern(name: str) -> str:
    return f"{name[:-1]}*" if name.endswith("+") else name


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return None  # a name, a range or IPv6


def _share(hits: Iterable[bool]) -> bool | None:
    """True where all are, False where none is, else None."""
    seen = set(hits)
    return None if len(seen) == 2 else seen == {True}


def negate(applies: bool | None, negated: bool) -> bool | None:
    return None if applies is None else applies != negated


def all_of(conditions: Iterable[bool | None]) -> bool | None:
    """Three-valued "and": False where one is, else None where one is not known."""
    seen = set(conditions)
    return False if False in seen else None if None in seen else True


def any_of(conditions: Iterable[bool | None]) -> bool | None:
    """Three-valued "or"."""
    seen = set(conditions)
    return True if True in seen else None if None in seen else False


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule as it meets the packet. ``applies`` is None where it is limited to what is not known of the packet.

    ``action`` is accept, drop, reject, queue, return, jump or goto; ``text`` says which rule it is, ``chain`` where.
    """

    applies: bool | None
    action: str
    target: str
    chain: str
    text: str


def docker_rule(rule: Rule) -> Rule | None:
    """A rule with Docker's own chains in their place: they accept a pod's port, or leave it to the next rule."""
    if rule.action in ("jump", "goto") and rule.target in _DOCKER_ACCEPTS:
        return dataclasses.replace(rule, applies=rule.applies is not False, action="accept")
    return None if rule.target.startswith("DOCKER-") and rule.target != "DOCKER-USER" else rule


@dataclasses.dataclass(frozen=True)
class Fate:
    """What may become of the packet in a chain: ``accept``, ``drop`` or ``fall`` (through to who jumped there)."""

    ends: frozenset[str]
    drops: tuple[Rule, ...]

    @property
    def stopped(self) -> bool:
        return self.ends == {"drop"}


def fate_in(chains: Mapping[str, Sequence[Rule]], start: str, policy: str) -> Fate:
    """What becomes of the packet in a base chain, with all chains that it jumps to."""
    fate = _walk(chains, start, {})
    end = {"drop" if policy == "drop" else "accept"} if "fall" in fate.ends else set()
    return Fate(fate.ends - {"fall"} | end, fate.drops)


def _walk(chains: Mapping[str, Sequence[Rule]], name: str, known: dict[str, Fate]) -> Fate:
    if name in known:
        return known[name]
    known[name] = Fate(frozenset({"fall"}), ())  # a ring of jumps, which no kernel takes
    ends: set[str] = set()
    drops: list[Rule] = []
    for rule in chains.get(name, ()):
        if rule.applies is False:
            continue
        if rule.action in ("jump", "goto"):
            inner = _walk(chains, rule.target, known)
            drops += [drop for drop in inner.drops if drop not in drops]
            goes_on = rule.action == "jump" and "fall" in inner.ends
            ends |= inner.ends - {"fall"} if rule.action == "jump" else inner.ends
        else:
            goes_on = False
            ends |= {"accept": {"accept"}, "return": {"fall"}, "queue": {"accept", "drop"}}.get(rule.action, {"drop"})
            if rule.action in ("drop", "reject", "queue"):
                drops.append(rule)
        if rule.applies and not goes_on:
            break
    else:
        ends.add("fall")
    known[name] = Fate(frozenset(ends), tuple(drops))
    return known[name]


@dataclasses.dataclass(frozen=True)
class Block:
    """One thing in the way. ``tool`` is whose rule it is: nftables, iptables, ufw or firewalld.

    ``partial`` is for what stops some traffic only: whether it is the peers' cannot be seen from the rules.
    """

    tool: str
    what: str
    fix: str
    partial: bool = False


def partial_block(tool: str, where: str, fate: Fate, packet: Packet) -> Block:
    rules = "; ".join(f"{rule.chain}: {rule.text}" for rule in fate.drops)
    what = f"limits some traffic: {rules}" if rules else f"policy drop, and only some {packet} is accepted"
    proof = "verify_roce" if packet.container_port is None else "verify_wireguard"
    return Block(tool, f"{where}: {what}", f"Run {proof}: it shows whether that is about the other hosts", True)


def ufw_active(text: str) -> bool:
    """``ufw status verbose``: its own deny rules are about INPUT and do not stop a published port."""
    for line in text.splitlines():
        if line.startswith("Status:"):
            return line.split(":", 1)[1].strip() == "active"
    raise ParseError("ufw status", "no status line", text)


def firewalld_zones(text: str) -> dict[str, str]:
    """``firewall-cmd --get-active-zones``: netdev or source -> zone."""
    zones: dict[str, str] = {}
    zone = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            zone = line.split()[0]
        elif line.strip().startswith(("interfaces:", "sources:")):
            for bound in line.partition(":")[2].split():
                zones[bound] = zone
    return zones


def firewalld_strict(text: str) -> bool:
    """``StrictForwardPorts=yes`` in firewalld.conf blocks ports that Docker publishes."""
    return key_values(text).get("StrictForwardPorts", "no").lower() in ("yes", "true")
