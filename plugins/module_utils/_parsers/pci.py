# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Capabilities that only ``lspci -vvv`` shows (host-contract 1.E).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError

_HEAD = re.compile(r"(?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>.*)")


@dataclasses.dataclass(frozen=True)
class PciFunction:
    """One device of the listing. ``acs``, ``ats`` and ``control`` are the flags after their word, or None without."""

    address: str
    kind: str
    acs: frozenset[str] | None
    ats: frozenset[str] | None
    control: frozenset[str]

    @property
    def bridge(self) -> bool:
        return self.kind.startswith("PCI bridge")

    @property
    def redirects(self) -> bool:
        """Whether peer-to-peer traffic is sent up to the root complex."""
        return bool(self.acs and self.acs & {"ReqRedir+", "CmpltRedir+"})


def parse_lspci(text: str) -> dict[str, PciFunction]:
    """``lspci -D -vvv`` by address. Without root lspci prints ``<access denied>`` for capabilities: a ParseError."""
    functions: dict[str, PciFunction] = {}
    current = None
    for line in text.splitlines():
        match = _HEAD.match(line)
        if match:
            current = PciFunction(match["address"], match["kind"], None, None, frozenset())
            functions[current.address] = current
            continue
        if "<access denied>" in line:
            raise ParseError("lspci -vvv", "capabilities are shown to root only", line)
        word, found, flags = line.strip().partition(":")
        if current is None or not found:
            continue
        values = frozenset(flags.split())
        if word == "ACSCtl":
            current = dataclasses.replace(current, acs=values)
        elif word == "ATSCtl":
            current = dataclasses.replace(current, ats=frozenset(value.rstrip(",") for value in values))
        elif "RlxdOrd+" in values or "RlxdOrd-" in values:
            current = dataclasses.replace(current, control=current.control | values)
        functions[current.address] = current
    return functions
