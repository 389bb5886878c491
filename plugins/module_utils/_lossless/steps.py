# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The settings that the role writes, each with its value now, its value to be, and the commands to either.

Values are of JSON types, so that the ledger can keep them.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._lossless import commands
from ansible_collections.lium.cluster.plugins.module_utils._lossless.judges import tool_of
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import Leg
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import DSCP, Settings
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import Reading

Value = Any


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of setting.

    ``wanted``: the value to be, None where the driver has no such setting. ``now``: the value that the settings show,
    in the form of another value of this kind; None when it is not known. ``lines``: shell lines that lead to a value.
    """

    name: str
    wanted: Callable[[Leg, str, Settings, Target], Value]
    now: Callable[[Settings, Value], Value]
    lines: Callable[[Leg, str, Value, Value], list[str]]
    same: Callable[[Value, Value], bool] = operator.eq


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A setting of one leg. ``before`` is its value now, and what an undo leads back to."""

    kind: Kind
    leg: Leg
    tool: str
    before: Value
    wanted: Value

    @property
    def name(self) -> str:
        return f"{self.leg.netdev} {self.kind.name}"

    @property
    def met(self) -> bool:
        return self.reads(self.before, self.wanted)

    def reads(self, now: Value, value: Value) -> bool:
        """Whether what reads ``now`` is that value. What does not read is nothing."""
        return now is not None and self.kind.same(now, value)

    @property
    def lines(self) -> list[str]:
        return self.kind.lines(self.leg, self.tool, self.wanted, self.before)

    def as_entry(self) -> dict[str, Any]:
        """For the ledger. Of several writes, the first ``original`` leads back to the host as it was."""
        leg = dataclasses.asdict(self.leg)
        leg.pop("vlan_priorities")
        return {"leg": leg, "tool": self.tool, "original": self.before, "value": self.wanted}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Step:
        kind = next(kind for kind in KINDS if entry["name"].endswith(f" {kind.name}"))
        return cls(kind, Leg(**entry["leg"]), entry["tool"], entry["original"], entry["value"])


def steps(reading: Reading, target: Target) -> list[Step]:
    """All that the leg should have, in the order of writing. A setting that its driver does not have is left out."""
    leg, tool, settings = reading.leg, tool_of(reading), reading.settings
    found = []
    for kind in KINDS:
        wanted = kind.wanted(leg, tool, settings, target)
        if wanted is not None and kind.lines(leg, tool, wanted, None):
            found.append(Step(kind, leg, tool, kind.now(settings, wanted), wanted))
    return found


def _pause_now(settings: Settings, value: Value) -> Value:
    pause = settings.pause
    return None if pause is None else {"rx": pause.rx, "tx": pause.tx, "autoneg": bool(pause.autoneg)}


def _map_now(settings: Settings, value: Value) -> Value:
    table = settings.dscp_map
    return None if table is None else [[dscp, table.get(dscp)] for dscp, _priority in value]


def _map_lines(leg: Leg, tool: str, value: Value, instead_of: Value) -> list[str]:
    gone = {dscp for dscp, priority in value if priority is None}
    lines = commands.set_dscp(leg, tool, {dscp: priority for dscp, priority in value if priority is not None})
    if tool == commands.DCB:
        entries = {dscp: priority for dscp, priority in instead_of or () if dscp in gone and priority is not None}
        lines += commands.delete_dscp(leg, entries)
    return lines


def _ecn_now(settings: Settings, value: Value) -> Value:
    if settings.ecn_np is None or settings.ecn_rp is None:
        return None
    priority = value["priority"]
    return {"priority": priority, "np": priority in settings.ecn_np, "rp": priority in settings.ecn_rp}


def _cnp_now(settings: Settings, value: Value) -> Value:
    if settings.cnp_dscp is None or settings.cnp_priority is None or settings.ecn_np is None:
        return None  # what the firmware will have after its next start is not what is set now
    return {"dscp": settings.cnp_dscp, "priority": settings.cnp_priority}


KINDS = (
    Kind(
        "pause",
        wanted=lambda leg, tool, settings, target: {"rx": False, "tx": False, "autoneg": False},
        now=_pause_now,
        lines=lambda leg, tool, value, instead_of: commands.set_pause(leg, **value),
        same=lambda one, other: (one["rx"], one["tx"]) == (other["rx"], other["tx"]),
    ),
    Kind(
        "trust",
        wanted=lambda leg, tool, settings, target: DSCP,
        now=lambda settings, value: settings.trust,
        lines=lambda leg, tool, value, instead_of: (
            commands.set_trust(leg, tool, value) if tool == commands.MLNX_QOS else []
        ),
    ),
    Kind(
        "dscp",
        wanted=lambda leg, tool, settings, target: [
            [target.dscp, target.priority],
            [target.cnp_dscp, target.cnp_priority(settings.cnp_priority)],
        ],
        now=_map_now,
        lines=_map_lines,
    ),
    Kind(
        "pfc",
        wanted=lambda leg, tool, settings, target: None if target.ecn_only else sorted(target.pfc),
        now=lambda settings, value: None if settings.pfc is None else sorted(settings.pfc),
        lines=lambda leg, tool, value, instead_of: commands.set_pfc(leg, tool, value),
    ),
    Kind(
        "class",
        wanted=lambda leg, tool, settings, target: target.traffic_class if settings.can_force else None,
        now=lambda settings, value: settings.forced_class,
        lines=lambda leg, tool, value, instead_of: commands.set_class(leg, value),
    ),
    Kind(
        "ecn",
        wanted=lambda leg, tool, settings, target: {"priority": target.priority, "np": True, "rp": True},
        now=_ecn_now,
        lines=lambda leg, tool, value, instead_of: commands.set_ecn(leg, value["priority"], value["np"], value["rp"]),
    ),
    Kind(
        "cnp",
        wanted=lambda leg, tool, settings, target: (
            None
            if settings.firmware_class
            else {"dscp": target.cnp_dscp, "priority": target.cnp_priority(settings.cnp_priority)}
        ),
        now=_cnp_now,
        lines=lambda leg, tool, value, instead_of: commands.set_cnp(leg, value["dscp"], value["priority"]),
    ),
)
