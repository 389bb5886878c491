# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``nft -j list ruleset`` (host-contract 2.5).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    Fate,
    Packet,
    Rule,
    all_of,
    any_of,
    docker_rule,
    fate_in,
    negate,
    partial_block,
)

_TOOL = "nft -j list ruleset"
#: Families whose chains see a packet of IPv4.
_FAMILIES = ("ip", "inet", "netdev")
#: Docker's table where it speaks nftables itself; a pod's rule is added when the pod starts.
_DOCKER_TABLE = ("ip", "docker-bridges")
#: Statements that let a rule take only a part of the packets.
_LIMITS = {"xt", "limit", "quota", "ct count", "meter"}
_VERDICTS = ("accept", "drop", "reject", "queue", "return", "jump", "goto")
_NUMBERS = {"tcp": 6, "udp": 17}


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a rule stands, and what it may refer to: the table's sets and verdict maps."""

    family: str
    table: str
    hook: str
    sets: dict[tuple[str, str, str], Any]
    packet: Packet

    def named(self, value: Any) -> Any:
        """A set or map in place of its name ``@name``; None, which is not understood, where the listing has none."""
        if isinstance(value, str) and value.startswith("@"):
            return self.sets.get((self.family, self.table, value[1:]))
        return value


def nft_blocks(text: str, packet: Packet, iptables_read: bool = False) -> list[Block]:
    """Rules and policies that stop the packet on its way.

    All base chains on a hook must accept, so a second table's policy counts even where Docker's own table accepts.
    ``iptables_read`` leaves the chains of iptables to ``iptables -S``, which shows all of what they match.
    """
    answer = load_json(_TOOL, text)
    objects = answer.get("nftables") if isinstance(answer, dict) else None
    if not isinstance(objects, list):
        raise ParseError(_TOOL, "no list of objects", text)
    sets = {
        (*_table(row), str(row.get("name", ""))): row.get("elem", [])
        for kind in ("set", "map")
        for row in _rows(objects, kind)
    }
    rules = list(_rows(objects, "rule"))
    blocks = []
    for chain in _rows(objects, "chain"):
        family, table = _table(chain)
        hook, name = str(chain.get("hook", "")), str(chain.get("name", ""))
        if hook not in packet.hooks or family not in _FAMILIES or (family, table) == _DOCKER_TABLE:
            continue
        of_iptables = (family, table) == ("ip", "filter") and name in ("FORWARD", "INPUT")
        if of_iptables and iptables_read:
            continue
        # Docker sets the policy of its own FORWARD chain to drop, which is as it should be.
        policy = "accept" if of_iptables and name == "FORWARD" else str(chain.get("policy", "accept"))
        place = _Place(family, table, hook, sets, packet)
        chains: dict[str, list[Rule]] = {}
        for row in rules:
            if _table(row) == (family, table):
                chains.setdefault(str(row.get("chain", "")), []).extend(_rules(row, place))
        fate = fate_in(chains, name, policy)
        if hook == "ingress":  # of one netdev only
            fate = dataclasses.replace(fate, ends=fate.ends | {"accept"})
        if "drop" in fate.ends:
            blocks.append(_block(f"{family} {table} {name}", fate, place))
    return blocks


def _rows(objects: list[Any], kind: str) -> Iterator[dict[str, Any]]:
    for row in objects:
        if isinstance(row, dict) and kind in row:
            if not isinstance(row[kind], dict):
                raise ParseError(_TOOL, "not an object", str(row))
            yield row[kind]


def _table(row: dict[str, Any]) -> tuple[str, str]:
    return str(row.get("family", "")), str(row.get("table", ""))


def _block(where: str, fate: Fate, place: _Place) -> Block:
    if not fate.stopped:
        return partial_block("nftables", where, fate, place.packet)
    port = f"{place.packet.protocol} dport {place.packet.port_at(place.hook)}"
    if fate.drops and fate.drops[-1].applies:
        rule = fate.drops[-1]
        place_of_rule = f" (in {rule.chain})" if rule.chain != where else ""
        fix = f"Take that rule ({rule.text}) out of {rule.chain}, or put `{port} accept` before it"
        return Block("nftables", f"{where}: a rule {rule.action}s {place.packet}{place_of_rule}", fix)
    what = f"{where}: policy drop and no rule that accepts {place.packet}"
    return Block("nftables", what, f"Add `{port} accept` and `ct state established,related accept` to {where}")


def _rules(row: dict[str, Any], place: _Place) -> Iterator[Rule]:
    """A rule; one with a verdict map is a rule for each of its elements."""
    expression = row.get("expr", [])
    if not isinstance(expression, list):
        raise ParseError(_TOOL, "a rule without expressions", str(row))
    parts = [part for part in expression if isinstance(part, dict)]
    conditions = [_matches(part["match"], place) for part in parts if "match" in part]
    conditions += [None for part in parts if _LIMITS & set(part)]
    where, handle = f"{place.family} {place.table} {row.get('chain', '')}", row.get("handle")
    for applies, action, target in _verdicts(parts, all_of(conditions), place):
        rule = docker_rule(Rule(applies, action, target, where, f"{action}, handle {handle}" if handle else action))
        if rule:
            yield rule


def _verdicts(
    parts: list[dict[str, Any]], applies: bool | None, place: _Place
) -> Iterator[tuple[bool | None, str, str]]:
    for part in parts:
        for action in _VERDICTS:
            if action in part:
                yield applies, action, _target(part[action])
        vmap = part.get("vmap")
        if not isinstance(vmap, dict):
            continue
        elements = place.named(vmap.get("data"))
        elements = elements.get("set") if isinstance(elements, dict) else elements
        for element in elements if isinstance(elements, list) else []:
            if isinstance(element, list) and len(element) == 2 and isinstance(element[1], dict):
                hit = _matches({"op": "==", "left": vmap.get("key"), "right": element[0]}, place)
                for action in _VERDICTS:
                    if action in element[1]:
                        yield all_of((applies, hit)), action, _target(element[1][action])


def _target(value: Any) -> str:
    return str(value.get("target", "")) if isinstance(value, dict) else ""


def _matches(match: Any, place: _Place) -> bool | None:
    """Whether the packet is one that a match is about; None where that depends on what is not known or understood."""
    if not isinstance(match, dict) or not isinstance(match.get("left"), dict):
        return None
    left, right, operator = match["left"], place.named(match.get("right")), match.get("op", "==")
    masked = left.get("&")
    if isinstance(masked, list) and len(masked) == 2 and isinstance(masked[0], dict):
        return negate(_flags(masked, right, place), operator == "!=")
    ((kind, value),) = left.items() if len(left) == 1 else (("", None),)
    if not isinstance(value, dict):
        return None
    if kind == "payload" and _other_protocol(str(value.get("protocol", "")), place):
        return False  # a rule about TCP is not about UDP, whatever it compares
    test = _TESTS.get(kind)
    hit = test(value, place) if test else None
    if hit is None:
        return None
    if operator in ("<", "<=", ">", ">=") and isinstance(right, int):
        right = {"range": [0, right - (operator == "<")] if "<" in operator else [right + (operator == ">"), 1 << 32]}
    elif operator not in ("==", "!=", "in"):
        return None
    return negate(any_of(map(hit, _leaves(right))), operator == "!=")


#: Answers whether one value of a match is that of the packet.
_Test = Callable[[Any], "bool | None"]


def _other_protocol(name: str, place: _Place) -> bool:
    return name not in ("", "ip", "th", "ether", "vlan", place.packet.protocol)


def _flags(masked: list[Any], right: Any, place: _Place) -> bool | None:
    """``tcp flags & (fin|syn|rst|ack) == syn`` for the first packet of a connection, which has SYN alone."""
    payload = masked[0].get("payload")
    if not isinstance(payload, dict):
        return None
    if _other_protocol(str(payload.get("protocol", "")), place):
        return False
    if (payload.get("protocol"), payload.get("field")) != ("tcp", "flags"):
        return None
    mask, wanted = ([leaf for leaf in _leaves(side) if isinstance(leaf, str)] for side in (masked[1], right))
    return ({"syn"} & set(mask)) == set(wanted)


def _payload(value: dict[str, Any], place: _Place) -> _Test | None:
    packet, field = place.packet, value.get("field")
    if value.get("protocol") == "ip":
        return {
            "protocol": _one_of(packet.protocol, _NUMBERS.get(packet.protocol)),
            "saddr": _address(packet.comes_from),
            "daddr": _address(lambda text: packet.is_sent_to(text, place.hook)),
        }.get(str(field))
    if value.get("protocol") in ("th", packet.protocol):
        return {"dport": _port(packet.port_at(place.hook)), "flags": _one_of("syn")}.get(str(field))
    return None


def _meta(value: dict[str, Any], place: _Place) -> _Test | None:
    packet = place.packet
    return {
        "l4proto": _one_of(packet.protocol, _NUMBERS.get(packet.protocol)),
        "protocol": _one_of("ip"),
        "nfproto": _one_of("ipv4"),
        "iifname": _address(packet.comes_in_by),
        "iif": _address(packet.comes_in_by),
        "oifname": _address(packet.goes_out_by),
        "oif": _address(packet.goes_out_by),
        "pkttype": _one_of("host", "unicast"),
    }.get(str(value.get("key")))


def _ct(value: dict[str, Any], place: _Place) -> _Test | None:
    behind = place.hook in ("forward", "postrouting")
    return {
        "state": _one_of("new"),
        "status": _one_of("dnat") if behind else _one_of(),
        "direction": _one_of("original", 0),
        "proto-dst": _port(place.packet.port) if value.get("dir") == "original" else None,
    }.get(str(value.get("key")))


def _fib(value: dict[str, Any], place: _Place) -> _Test | None:
    flags = value.get("flags")
    if value.get("result") != "type" or "daddr" not in (flags if isinstance(flags, list) else [flags]):
        return None
    return _one_of("unicast") if place.hook in ("forward", "postrouting") else _one_of("local")


_TESTS: dict[str, Callable[[dict[str, Any], _Place], _Test | None]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "fib": _fib,
}


def _one_of(*values: object) -> _Test:
    return lambda leaf: None if leaf is None else leaf in values


def _address(test: Callable[[str], bool | None]) -> _Test:
    return lambda leaf: test(leaf) if isinstance(leaf, str) else None


def _port(port: int) -> _Test:
    def hit(leaf: Any) -> bool | None:
        if isinstance(leaf, tuple):
            return leaf[0] <= port <= leaf[1]
        return leaf == port if isinstance(leaf, int) else None

    return hit


def _leaves(right: Any) -> Iterator[Any]:
    """The values of the right side of a match: a value, a prefix as text, a range as a pair; None for anything else."""
    waiting = [right]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif not isinstance(value, dict):
            yield value
        elif "set" in value or "|" in value:
            waiting.append(value.get("set", value.get("|")))
        elif isinstance(value.get("elem"), dict):
            waiting.append(value["elem"].get("val"))
        elif isinstance(value.get("prefix"), dict):
            yield f"{value['prefix'].get('addr')}/{value['prefix'].get('len')}"
        else:
            bounds = value.get("range")
            whole = isinstance(bounds, list) and len(bounds) == 2 and all(isinstance(edge, int) for edge in bounds)
            yield tuple(bounds) if whole else None
