# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``iptables -S`` of the filter table (host-contract 2.5).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
import shlex

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import (
    Block,
    Packet,
    Rule,
    all_of,
    docker_rule,
    fate_in,
    negate,
    partial_block,
)

#: Matches whose every option is read below; a rule with another one is limited to what is not known.
_READ = {"addrtype", "comment", "conntrack", "multiport", "state", "tcp", "udp"}
_VERDICTS = {
    "ACCEPT": "accept",
    "DROP": "drop",
    "REJECT": "reject",
    "RETURN": "return",
    "NFQUEUE": "queue",
}
_VALUES = {"--tcp-flags": 2, "--syn": 0, "-f": 0}


def iptables_blocks(text: str, packet: Packet) -> list[Block]:
    """What stops the packet in FORWARD or DOCKER-USER, or in INPUT where it is for the host itself.

    After Docker's DNAT a rule sees the container's port, and the published one only by ``--ctorigdstport``. The policy
    DROP of FORWARD is Docker's own and no block.
    """
    forwarded = packet.container_port is not None
    hook = "forward" if forwarded else "input"
    lines = [_words(line) for line in text.splitlines() if line.startswith(("-P ", "-N ", "-A "))]
    chains: dict[str, list[Rule]] = {words[1]: [] for words in lines if len(words) > 1}
    policies = {words[1]: words[2] for words in lines if words[0] == "-P" and len(words) > 2}
    for words in lines:
        rule = _rule(words, chains, packet, hook) if words[0] == "-A" and len(words) > 1 else None
        if rule:
            chains[rule.chain].append(rule)
    blocks: list[Block] = []
    # Docker adds its jump to DOCKER-USER when it starts.
    for start in ("DOCKER-USER", "FORWARD") if forwarded else ("INPUT",):
        policy = "drop" if start == "INPUT" and policies.get(start) == "DROP" else "accept"
        fate = fate_in(chains, start, policy)
        if "drop" not in fate.ends:
            continue
        if not fate.stopped:
            blocks.append(partial_block("iptables", start, fate, packet))
        elif fate.drops and fate.drops[-1].applies:
            rule = fate.drops[-1]
            blocks.append(Block("iptables", f"{rule.chain}: {rule.text}", _fix(rule.chain, packet)))
        else:
            what = f"{start}: policy DROP and no rule that accepts {packet}"
            blocks.append(Block("iptables", what, _fix(start, packet)))
    return list(dict.fromkeys(blocks))


def _fix(chain: str, packet: Packet) -> str:
    port = f"--dport {packet.port}" if packet.container_port is None else f"-m conntrack --ctorigdstport {packet.port}"
    return (
        f"Put `iptables -I {chain} -p {packet.protocol} {port} -j ACCEPT` before it and keep it with the tool that made"
        " the rule"
    )


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as exc:
        raise ParseError("iptables -S", "unbalanced quotes", line) from exc


def _rule(words: list[str], chains: dict[str, list[Rule]], packet: Packet, hook: str) -> Rule | None:
    end = next((at for at, word in enumerate(words) if word in ("-j", "-g")), len(words) - 1)
    target = words[end + 1] if end + 1 < len(words) else ""
    action = _VERDICTS.get(target) or (("goto" if words[end] == "-g" else "jump") if target in chains else "")
    if not action:
        return None  # LOG and the like: the packet goes on
    applies = all_of(_conditions(words[2:end], packet, hook))
    return docker_rule(Rule(applies, action, target, words[1], shlex.join(words)))


def _conditions(words: list[str], packet: Packet, hook: str) -> list[bool | None]:
    found: list[bool | None] = []
    rest = iter(words)
    negated = False
    for word in rest:
        if word == "!":
            negated = True
            continue
        values = [next(rest, "") for _ in range(_VALUES.get(word, 1))]
        if word == "-m":
            found.append(True if values[0] in _READ else None)
        else:
            found.append(negate(_option(word, values, packet, hook), negated))
        negated = False
    return found


def _option(option: str, values: list[str], packet: Packet, hook: str) -> bool | None:
    value = values[0] if values else ""
    listed = value.split(",")
    readers = {
        "-p": lambda: value in (packet.protocol, "all"),
        "-s": lambda: packet.comes_from(value),
        "-d": lambda: packet.is_sent_to(value, hook),
        "-i": lambda: packet.comes_in_by(value),
        "-o": lambda: packet.goes_out_by(value),
        "-f": lambda: False,
        "--dport": lambda: _port_in(value, packet.port_at(hook)),
        "--dports": lambda: _port_in(value, packet.port_at(hook)),
        "--ports": lambda: _port_in(value, packet.port_at(hook)) or None,
        "--ctorigdstport": lambda: _port_in(value, packet.port),
        "--ctstate": lambda: "NEW" in listed or ("DNAT" in listed and hook == "forward"),
        "--state": lambda: "NEW" in listed,
        "--ctdir": lambda: value == "ORIGINAL",
        "--ctstatus": lambda: "DNAT" in listed and hook == "forward",
        "--dst-type": lambda: ("LOCAL" if hook == "input" else "UNICAST") in listed,
        "--syn": lambda: True,
        "--tcp-flags": lambda: ({"SYN"} & _flags(value)) == _flags(values[-1]),
        "--comment": lambda: True,
    }
    reader = readers.get(option)
    return reader() if reader else None


def _flags(text: str) -> set[str]:
    return {"FIN", "SYN", "RST", "PSH", "ACK", "URG"} if text == "ALL" else set(text.split(",")) - {"NONE"}


def _port_in(text: str, port: int) -> bool:
    for part in text.split(","):
        first, colon, last = part.partition(":")
        bounds = [first or "0", last or ("65535" if colon else first)]
        if all(re.fullmatch(r"\d{1,5}", edge) for edge in bounds) and int(bounds[0]) <= port <= int(bounds[1]):
            return True
    return False
