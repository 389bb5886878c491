# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a host's agent gets to do: its own meetings, and what it has to know of the others.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import Limits


class Appointment(NamedTuple):
    """One meeting of this host.

    Round, both hosts, tests as ``(server, client, rail)``, and whether nothing else runs.
    """

    round: int
    server: str
    client: str
    tests: tuple[tuple[str, str, int], ...]
    alone: bool

    @property
    def key(self) -> str:
        return f"{self.round}/{self.server}/{self.client}"

    def peer(self, host: str) -> str:
        return self.client if host == self.server else self.server


class Plan(NamedTuple):
    """What a host's agent gets: ``plan.py`` makes it.

    ``rounds`` names the hosts of each round where rounds must not overlap, as in a rerun; it is empty in a sweep.
    ``quarantine_after``: so many hosts failed with, and none good, end a host's tests (quarantine.py).
    """

    run: str
    host: str
    control_port: int
    limits: Limits
    budget_s: float
    start_wait_s: float
    quarantine_after: int
    shorten: bool
    settings: Settings
    hosts: Mapping[str, tuple[RailAt, ...]]
    appointments: tuple[Appointment, ...]
    rounds: tuple[tuple[str, ...], ...]

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Plan:
        """A plan that came as JSON. Raises ``KeyError``, ``TypeError`` or ``ValueError`` where it is none."""
        return cls(
            run=str(row["run"]),
            host=str(row["host"]),
            control_port=int(row["control_port"]),
            limits=Limits(**row["limits"]),
            budget_s=float(row["budget_s"]),
            start_wait_s=float(row["start_wait_s"]),
            quarantine_after=int(row["quarantine_after"]),
            shorten=bool(row["shorten"]),
            settings=Settings(**row["settings"]),
            hosts={name: tuple(_rail(rail) for rail in rails) for name, rails in row["hosts"].items()},
            appointments=tuple(
                Appointment(number, server, client, tuple((a, b, rail) for a, b, rail in tests), bool(alone))
                for number, server, client, tests, alone in row["appointments"]
            ),
            rounds=tuple(tuple(hosts) for hosts in row["rounds"]),
        )


def _rail(row: Mapping[str, Any]) -> RailAt:
    slot = row.get("slot")
    return RailAt(**{**row, "slot": tuple(slot) if slot else None, "netdevs": tuple(row.get("netdevs", ()))})
