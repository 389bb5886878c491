# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""When a host leaves tests out because it is at fault, so that it does not hold up all others.

A silent host, or a cable that carries nothing one way, costs seconds at each test, and after a few hosts the answer is
known. That holds only while few hosts are in that state: where many are, something that they share is broken, and each
of their pairs counts to tell which hosts can still be sold together.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SERVER, CLIENT = "server", "client"
#: A host that failed with more hosts than this is in trouble, by more than what these few do to it. With more hosts
#: than this in trouble it is no host's own fault.
FEW = 2


class Quarantine:
    """What a host's tests showed of it in each role, and what it heard of other hosts."""

    def __init__(self, host: str, hosts: Iterable[str], after: int) -> None:
        """``after``: so many hosts failed with, and none good, end a role; 0 never does."""
        self._host = host
        self._numbers = {name: number for number, name in enumerate(sorted(hosts))}
        self._after = after
        self._failed: dict[str, set[str]] = {SERVER: set(), CLIENT: set()}
        self._good: set[str] = set()
        self._troubled = 0
        self._out: dict[str, frozenset[str]] = {}

    def count(self, role: str, peer: str, good: bool) -> None:
        """Takes note of a test of this host."""
        if good:
            self._good.add(role)
            return
        self._failed[role].add(peer)
        if len(self._failed[SERVER] | self._failed[CLIENT]) > FEW:
            self._troubled |= 1 << self._numbers[self._host]

    def judge(self) -> None:
        """Decides whether this host is out in a role; it stays so then."""
        roles = self._roles(self._after) if self._after else set()
        if roles and bin(self._troubled & ~(1 << self._numbers[self._host])).count("1") <= FEW:
            self._out[self._host] = self._out.get(self._host, frozenset()) | roles

    def over(self) -> bool:
        """Whether this host is out in both roles."""
        return len(self._out.get(self._host, ())) == len(self._failed)

    def whose(self, tests: Sequence[tuple[str, str, int]]) -> str | None:
        """The host for whose sake tests (server, client, rail) are left out: it is out in its role in all of them."""
        for host in tests[0][:2]:
            roles = self._out.get(host, ())
            if all((SERVER if host == server else CLIENT) in roles for server, _, _ in tests):
                return host
        return None

    def news(self) -> dict[str, Any]:
        """What this host tells others: who is in trouble, and who is out in which role."""
        return {"troubled": f"{self._troubled:x}", "out": {host: sorted(roles) for host, roles in self._out.items()}}

    def learn(self, news: Mapping[str, Any]) -> None:
        self._troubled |= int(news.get("troubled", "0"), 16)
        for host, roles in news.get("out", {}).items():
            self._out[host] = self._out.get(host, frozenset()) | frozenset(roles)

    def _roles(self, after: int) -> set[str]:
        """The roles in which so many hosts were failed with, and none was good.

        A host can have one role for many rounds in a row: that says nothing of the other one, which counts only once it
        has failed as well.
        """
        if not self._good and all(self._failed.values()) and len(set().union(*self._failed.values())) >= after:
            return {SERVER, CLIENT}
        return {role for role, peers in self._failed.items() if role not in self._good and len(peers) >= after}
