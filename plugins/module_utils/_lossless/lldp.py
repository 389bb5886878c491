# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the switch announces: ``lldptool`` of OpenLLDP and ``lldpcli`` of lldpd (host-contract 4.3.5).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    DSCPS,
    PRIORITIES,
    Peer,
    dscp,
    mapping,
    priority,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json

LLDPTOOL, LLDPCLI = "lldptool", "lldpcli"

_SEL_UDP = (3, 4)
_SEL_DSCP = 5
_OUI = "00,80,C2"
_PFC_SUBTYPE, _APP_SUBTYPE = 11, 12
#: The tool ends a line of DSCP values with a backspace character.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: OpenLLDP before and after its one-line form: "App#0:" with rows below, "App#   0 … Prio 3 … P-ID …".
_APP_BLOCK = re.compile(r"App#\s*\d+")


def parse_lldptool(text: str) -> Peer:
    """``lldptool -t -n -i IF`` (the neighbour) or ``lldptool -t -i IF`` (the host itself)."""
    text = _CONTROL.sub("", text)
    sections = _sections(text)
    if not sections:
        raise ParseError(LLDPTOOL, "no TLV", text)
    pfc: frozenset[int] | None = None
    pairs_dscp: list[tuple[int, int]] = []
    pairs_udp: list[tuple[int, int]] = []
    for title, body in sections:
        if title == "IEEE 8021QAZ PFC TLV":
            pfc = _enabled(r"^\s*PFC enabled:(.*)$", body)
        elif title == "CEE DCBX TLV" and pfc is None:
            pfc = _enabled(r"^\s*PFC enabled priorities:(.*)$", body)
        elif title == "IEEE 8021QAZ APP TLV":
            _read_apps(body, pairs_dscp, pairs_udp)
    bodies = dict(sections)
    return Peer(
        system=bodies.get("System Name TLV", "").strip(),
        port=bodies.get("Port ID TLV", "").partition(":")[2].strip(),
        pfc=pfc,
        dscp_map=mapping(LLDPTOOL, pairs_dscp),
        udp_map=mapping(LLDPTOOL, pairs_udp),
    )


def _sections(text: str) -> list[tuple[str, str]]:
    """TLVs as (title, text below it). Only titles stand at the beginning of a line."""
    sections: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line and not line[0].isspace() and line.rstrip().endswith("TLV"):
            sections.append((line.strip(), ""))
        elif sections and line.strip():
            title, body = sections[-1]
            sections[-1] = (title, f"{body}{line}\n")
    return sections


def _enabled(pattern: str, body: str) -> frozenset[int]:
    match = re.search(pattern, body, re.MULTILINE)
    if match is None:
        raise ParseError(LLDPTOOL, "a PFC TLV without its priorities", body)
    words = [word for word in re.split(r"[,\s]+", match[1]) if word and word != "none"]
    return frozenset(priority(LLDPTOOL, word) for word in words)


def _read_apps(body: str, pairs_dscp: list[tuple[int, int]], pairs_udp: list[tuple[int, int]]) -> None:
    for line in body.splitlines():
        match = re.search(r"Prio:\s*(\d+)\s+dscp:([\s\d,]*)$", line)
        if match:
            values = [value.strip() for value in match[2].split(",")]
            pairs_dscp += [(dscp(LLDPTOOL, value), priority(LLDPTOOL, match[1])) for value in values if value]
    for block in _APP_BLOCK.split(body)[1:]:
        number = re.search(r"Prio(?:rity)?:?\s*(\d+)", block)
        if number is None:
            raise ParseError(LLDPTOOL, "an APP entry without a priority", block)
        port = re.search(r"UDP or DCCP(?: Port)?:\s*(\d{1,5})", block)
        if port:
            pairs_udp.append((int(port[1]), priority(LLDPTOOL, number[1])))
        value = re.search(r"\bDSCP:\s*(\d+)", block)
        if value:
            pairs_dscp.append((dscp(LLDPTOOL, value[1]), priority(LLDPTOOL, number[1])))


def parse_lldpcli(text: str) -> Peer:
    """``lldpcli -f json0 show neighbors details ports IF``. DCBX arrives as TLVs that lldpd does not know, as bytes."""
    answer = load_json(LLDPCLI, text)
    if not isinstance(answer, dict) or "lldp" not in answer:
        raise ParseError(LLDPCLI, "not an answer of lldpcli", text)
    pfc: frozenset[int] | None = None
    pairs_dscp: list[tuple[int, int]] = []
    pairs_udp: list[tuple[int, int]] = []
    for tlv in _unknown_tlvs(answer):
        subtype, value = str(tlv["subtype"]), _octets(str(tlv.get("value", "")))
        if subtype == str(_PFC_SUBTYPE):
            if len(value) != 2:
                raise ParseError(LLDPCLI, "a PFC TLV of another length", str(tlv))
            seen = frozenset(number for number in PRIORITIES if value[1] >> number & 1)
            if pfc not in (None, seen):
                raise ParseError(LLDPCLI, "several neighbours on one port, with different PFC", str(tlv))
            pfc = seen
        elif subtype == str(_APP_SUBTYPE):
            for offset in range(1, len(value) - 2, 3):
                first, protocol = value[offset], value[offset + 1] << 8 | value[offset + 2]
                if first & 7 == _SEL_DSCP and protocol in DSCPS:
                    pairs_dscp.append((protocol, first >> 5))
                elif first & 7 in _SEL_UDP:
                    pairs_udp.append((protocol, first >> 5))
    return Peer(
        system=_first(answer, "chassis", "name"),
        port=_first(answer, "port", "id"),
        pfc=pfc,
        dscp_map=mapping(LLDPCLI, pairs_dscp),
        udp_map=mapping(LLDPCLI, pairs_udp),
    )


def _octets(text: str) -> bytes:
    try:
        return bytes(int(word, 16) for word in text.split(",") if word)
    except ValueError as exc:
        raise ParseError(LLDPCLI, "not bytes", text) from exc


def _walk(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects of an answer, outer ones first. Between versions, lists come and go around one object."""
    queue = [value]
    while queue:
        item = queue.pop(0)
        if isinstance(item, dict):
            yield item
            queue += item.values()
        elif isinstance(item, list):
            queue += item


def _unknown_tlvs(answer: Any) -> Iterator[Mapping[str, Any]]:
    for item in _walk(answer):
        if str(item.get("oui", "")).upper() == _OUI and "subtype" in item:
            yield item


def _first(answer: Any, part: str, key: str) -> str:
    """``[{"chassis": [{"name": [{"value": "leaf01"}]}]}]`` -> leaf01; empty when it is not there."""
    for item in _walk(answer):
        for inner in _walk(item.get(part, [])):
            for value in _walk(inner.get(key, [])):
                if isinstance(value.get("value"), str):
                    return value["value"]
    return ""
