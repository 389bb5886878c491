# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``mlnx_qos -i IF`` of OFED and DOCA (host-contract 4.3.1), the most trusted source on mlx5.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re

from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    DSCP,
    FIRMWARE_CONTROLLED,
    OS_CONTROLLED,
    PCP,
    PRIORITIES,
    Settings,
    dscp,
    mapping,
    priority,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int

TOOL = "mlnx_qos"

_MODES = {"OS controlled": OS_CONTROLLED, "Firmware controlled": FIRMWARE_CONTROLLED}
_TC = re.compile(r"tc: (?P<tc>[0-7]) ratelimit: [^,]+, tsa: (?P<tsa>\w+)(, bw: (?P<bw>\d{1,3})%)?")


def parse_mlnx_qos(text: str) -> Settings:
    """Everything that the tool shows. Its rows of PFC must be there and whole; what else is missing stays None."""
    lines = text.splitlines()
    rows = _pfc_rows(lines)
    if "enabled" not in rows:
        raise ParseError(TOOL, "no row of enabled priorities", text)
    pfc = frozenset(index for index, value in enumerate(rows["enabled"]) if value)
    sizes = _buffer_sizes(_after(lines, "Receive buffer size (bytes):"))
    if (sizes is None) != ("buffer" not in rows):
        # The tool shows both or neither. With a hole in between, the row of buffers reads as that of PFC.
        raise ParseError(TOOL, "buffers are shown in part", text)
    buffer_of = dict(enumerate(rows["buffer"])) if "buffer" in rows else None
    trust = _after(lines, "Priority trust state:")
    cable = _after(lines, "Cable len:")
    tc_of, tsa, bandwidth = _traffic_classes(lines)
    return Settings(
        pfc=pfc,
        trust=trust if trust in (DSCP, PCP) else None,
        dscp_map=_dscp_map(lines) if trust == DSCP else {} if trust == PCP else None,
        tc_of=tc_of or None,
        tsa=tsa or None,
        bandwidth=bandwidth if tsa else None,
        buffer_of=buffer_of,
        buffer_sizes=sizes,
        cable_length=None if cable is None else parse_int(TOOL, cable),
        dcbx=_MODES.get(_after(lines, "DCBX mode:") or ""),
        lldpad=True if any("WARNING: lldpad service is running" in line for line in lines) else None,
    )


def _after(lines: list[str], head: str) -> str | None:
    return next((line.partition(head)[2].strip() for line in lines if line.startswith(head)), None)


def _dscp_map(lines: list[str]) -> dict[int, int] | None:
    """A priority's list wraps after some values, so that several lines of one priority are usual."""
    if "dscp2prio mapping:" not in [line.strip() for line in lines]:
        return None
    pairs = []
    for line in lines:
        match = re.fullmatch(r"\s*prio:(\d+) dscp:([\d,]*)", line.rstrip())
        if match:
            pairs += [(dscp(TOOL, item), priority(TOOL, match[1])) for item in match[2].split(",") if item]
    return mapping(TOOL, pairs)


def _pfc_rows(lines: list[str]) -> dict[str, list[int]]:
    """The rows below ``PFC configuration:``, by name. The row of buffers has the very shape of that of PFC."""
    rows: dict[str, list[int]] = {}
    inside = False
    for line in lines:
        if line.startswith("PFC configuration:"):
            inside = True
        elif inside and line[:1].isspace() and line.split():
            name, *values = line.split()
            allowed = ("0", "1") if name == "enabled" else tuple(map(str, PRIORITIES))
            if len(values) != len(PRIORITIES) or not set(values) <= set(allowed):
                raise ParseError(TOOL, "not one value a priority", line)
            if name == "priority" and values != list(map(str, PRIORITIES)):
                raise ParseError(TOOL, "another order of priorities", line)
            rows[name] = [int(value) for value in values]
        else:
            inside = False
    if rows and "priority" not in rows:
        raise ParseError(TOOL, "no row of priorities")
    return rows


def _buffer_sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(parse_int(TOOL, item) for item in text.split(",") if item and "=" not in item)


def _traffic_classes(lines: list[str]) -> tuple[dict[int, int], dict[int, str], dict[int, int]]:
    tc_of: list[tuple[int, int]] = []
    tsa: dict[int, str] = {}
    bandwidth: dict[int, int] = {}
    current: int | None = None
    for line in lines:
        match = _TC.fullmatch(line.strip())
        if match:
            current = int(match["tc"])
            tsa[current] = match["tsa"]
            if match["bw"] is not None:
                bandwidth[current] = int(match["bw"])
        elif line.startswith("tc:"):
            raise ParseError(TOOL, "a traffic class that is not understood", line)
        elif current is not None and line.strip().startswith("priority:"):
            tc_of.append((priority(TOOL, line.partition(":")[2]), current))
    return mapping(TOOL, tc_of), tsa, bandwidth
