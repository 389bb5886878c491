# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of host-contract 4.4 as data: each with its link of the chain, the facts it needs, and its judge.

The chain of a RoCE packet is DSCP -> priority -> PFC -> ECN -> CNP -> buffers; it is as good as its first broken link.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._lossless import judges
from ansible_collections.lium.cluster.plugins.module_utils._lossless.judges import (
    Finding,
    pause_lossless,
    unread,
)
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import BNXT, ICE
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import Reading
from ansible_collections.lium.cluster.plugins.module_utils._record import SKIPPED

#: Links of the chain, in the order in which a packet meets them. DCBX stands beside it.
CHAIN = ("DSCP", "priority", "PFC", "ECN", "CNP", "buffers")
DCBX = "DCBX"


@dataclasses.dataclass(frozen=True)
class Rule:
    """``needs`` are the facts without which the rule is ``UNKNOWN``. A ``required`` rule decides about the verdict."""

    check: Check
    link: str
    needs: tuple[str, ...]
    judge: Callable[[Reading, Target], Finding]
    required: bool = False

    def apply(self, reading: Reading, target: Target) -> Finding:
        """The finding on one leg; what a needed fact is missing for is told by the sources that were asked."""
        early = _beside_the_point(self, reading, target)
        if early is not None:
            return early
        missing = [fact for fact in self.needs if getattr(reading.settings, fact) is None]
        if missing:
            return unread(reading, missing)
        return self.judge(reading, target)


def _beside_the_point(rule: Rule, reading: Reading, target: Target) -> Finding | None:
    leg = reading.leg
    if leg.soft:
        return Finding(SKIPPED, "Soft-RoCE has no queues of its own")
    if rule is PFC and target.ecn_only:
        return Finding(SKIPPED, "the site runs RoCE with ECN alone")
    if rule in (PFC, TRUST, DSCP_MAP, EFFECTIVE_DSCP, ECN) and pause_lossless(reading):
        return Finding(SKIPPED, "link-level pause stands in for PFC on both ends of the link")
    if rule is CNP and leg.driver == ICE:
        return Finding(SKIPPED, "irdma does not show how it marks CNPs")
    if rule is BUFFERS and leg.driver in (BNXT, ICE):
        return Finding(SKIPPED, f"{leg.driver} does not show its buffers")
    return None


def _check(name: str, title: str, expected: str, why: str, source: str) -> Check:
    return Check(f"roce.{name}", title, "degraded", expected, why, source)


PFC = Rule(
    _check(
        "pfc",
        "PFC on the priority of RoCE",
        "PFC on exactly the priorities that the site allows, RoCE's among them",
        "without PFC the network drops RDMA packets under load and NCCL collapses",
        "mlnx_qos, dcb pfc, niccli",
    ),
    "PFC",
    ("pfc",),
    judges.pfc,
    required=True,
)
TRUST = Rule(
    _check(
        "trust",
        "Packets sorted by DSCP",
        "trust mode dscp",
        "otherwise all untagged packets share the lossy priority 0",
        "mlnx_qos, dcb app, niccli",
    ),
    "priority",
    ("trust",),
    judges.trust,
    required=True,
)
DSCP_MAP = Rule(
    _check(
        "dscp_map",
        "DSCP to priority",
        "the DSCP of RoCE leads to its priority, that of CNPs to theirs",
        "RoCE in another priority is not protected, though each setting looks right by itself",
        "mlnx_qos, dcb app, niccli",
    ),
    "priority",
    ("trust", "dscp_map"),
    judges.dscp_map,
    required=True,
)
EFFECTIVE_DSCP = Rule(
    _check(
        "effective_dscp",
        "DSCP of tenants' RDMA",
        "the driver forces the class of RoCE onto every RDMA packet",
        "tenants and the platform's probe ask for no class; their packets ride the lossy priority 0 otherwise",
        "traffic_class, roce_dscp of bnxt_re",
    ),
    "DSCP",
    ("forced_class",),
    judges.effective_dscp,
    required=True,
)
ECN = Rule(
    _check(
        "ecn",
        "DCQCN (ECN) on the priority of RoCE",
        "notification point and reaction point on",
        "without it congestion is held by pause frames alone, which spread through the fabric",
        "sysfs ecn, mstconfig, bnxt_re, irdma",
    ),
    "ECN",
    (),
    judges.ecn,
    required=True,
)
CNP = Rule(
    _check(
        "cnp",
        "Priority of congestion notifications",
        "CNPs with a DSCP and priority of their own, in a strict queue",
        "notifications that wait behind data come too late",
        "sysfs ecn, mstconfig, bnxt_re",
    ),
    "CNP",
    ("cnp_dscp", "cnp_priority"),
    judges.cnp,
)
PAUSE = Rule(
    _check(
        "pause",
        "Link-level pause beside PFC",
        "RX off and TX off",
        "global pause stops all traffic of the link, and most cards switch PFC off with it",
        "ethtool -a",
    ),
    "PFC",
    ("pause",),
    judges.pause,
    required=True,
)
BUFFERS = Rule(
    _check(
        "buffers",
        "Receive buffer of the priority of RoCE",
        "a buffer of its own, large enough for the cable",
        "pause frames come too late for a buffer without headroom",
        "mlnx_qos, dcb buffer",
    ),
    "buffers",
    ("buffer_of", "buffer_sizes"),
    judges.buffers,
)
ETS = Rule(
    _check(
        "ets",
        "Bandwidth share of the priority of RoCE",
        f"a traffic class of its own, ets with at least {judges.MIN_SHARE} %",
        "other traffic starves the jobs otherwise",
        "mlnx_qos, dcb ets, niccli",
    ),
    "buffers",
    ("tc_of", "tsa", "bandwidth"),
    judges.ets,
)
DCBX_OWNER = Rule(
    _check(
        "dcbx_owner",
        "One owner of DCBX",
        "the system or the firmware, not both",
        "two agents overwrite each other's settings",
        "mlnx_qos, dcb dcbx, ethtool --show-priv-flags, lldptool",
    ),
    DCBX,
    ("dcbx", "lldpad"),
    judges.dcbx_owner,
)
DCBX_PEER = Rule(
    _check(
        "dcbx_peer",
        "The switch port agrees",
        "the switch announces the same PFC, and the priority of RoCE",
        "a lossless host behind a lossy switch port is lossy",
        "lldptool, lldpcli",
    ),
    DCBX,
    ("pfc", "peer"),
    judges.dcbx_peer,
)

#: In the order of the chain, so that the first that fails names the broken link.
RULES = (EFFECTIVE_DSCP, TRUST, DSCP_MAP, PFC, PAUSE, ECN, CNP, BUFFERS, ETS, DCBX_OWNER, DCBX_PEER)
