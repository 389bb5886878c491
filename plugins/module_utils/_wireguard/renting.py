# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The executor's renting ports, of which newer overlays get one for UDP (host-contract 2.1). Reads only.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._checks.executor import renting_ports
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: The variable that stands for the executor's own setting, and the two that the executor knows.
VARIABLE, SETTINGS = "lium_overlay_udp_range", ("RENTING_PORT_RANGE", "RENTING_PORT_MAPPINGS")

RANGE = Check(
    id="wg.range_udp_unverified",
    title="UDP of the renting ports",
    severity="degraded",
    expected="a handshake through at least one port of the executor's renting range",
    why="the platform verifies these ports over TCP only, and newer overlays get one of them for UDP",
    source=f"{VARIABLE} or the executor's .env, wireguard_probe",
)


class Range(NamedTuple):
    """The renting ports as they were written, or why there are none to prove."""

    text: str
    ports: frozenset[int]
    absence: str = ""


def renting_range(host: Host, given: str) -> Range:
    """The ports of ``given`` (``lium_overlay_udp_range``), without it those of the executor. ParseError on nonsense."""
    if given.strip():
        return Range(given, _ports(given.strip()))
    if host.executor_env is None:
        return Range("", frozenset(), f"no executor is installed here yet, and {VARIABLE} is not set")
    settings = key_values(host.executor_env)
    texts = [settings[key] for key in SETTINGS if settings.get(key)]
    if len(texts) != 1:
        return Range("", frozenset(), f"the executor's .env names {len(texts)} ranges, see executor.ports")
    return Range(texts[0], _ports(texts[0]))


def _ports(text: str) -> frozenset[int]:
    ports = frozenset(renting_ports(text))
    if not ports or not 0 < min(ports) <= max(ports) < 65536:
        raise ParseError("renting ports", "no ports from 1 to 65535", text)
    return ports


def port_to_prove(found: Range, overlay: Collection[int], free: Callable[[int], bool]) -> int:
    """The first free port of the range, which stands for all of them; 0 where none is free. One that is the overlay's
    as well is proven with that, so it is taken only where there is no other."""
    others = sorted(found.ports - set(overlay))
    return next(filter(free, others), 0) if others else min(found.ports, default=0)


def range_record(host: Host, given: str, overlay: Collection[int], free: Callable[[int], bool]) -> Record:
    """What one host can say of its range: that nobody has proven it."""
    try:
        found = renting_range(host, given)
    except ParseError as exc:
        if not given.strip():
            raise
        return RANGE.must_fix(
            f"{VARIABLE}={given}: {exc}",
            f"Write {VARIABLE} as the executor's RENTING_PORT_RANGE (9000-9009, or 9001,9002), or leave it out",
        )
    if found.absence:
        return RANGE.skipped(found.absence)
    port = port_to_prove(found, overlay, free)
    if not port:
        return RANGE.warn(f"each port of {found.text} is held, so none can be proven", "Free one of these UDP ports")
    return RANGE.warn(
        f"UDP of {found.text} is not proven by a look at one host",
        f"Run verify_wireguard between the hosts: it proves UDP {port}",
    )


def probe_port(host: Host, given: str, overlay: Collection[int], free: Callable[[int], bool]) -> int:
    """The port that a probe is to prove; 0 where there is none, for a reason that the record has."""
    try:
        return port_to_prove(renting_range(host, given), overlay, free)
    except (ProbeError, ParseError):
        return 0
