# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a fabric's RoCE traffic should look like (host-contract 4.1). Sites differ, so all of it is a parameter.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import BNXT
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    DSCP,
    DSCPS,
    PRIORITIES,
    ROCE_UDP_PORT,
    Settings,
)

LOSSLESS, ECN_ONLY = "lossless", "ecn_only"
MODES = (LOSSLESS, ECN_ONLY)

#: Cards have room for two lossless priorities; with more, pause frames come too late for all of them.
MAX_LOSSLESS = 2

#: What most fabrics use, where neither the site nor the host says otherwise.
_PRIORITY, _DSCP, _CNP_DSCP = 3, 26, 48
_CNP_PRIORITY = 6
#: Broadcom's own default of the CNP's priority is as good.
_CNP_PRIORITY_BNXT = 7

#: ECN-capable transport in the two low bits of a traffic class.
ECT = 0b10
ECT_BITS = 0b11


#: The options of the modules, which :meth:`Policy.from_options` reads.
POLICY_OPTIONS: Mapping[str, Any] = {
    "priority": {"type": "int"},
    "dscp": {"type": "int"},
    "cnp_dscp": {"type": "int"},
    "cnp_priority": {"type": "int"},
    "pfc_priorities": {"type": "list", "elements": "int"},
    "mode": {"type": "str", "choices": list(MODES), "default": LOSSLESS},
    "cable_length": {"type": "int"},
}


class PolicyError(ValueError):
    """An option outside of what the field of a packet can hold."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What one leg is held against. ``pfc`` is the set of priorities that may be lossless."""

    priority: int
    dscp: int
    cnp_dscp: int
    cnp_priorities: tuple[int, ...]
    pfc: frozenset[int]
    mode: str = LOSSLESS
    cable_length: int | None = None

    @property
    def traffic_class(self) -> int:
        """The byte to force: DSCP 26 with ECT(0) is 106."""
        return self.dscp << 2 | ECT if self.dscp else 0

    def cnp_priority(self, now: int | None) -> int:
        """The priority that CNPs are to have: the one they have, where the site is as content with it."""
        return now if now is not None and now in self.cnp_priorities else self.cnp_priorities[0]

    @property
    def ecn_only(self) -> bool:
        return self.mode == ECN_ONLY


@dataclasses.dataclass(frozen=True)
class Policy:
    """The options of the site. None: take what the host forces already if it is whole, else the usual value."""

    priority: int | None = None
    dscp: int | None = None
    cnp_dscp: int | None = None
    cnp_priority: int | None = None
    pfc_priorities: tuple[int, ...] | None = None
    mode: str = LOSSLESS
    cable_length: int | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Policy:
        """From the options of the module; absent ones count as not set. Raises PolicyError naming the option."""
        values = {field.name: options.get(field.name) for field in dataclasses.fields(cls)}
        values["mode"] = values["mode"] or LOSSLESS
        if values["mode"] not in MODES:
            raise PolicyError(f"mode: {values['mode']!r} is none of {', '.join(MODES)}")
        if values["pfc_priorities"] is not None:
            values["pfc_priorities"] = tuple(values["pfc_priorities"])
        for name, allowed in (
            ("priority", PRIORITIES),
            ("cnp_priority", PRIORITIES),
            ("dscp", DSCPS),
            ("cnp_dscp", DSCPS),
        ):
            if values[name] is not None and values[name] not in allowed:
                raise PolicyError(f"{name}: {values[name]} is not in {allowed.start} to {allowed.stop - 1}")
        for value in values["pfc_priorities"] or ():
            if value not in PRIORITIES:
                raise PolicyError(f"pfc_priorities: {value} is not in 0 to 7")
        if len({*(values["pfc_priorities"] or ())}) > MAX_LOSSLESS:
            listed = ", ".join(map(str, values["pfc_priorities"]))
            raise PolicyError(
                f"pfc_priorities: {listed} are more than {MAX_LOSSLESS}, which is what cards have room for"
            )
        policy = cls(**values)
        pfc = policy.pfc_priorities
        if pfc is not None and (policy.priority if policy.priority is not None else _PRIORITY) not in pfc:
            raise PolicyError("pfc_priorities: the priority of RoCE is not among them")
        return policy

    def target(self, settings: Settings, driver: str | None) -> Target:
        """What a leg with these settings is held against.

        A host that forces a class whose DSCP leads to a priority with PFC is whole in itself: these values of its site
        stand where the options say nothing. Else what the switch announces for RoCE does, and last the usual values.
        Whether all hosts agree is a matter of the comparison between them.
        """
        priority, dscp = self.priority, self.dscp
        if priority is None and dscp is None and self.pfc_priorities is None:
            dscp, priority = _own_choice(settings) or _switch_choice(settings) or (None, None)
        priority = _PRIORITY if priority is None else priority
        usual_cnp = (_CNP_PRIORITY, _CNP_PRIORITY_BNXT) if driver == BNXT else (_CNP_PRIORITY,)
        return Target(
            priority=priority,
            dscp=_DSCP if dscp is None else dscp,
            cnp_dscp=_CNP_DSCP if self.cnp_dscp is None else self.cnp_dscp,
            cnp_priorities=usual_cnp if self.cnp_priority is None else (self.cnp_priority,),
            pfc=frozenset(self.pfc_priorities or (priority,)),
            mode=self.mode,
            cable_length=self.cable_length,
        )


def _own_choice(settings: Settings) -> tuple[int, int] | None:
    if not settings.forced_class or settings.trust != DSCP or settings.dscp_map is None or settings.pfc is None:
        return None
    dscp = settings.forced_class >> 2
    priority = settings.dscp_map.get(dscp)
    if not priority or priority not in settings.pfc:  # priority 0 carries everything else and is nobody's choice
        return None
    return dscp, priority


def _switch_choice(settings: Settings) -> tuple[int | None, int] | None:
    """The priority that the switch announces for RoCE, if PFC is on for it there, and its DSCP if there is just one."""
    peer = settings.peer
    if peer is None or peer.pfc is None:
        return None
    priority = peer.udp_map.get(ROCE_UDP_PORT)
    if not priority or priority not in peer.pfc:
        return None
    dscps = [dscp for dscp, to in peer.dscp_map.items() if to == priority]
    return (dscps[0] if len(dscps) == 1 else None), priority
