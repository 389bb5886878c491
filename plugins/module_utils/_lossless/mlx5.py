# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What mlx5 shows in files and in its firmware: the forced traffic class, ECN and CNP (host-contract 4.3.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    PRIORITIES,
    Settings,
    dscp,
    priority,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError

_CLASSES = range(256)


def parse_traffic_class(text: str) -> Settings:
    """``tc/PORT/traffic_class``: ``Global tclass=106``, then maybe rules by destination. An empty file forces none."""
    if not text.strip():
        return Settings(forced_class=0, can_force=True)
    match = re.fullmatch(r"Global tclass=(\d{1,3})", text.strip().splitlines()[0].strip())
    if match is None or int(match[1]) not in _CLASSES:
        raise ParseError("traffic_class", "no global class in the first line", text)
    return Settings(forced_class=int(match[1]), can_force=True)


def parse_ecn(notification: Mapping[int, str], reaction: Mapping[int, str], cnp: Mapping[str, str]) -> Settings:
    """``ecn/roce_np/enable/N`` and ``ecn/roce_rp/enable/N`` by priority, and the files ``cnp_dscp``, ``cnp_802p_prio``.

    DCQCN needs both points: one of them is no ECN. A priority whose file is not there counts as off only when the
    others of its folder are there.
    """
    if not notification or not reaction:
        raise ParseError("ecn", "one of roce_np and roce_rp shows no priority")
    return Settings(
        ecn_np=_enabled("roce_np", notification),
        ecn_rp=_enabled("roce_rp", reaction),
        cnp_dscp=dscp("cnp_dscp", cnp["cnp_dscp"]) if "cnp_dscp" in cnp else None,
        cnp_priority=priority("cnp_802p_prio", cnp["cnp_802p_prio"]) if "cnp_802p_prio" in cnp else None,
    )


def _enabled(point: str, values: Mapping[int, str]) -> frozenset[int]:
    for number, text in values.items():
        if text.strip() not in ("0", "1"):
            raise ParseError(f"ecn/{point}/enable/{number}", "neither 0 nor 1", text)
    return frozenset(number for number, text in values.items() if text.strip() == "1")


def parse_mstconfig(text: str) -> Settings:
    """``mstconfig -d BDF q ROCE_CC_PRIO_MASK_P1 CNP_DSCP_P1 CNP_802P_PRIO_P1``: values of the *next* start."""
    found = dict(re.findall(r"^\s+(\w+_P1)\s+(?:\w+\()?(0x[0-9a-fA-F]{1,4}|\d{1,5})\)?\s*$", text, re.MULTILINE))
    if "ROCE_CC_PRIO_MASK_P1" not in found:
        raise ParseError("mstconfig", "no ROCE_CC_PRIO_MASK_P1", text)
    mask = int(found["ROCE_CC_PRIO_MASK_P1"], 0)
    return Settings(
        ecn_firmware=frozenset(number for number in PRIORITIES if mask >> number & 1),
        cnp_dscp=dscp("mstconfig", int(found["CNP_DSCP_P1"], 0)) if "CNP_DSCP_P1" in found else None,
        cnp_priority=priority("mstconfig", int(found["CNP_802P_PRIO_P1"], 0)) if "CNP_802P_PRIO_P1" in found else None,
    )
