# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""An allow rule for a published UDP port, added only through the tool that is active on the host (host-contract 2.5).

A table of nftables cannot overrule another table's drop, so there nothing is added: the report says what to change.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Run = Callable[[Sequence[str]], tuple[int, str]]


class FirewallRule:
    """``tool`` is ``ufw`` or ``firewalld``; ``zone`` is for firewalld alone."""

    def __init__(self, tool: str, port: int, zone: str = "") -> None:
        if tool not in ("ufw", "firewalld"):
            raise ValueError(f"{tool}: rules are added through ufw and firewalld only")
        self.tool, self.port, self.zone = tool, port, zone

    @classmethod
    def from_name(cls, name: str) -> FirewallRule:
        tool, port, zone = name.split("/")
        return cls(tool, int(port), zone)

    @property
    def name(self) -> str:
        return f"{self.tool}/{self.port}/{self.zone}"

    def __str__(self) -> str:
        zone = f" in zone {self.zone}" if self.zone else ""
        return f"UDP {self.port} by {self.tool}{zone}"

    def present(self, run: Run) -> bool:
        if self.tool == "ufw":
            _rc, text = run(["ufw", "show", "added"])
            return f"ufw route allow proto udp to any port {self.port}" in text or (
                f"ufw route allow {self.port}/udp" in text
            )
        return run(self._firewalld("--query-port"))[0] == 0

    def add_commands(self) -> list[list[str]]:
        if self.tool == "ufw":
            return [["ufw", "route", "allow", "proto", "udp", "to", "any", "port", str(self.port)]]
        return [self._firewalld("--add-port"), self._firewalld("--add-port", permanent=False)]

    def remove_commands(self) -> list[list[str]]:
        if self.tool == "ufw":
            return [["ufw", "route", "delete", "allow", "proto", "udp", "to", "any", "port", str(self.port)]]
        return [self._firewalld("--remove-port"), self._firewalld("--remove-port", permanent=False)]

    def _firewalld(self, action: str, permanent: bool = True) -> list[str]:
        zone = [f"--zone={self.zone}"] if self.zone else []
        return ["firewall-cmd", *(["--permanent"] if permanent else []), *zone, f"{action}={self.port}/udp"]
