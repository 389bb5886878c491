# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``dcb`` of iproute2, as JSON and as text (host-contract 4.3.2): the source that every driver with DCB has.

Its exit code decides, not its texts: a failure may print "Success".

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from typing import Any

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
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json

TOOL = "dcb"

#: Names that the tool prints without ``-N``, besides CSn and AFxy.
_DSCP_NAMES = {"EF": 46, "VOICE-ADMIT": 44, "LE": 1}
_APP_SECTIONS = ("ethtype", "default", "dscp", "stream-port", "dgram-port", "port", "pcp")
_DCBX_FLAGS = ("host", "lld-managed", "cee", "ieee", "static")
_UNITS = {"b": 1, "Kb": 1024, "Mb": 1024**2}


def parse_dcb_pfc(text: str) -> Settings:
    """``dcb [-j] [-s] pfc show dev IF``: the priorities that PFC is on for, and its delay.

    The delay is what mlx5 takes for the length of the cable in metres; other drivers mean something else by it.
    """
    values = _object(text)
    if values is None:
        words = [_on(word) for word in _by_priority(_lines(text), "prio-pfc")]
        delay = re.search(r"\bdelay (\d{1,5})\b", text)
        cable = int(delay[1]) if delay else None
        return Settings(pfc=frozenset(index for index, on in enumerate(words) if on), cable_length=cable)
    states = values.get("prio_pfc")
    if not isinstance(states, list) or len(states) != len(PRIORITIES) or not all(isinstance(on, bool) for on in states):
        raise ParseError(TOOL, "prio_pfc is not one boolean a priority", text)
    cable = _number(values["delay"]) if "delay" in values else None
    return Settings(pfc=frozenset(index for index, on in enumerate(states) if on), cable_length=cable)


def parse_dcb_app(text: str) -> Settings:
    """``dcb [-j] [-N] app show dev IF``. Any DSCP entry makes the driver trust DSCP; no output is no entry."""
    values = _object(text) if text.strip() else {}
    if values is None:
        lines = _lines(text)
        unknown = [name for name in lines if name.rpartition("-")[0] not in _APP_SECTIONS and name != "default-prio"]
        if unknown:
            raise ParseError(TOOL, "not a section of app", unknown[0])
        pairs = [_app_pair(entry) for entry in lines.get("dscp-prio", [])]
    else:
        rows = values.get("dscp_prio", [])
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise ParseError(TOOL, "dscp_prio is not a list of pairs", text)
        pairs = [(dscp(TOOL, _number(key)), priority(TOOL, _number(value))) for key, value in rows]
    found = mapping(TOOL, pairs)
    return Settings(trust=DSCP if found else PCP, dscp_map=found)


def parse_dcb_ets(text: str) -> Settings:
    """``dcb [-j] ets show dev IF``: traffic classes, how they are served, and their share in percent."""
    values = _object(text)
    if values is None:
        lines = _lines(text)
        values = {name.replace("-", "_"): _by_priority(lines, name) for name in ("prio-tc", "tc-tsa", "tc-bw")}
    rows: list[list[Any]] = []
    for name in ("prio_tc", "tc_tsa", "tc_bw"):
        row = values.get(name)
        if not isinstance(row, list) or len(row) != len(PRIORITIES):
            raise ParseError(TOOL, f"{name} does not show all traffic classes", text)
        rows.append(row)
    prio_tc, tsa, shares = rows
    return Settings(
        tc_of={index: priority(TOOL, _number(tc)) for index, tc in enumerate(prio_tc)},
        tsa={index: str(name) for index, name in enumerate(tsa)},
        bandwidth={index: _number(share) for index, share in enumerate(shares)},
    )


def parse_dcb_buffer(text: str) -> Settings:
    """``dcb [-j] buffer show dev IF``: the receive buffer of each priority, and their sizes in bytes."""
    values = _object(text)
    if values is None:
        lines = _lines(text)
        values = {
            "prio_buffer": _by_priority(lines, "prio-buffer"),
            "buffer_size": [_size(word) for word in _by_priority(lines, "buffer-size")],
        }
    buffers, sizes = values.get("prio_buffer"), values.get("buffer_size")
    if not isinstance(buffers, list) or not isinstance(sizes, list) or len(buffers) != len(PRIORITIES) or not sizes:
        raise ParseError(TOOL, "buffer does not show all priorities", text)
    return Settings(
        buffer_of={index: priority(TOOL, _number(buffer)) for index, buffer in enumerate(buffers)},
        buffer_sizes=tuple(_number(size) for size in sizes),
    )


def parse_dcb_dcbx(text: str) -> Settings:
    """``dcb [-j] dcbx show dev IF``: whether the system or the card's firmware negotiates."""
    values = _object(text)
    if values is None:
        flags = set(text.split())
    else:
        flags = {name.replace("_", "-") for name, on in values.items() if on is True}
    if not flags or not flags <= set(_DCBX_FLAGS):
        raise ParseError(TOOL, "not the flags of dcbx", text)
    return Settings(dcbx=FIRMWARE_CONTROLLED if "lld-managed" in flags else OS_CONTROLLED if "host" in flags else None)


def _object(text: str) -> dict[str, Any] | None:
    """The plain object of ``-j``; None for text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    values = load_json(TOOL, text)
    if not isinstance(values, dict):
        raise ParseError(TOOL, "not an object", text)
    return values


def _lines(text: str) -> dict[str, list[str]]:
    """``name word word …`` by name. A name may return when its words do not fit a line."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if words:
            found.setdefault(words[0], []).extend(words[1:])
    return found


def _by_priority(lines: dict[str, list[str]], name: str) -> list[str]:
    """Values of ``0:a 1:b … 7:h``, which must all be there, once."""
    pairs = [word.partition(":")[::2] for word in lines.get(name, [])]
    values = dict(pairs)
    if len(pairs) != len(PRIORITIES) or set(values) != set(map(str, PRIORITIES)):
        raise ParseError(TOOL, f"{name} is not one value a priority", " ".join(lines.get(name, [])))
    return [values[str(index)] for index in PRIORITIES]


def _on(word: str) -> bool:
    if word not in ("on", "off"):
        raise ParseError(TOOL, "neither on nor off", word)
    return word == "on"


def _app_pair(entry: str) -> tuple[int, int]:
    key, _colon, value = entry.partition(":")
    return _dscp_number(key), priority(TOOL, value)


def _dscp_number(name: str) -> int:
    if name in _DSCP_NAMES:
        return _DSCP_NAMES[name]
    match = re.fullmatch(r"CS([0-7])|AF([1-4])([1-3])", name)
    if match:
        return 8 * int(match[1]) if match[1] else 8 * int(match[2]) + 2 * int(match[3])
    return dscp(TOOL, name)


def _number(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,10}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(TOOL, "not a number", str(value))
    return value


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(b|Kb|Mb)", word)
    if match is None:
        raise ParseError(TOOL, "not a size", word)
    return int(float(match[1]) * _UNITS[match[2]])
