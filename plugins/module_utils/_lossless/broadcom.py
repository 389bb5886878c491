# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Broadcom's ``niccli`` and ``bnxtqos``, and the congestion control of bnxt_re (host-contract 4.3.3).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    ALL_PRIORITIES,
    DSCP,
    PCP,
    Settings,
    dscp,
    mapping,
    priority,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int

TOOL = "niccli"

_DSCP_SELECTOR = "5"
_ECT = 0b10


def parse_bnxt_qos(text: str) -> Settings:
    """``niccli … get_qos``, ``niccli … qos --ets --show`` or ``bnxtqos … get_qos``: one layout, three TLVs."""
    enabled = re.findall(r"^\s*PFC enabled:\s*(.*?)\s*$", text, re.MULTILINE)
    if len(enabled) != 1:
        raise ParseError(TOOL, "not one row of enabled priorities", text)
    words = [] if enabled[0] == "none" else re.split(r"[,\s]+", enabled[0])
    prio_map = _pairs(text, "PRIO_MAP")
    dscp_map = mapping(TOOL, _app_entries(text))
    shares = re.search(r"^\s*TC Bandwidth:\s*((?:\d{1,3}%\s*)+)$", text, re.MULTILINE)
    return Settings(
        pfc=frozenset(priority(TOOL, word) for word in words),
        trust=DSCP if dscp_map else PCP,
        dscp_map=dscp_map,
        tc_of={priority(TOOL, key): priority(TOOL, value) for key, value in prio_map.items()} or None,
        tsa={priority(TOOL, key): value for key, value in _pairs(text, "TSA_MAP").items()} or None,
        bandwidth=dict(enumerate(int(word) for word in re.findall(r"\d+", shares[1]))) if shares else None,
    )


def _pairs(text: str, name: str) -> dict[str, str]:
    match = re.search(rf"^\s*{name}:\s*(.*)$", text, re.MULTILINE)
    if match is None:
        return {}
    words = match[1].split()
    if not all(re.fullmatch(r"\d:\w+", word) for word in words):
        raise ParseError(TOOL, f"{name} is not understood", match[0])
    return dict(word.split(":") for word in words)


def _app_entries(text: str) -> list[tuple[int, int]]:
    """The DSCP entries of the APP TLV: blocks of priority, selector and value."""
    found = []
    for block in re.split(r"APP#\d+:", text)[1:]:
        fields = dict(re.findall(r"^\s*(Priority|Sel|DSCP):\s*(\d+)\s*$", block, re.MULTILINE))
        if "Priority" not in fields or "Sel" not in fields:
            raise ParseError(TOOL, "an APP entry that is not whole", block)
        if fields["Sel"] == _DSCP_SELECTOR:
            if "DSCP" not in fields:
                raise ParseError(TOOL, "a DSCP entry without a DSCP", block)
            found.append((dscp(TOOL, fields["DSCP"]), priority(TOOL, fields["Priority"])))
    return found


def parse_niccli_list(text: str, pci: str, netdev: str) -> str:
    """The index that older versions want for ``-dev``, from the row of ``niccli --list`` with this card."""
    for line in text.splitlines():
        match = re.match(r"\s*(\d{1,3})\b", line)
        if match and (pci.lower() in line.lower() or netdev in line.split()):
            return match[1]
    raise ParseError(f"{TOOL} --list", f"no row for {pci}", text)


def has_service_profile(info: str) -> bool:
    """``fw_service_prof_type_sup`` in the file ``info`` of debugfs: then the firmware owns DSCPs and priorities."""
    return re.search(r"^\s*fw_service_prof_type_sup\s*:\s*1\s*$", info, re.MULTILINE) is not None


def parse_bnxt_cc(files: Mapping[str, str], firmware_class: bool = False) -> Settings:
    """Congestion control from the files in configfs (``ecn_enable``, values in hex) or debugfs (``enable_cc``).

    It holds for the whole port. bnxt_re marks every RDMA packet with ``roce_dscp``, whatever the application asks for.
    """
    values = {name: _hex(name, text) for name, text in files.items()}
    switches = [values[name] for name in ("ecn_enable", "enable_cc") if name in values]
    marks = [values[name] for name in ("ecn_marking", "tos_ecn") if name in values]
    if not switches or not marks:
        raise ParseError("bnxt_re cc", "no switch of congestion control", ", ".join(sorted(files)))
    on = ALL_PRIORITIES if switches[0] and marks[0] else frozenset()
    forced = None
    if "roce_dscp" in values:
        forced = dscp("bnxt_re roce_dscp", values["roce_dscp"]) << 2 | (_ECT if marks[0] else 0)
    return Settings(
        forced_class=forced,
        can_force=None if forced is None else not firmware_class,
        firmware_class=firmware_class,
        ecn_np=on,
        ecn_rp=on,
        cnp_dscp=dscp("bnxt_re cnp_dscp", values["cnp_dscp"]) if "cnp_dscp" in values else None,
        cnp_priority=priority("bnxt_re cnp_prio", values["cnp_prio"]) if "cnp_prio" in values else None,
    )


def _hex(name: str, text: str) -> int:
    return parse_int(f"bnxt_re {name}", text, 16 if text.strip().lower().startswith("0x") else 10)
