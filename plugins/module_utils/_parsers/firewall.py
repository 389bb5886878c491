# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a firewall does to a UDP port that Docker publishes: the FORWARD path, not INPUT (host-contract 2.5).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values, load_json


@dataclasses.dataclass(frozen=True)
class Block:
    """One thing in the way. ``tool`` is whose rule it is: nftables, iptables, ufw or firewalld."""

    tool: str
    what: str
    fix: str


@dataclasses.dataclass(frozen=True)
class _Rule:
    table: tuple[str, str]
    chain: str
    expression: list[Any]


#: The port inside every cluster pod, which is what a rule sees after Docker's DNAT.
CONTAINER_PORT = 51820


def nft_blocks(text: str, published: int) -> list[Block]:
    """Rules and policies of ``nft -j list ruleset`` that stop UDP to a published port on its way to a container.

    All base chains on a hook must accept, so a second table's policy counts even where Docker's own table accepts.
    """
    answer = load_json("nft -j list ruleset", text)
    objects = answer.get("nftables") if isinstance(answer, dict) else None
    if not isinstance(objects, list):
        raise ParseError("nft -j list ruleset", "no list of objects", text)
    chains = [_typed(row["chain"]) for row in objects if isinstance(row, dict) and "chain" in row]
    rules = [_rule(row["rule"]) for row in objects if isinstance(row, dict) and "rule" in row]
    blocks = []
    for chain in chains:
        hook = chain.get("hook")
        if hook not in ("forward", "prerouting"):
            continue
        family, table, name = (str(chain.get(key, "")) for key in ("family", "table", "name"))
        if family not in ("ip", "inet"):
            continue
        own = [rule for rule in rules if rule.table == (family, table) and rule.chain == name]
        where = f"{family} {table} {name}"
        port = published if hook == "prerouting" else CONTAINER_PORT
        verdict, rule = _first_verdict(own, port)
        if verdict in ("drop", "reject") and rule is not None:
            blocks.append(Block("nftables", f"{where}: a rule {verdict}s UDP {port}", f"Take that rule out of {where}"))
        elif verdict == "unknown":
            continue  # rules of iptables stand here as opaque expressions; `iptables -S` shows them
        elif verdict is None and chain.get("policy") == "drop" and not _iptables_chain(family, table, name):
            fix = f"Add `udp dport {port} accept` and `ct state established,related accept` to {where}"
            blocks.append(Block("nftables", f"{where}: policy drop and no rule that accepts UDP {port}", fix))
    return blocks


def _typed(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParseError("nft -j list ruleset", "not an object", str(value))
    return value


def _rule(value: Any) -> _Rule:
    row = _typed(value)
    expression = row.get("expr", [])
    if not isinstance(expression, list):
        raise ParseError("nft -j list ruleset", "a rule without expressions", str(row))
    return _Rule((str(row.get("family", "")), str(row.get("table", ""))), str(row.get("chain", "")), expression)


def _iptables_chain(family: str, table: str, name: str) -> bool:
    """Docker sets the policy of its own FORWARD chain to drop, which is as it should be."""
    return (family, table, name) == ("ip", "filter", "FORWARD")


def _first_verdict(rules: list[_Rule], port: int) -> tuple[str | None, _Rule | None]:
    for rule in rules:
        applies = _applies(rule.expression, port)
        verdict = _verdict(rule.expression)
        if applies is None:
            return "unknown", rule
        if applies and verdict in ("accept", "drop", "reject"):
            return verdict, rule
    return None, None


def _verdict(expression: list[Any]) -> str | None:
    for part in expression:
        if isinstance(part, dict):
            for word in ("accept", "drop", "reject"):
                if word in part:
                    return word
    return None


def _applies(expression: list[Any], port: int) -> bool | None:
    """Whether a rule is about a new UDP packet to ``port``; None for a rule of iptables that cannot be read here."""
    for part in expression:
        if not isinstance(part, dict):
            continue
        if "xt" in part:
            return None
        match = part.get("match")
        if isinstance(match, dict) and not _matches(match, port):
            return False
    return True


def _matches(match: dict[str, Any], port: int) -> bool:
    left, right = match.get("left"), match.get("right")
    negated = match.get("op") == "!="
    if not isinstance(left, dict):
        return False
    payload, meta, ct = (left.get(key) if isinstance(left.get(key), dict) else {} for key in ("payload", "meta", "ct"))
    if payload.get("field") == "dport":
        return (payload.get("protocol") in ("udp", "th") and _contains(right, port)) != negated
    if payload.get("field") == "protocol" or meta.get("key") in ("l4proto", "protocol"):
        return _contains(right, "udp") != negated
    if ct.get("key") == "state":
        return _contains(right, "new") != negated
    if ct.get("key") == "status":
        return _contains(right, "dnat") != negated
    return False  # limited to an address or a netdev: neither a proof nor a block for everybody


def _contains(right: Any, value: object) -> bool:
    if isinstance(right, list):
        return any(_contains(part, value) for part in right)
    if isinstance(right, dict):
        if "set" in right:
            return _contains(right["set"], value)
        bounds = right.get("range")
        if isinstance(bounds, list) and len(bounds) == 2 and all(isinstance(edge, int) for edge in bounds):
            return isinstance(value, int) and bounds[0] <= value <= bounds[1]
        return False
    return bool(right == value)


def iptables_blocks(text: str, port: int) -> list[Block]:
    """``iptables -S`` of the filter table: drops in FORWARD and DOCKER-USER that meet the published port.

    After Docker's DNAT a rule in these chains sees the container's port, and the published one only by
    ``--ctorigdstport``. The policy DROP of FORWARD is Docker's own and no block.
    """
    blocks = []
    decided: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("-A "):
            continue
        try:
            words = shlex.split(line)
        except ValueError as exc:
            raise ParseError("iptables -S", "unbalanced quotes", line) from exc
        chain = words[1] if len(words) > 1 else ""
        if chain not in ("FORWARD", "DOCKER-USER") or chain in decided:
            continue
        options = dict(zip(words[2:], words[3:]))
        target = options.get("-j", "")
        if target not in ("DROP", "REJECT", "ACCEPT", "RETURN"):
            continue
        if not _iptables_applies(words, options, port):
            continue
        if target in ("DROP", "REJECT"):
            fix = (
                f"Put `iptables -I {chain} -p udp -m conntrack --ctorigdstport {port} -j ACCEPT` before it"
                " and keep it with the tool that made the rule"
            )
            blocks.append(Block("iptables", f"{chain}: {line}", fix))
        decided.add(chain)
    return blocks


def _iptables_applies(words: list[str], options: dict[str, str], port: int) -> bool:
    if "!" in words or {"-s", "-d", "-i", "-o"} & set(words):
        return False  # limited to some traffic: the probe between two hosts decides
    if options.get("-p", "udp") not in ("udp", "all"):
        return False
    if "--ctorigdstport" in options and not _port_in(options["--ctorigdstport"], port):
        return False
    destination = options.get("--dport") or options.get("--dports")
    if destination and not _port_in(destination, CONTAINER_PORT):
        return False
    states = options.get("--ctstate") or options.get("--state")
    return not states or "NEW" in states.split(",")


def _port_in(text: str, port: int) -> bool:
    for part in text.split(","):
        first, _colon, last = part.partition(":")
        bounds = [first, last or first]
        if all(re.fullmatch(r"\d{1,5}", edge) for edge in bounds) and int(bounds[0]) <= port <= int(bounds[1]):
            return True
    return False


def ufw_active(text: str) -> bool:
    """``ufw status verbose``: its own deny rules are about INPUT and do not stop a published port."""
    for line in text.splitlines():
        if line.startswith("Status:"):
            return line.split(":", 1)[1].strip() == "active"
    raise ParseError("ufw status", "no status line", text)


def firewalld_zones(text: str) -> dict[str, str]:
    """``firewall-cmd --get-active-zones``: netdev -> zone."""
    zones: dict[str, str] = {}
    zone = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            zone = line.split()[0]
        elif line.strip().startswith("interfaces:"):
            for netdev in line.partition(":")[2].split():
                zones[netdev] = zone
    return zones


def firewalld_strict(text: str) -> bool:
    """``StrictForwardPorts=yes`` in firewalld.conf blocks ports that Docker publishes."""
    return key_values(text).get("StrictForwardPorts", "no").lower() in ("yes", "true")
