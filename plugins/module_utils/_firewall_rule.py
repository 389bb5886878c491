# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""An allow rule for a port, added only through the tool that is active on the host (host-contract 2.5).

A table of nftables cannot overrule another table's drop, so there nothing is added: the report says what to change.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Run = Callable[[Sequence[str]], tuple[int, str]]

TOOLS = ("ufw", "firewalld")
#: Exit codes of firewall-cmd for a zone that does not exist and a daemon that does not run, and without the program.
_NO_ZONE, _NOT_RUNNING, _NOT_INSTALLED = 112, 252, 127


class FirewallError(Exception):
    """The tool gave no answer, so that it is not known which rules it has."""


@dataclasses.dataclass(frozen=True)
class FirewallRule:
    """One rule of ``ufw`` or ``firewalld``.

    With ``netdev`` ufw lets through what comes in there for the host itself, without it what goes to a published port.
    firewalld lets through what its ``zone`` takes: ``permanent`` from its next start or reload on, else until then.
    """

    tool: str
    port: int
    protocol: str = "udp"
    netdev: str = ""
    zone: str = ""
    permanent: bool = True

    def __post_init__(self) -> None:
        if self.tool not in TOOLS:
            raise ValueError(f"{self.tool}: rules are added through ufw and firewalld only")

    def __str__(self) -> str:
        where = f" on {self.netdev}" if self.netdev else f" in zone {self.zone}" if self.zone else ""
        return f"{self.protocol.upper()} {self.port} by {self.tool}{where}{'' if self.permanent else ' at run time'}"

    @property
    def own(self) -> str:
        """What :meth:`found` answers where the rule is there just as it would be added."""
        return "allow" if self.tool == "ufw" else f"{self.port}/{self.protocol}"

    def found(self, run: Run) -> str:
        """What the tool has in this rule's place, empty for nothing. Raises :class:`FirewallError`.

        Anything but :attr:`own` is someone else's: another action of ufw, which adding would replace, or a range of
        firewalld, which removing would tear apart.
        """
        argv = ("ufw", "show", "added") if self.tool == "ufw" else tuple(self._firewall_cmd("--list-ports"))
        rc, text = run(argv)
        if rc in (_NO_ZONE, _NOT_INSTALLED) or (rc == _NOT_RUNNING and not self.permanent):
            return ""
        if rc != 0:
            raise FirewallError(f"{' '.join(argv)}: {text.strip() or f'exit code {rc}'}")
        return self._action_of_ufw(text) if self.tool == "ufw" else self._entry_of_firewalld(text)

    def _action_of_ufw(self, text: str) -> str:
        # ufw lists rules in a form of its own, which is not the one that was typed.
        whole = f"in on {self.netdev} to any port {self.port} proto {self.protocol}"
        head, rest = ("ufw ", whole) if self.netdev else ("ufw route ", f"{self.port}/{self.protocol}")
        for line in text.splitlines():
            words = line.partition(" comment '")[0].removeprefix(head).split()
            logged = [word for word in words if word in ("log", "log-all")]
            if line.startswith(head) and [word for word in words[1:] if word not in logged] == rest.split():
                return " ".join([words[0], *logged])
        return ""

    def _entry_of_firewalld(self, text: str) -> str:
        for first, last, protocol in re.findall(r"\b(\d{1,5})(?:-(\d{1,5}))?/(\w+)", text):
            if protocol == self.protocol and int(first) <= self.port <= int(last or first):
                return f"{first}-{last}/{protocol}" if last else f"{first}/{protocol}"
        return ""

    @property
    def add_command(self) -> list[str]:
        return ["ufw", *self._ufw_rule()] if self.tool == "ufw" else self._firewall_cmd(f"--add-port={self.own}")

    @property
    def remove_command(self) -> list[str]:
        if self.tool == "firewalld":
            return self._firewall_cmd(f"--remove-port={self.own}")
        return ["ufw", *self._ufw_rule("delete")]

    def _ufw_rule(self, *verb: str) -> list[str]:
        where = ["allow", "in", "on", self.netdev] if self.netdev else ["allow"]
        path = [] if self.netdev else ["route"]
        return [*path, *verb, *where, "proto", self.protocol, "to", "any", "port", str(self.port)]

    def _firewall_cmd(self, action: str) -> list[str]:
        zone = [f"--zone={self.zone}"] if self.zone else []
        return ["firewall-cmd", *(["--permanent"] if self.permanent else []), *zone, action]


def rules_of(row: Mapping[str, Any]) -> list[FirewallRule]:
    """The rules of one opening: ``tool``, ``port``, and where they are given ``protocol``, ``netdev`` and ``zone``.

    firewalld keeps what it starts with and what holds now apart: two rules, of which somebody may have either.
    """
    rule = FirewallRule(**row)
    return [rule, dataclasses.replace(rule, permanent=False)] if rule.tool == "firewalld" else [rule]


class Undo(NamedTuple):
    """How to take a noted rule back: what to remove, what is left and why, and whether it need not stay noted."""

    rules: list[FirewallRule]
    left: list[str]
    settled: bool


def undo_of(entry: Mapping[str, Any], run: Run) -> Undo:
    """What becomes of an entry of a ledger, read from what the tool has now."""
    undo = Undo([], [], True)
    for rule in _noted(entry):
        try:
            found = rule.found(run)
        except FirewallError as exc:
            undo.left.append(f"firewall {rule}: {exc}; noted for the next run")
            return undo._replace(settled=False)
        if found == rule.own:
            undo.rules.append(rule)
        elif found:
            undo.left.append(f"firewall {rule}: changed by someone else since ({found})")
    return undo


def _noted(entry: Mapping[str, Any]) -> list[FirewallRule]:
    """The first release noted a name alone, such as ``firewalld/51820/public``."""
    if "rule" in entry:
        return [FirewallRule(**entry["rule"])]
    tool, port, zone = str(entry["name"]).split("/")
    return rules_of({"tool": tool, "port": int(port), "zone": zone})
