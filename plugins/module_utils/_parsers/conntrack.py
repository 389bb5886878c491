# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Tracked flows, as ``conntrack -L`` and ``/proc/net/nf_conntrack`` print them (host-contract 2.4).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int


class Flow(NamedTuple):
    """One flow: protocol, who sent to which address and port, and from where the replies come."""

    protocol: str
    source: str
    destination: str
    destination_port: int
    reply_source: str


def parse_conntrack(text: str) -> list[Flow]:
    """UDP and TCP flows; a line holds ``src=``, ``dst=`` and ``dport=`` twice, for the way there and the way back."""
    flows = []
    for line in text.splitlines():
        words = line.split()
        protocol = next((word for word in words[:3] if word in ("udp", "tcp")), None)
        if protocol is None:
            continue
        sources = [word[len("src=") :] for word in words if word.startswith("src=")]
        destinations = [word[len("dst=") :] for word in words if word.startswith("dst=")]
        ports = [word[len("dport=") :] for word in words if word.startswith("dport=")]
        if len(sources) != 2 or not destinations or not ports:
            raise ParseError("conntrack", "not a tracked flow", line)
        flows.append(Flow(protocol, sources[0], destinations[0], parse_int("conntrack", ports[0]), sources[1]))
    return flows
