# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The ``rdma`` tool of iproute2 (host-contract 3.1, rdma.netns_mode).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed


@dataclasses.dataclass(frozen=True)
class Link:
    """One line of ``rdma link``; ``netdev`` is None on InfiniBand and where the driver names none."""

    device: str
    port: int
    state: str
    physical_state: str
    netdev: str | None


def parse_rdma_link(text: str) -> list[Link]:
    """Text form: ``link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp25s0np0``."""
    links = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        device, slash, port = words[1].partition("/") if len(words) > 1 else ("", "", "")
        if words[0] != "link" or not slash or not device:
            raise ParseError("rdma link", "not a line about a link", line)
        pairs = dict(zip(words[2::2], words[3::2]))
        links.append(_link(device, port, pairs))
    return links


def parse_rdma_link_json(text: str) -> list[Link]:
    """JSON form, as ``rdma -j link`` prints it."""
    rows = load_json("rdma -j link", text)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError("rdma -j link", "not a list of links", text)
    return [_link(str(row.get("ifname", "")), str(row.get("port", "")), row) for row in rows]


def _link(device: str, port: str, fields: dict[str, object]) -> Link:
    netdev = fields.get("netdev")
    return Link(
        device=device,
        port=parse_int("rdma link", port),
        state=str(fields.get("state", "")),
        physical_state=str(fields.get("physical_state", "")),
        netdev=str(netdev) if netdev else None,
    )


def parse_netns_mode(done: Completed) -> str:
    """``shared`` or ``exclusive``: the word after ``netns``, whatever else the version prints.

    A tool too old for the command raises ParseError that names what is needed.
    """
    if done.rc != 0:
        if "Unknown object" in done.stderr:
            raise ParseError("rdma system show", "iproute2 too old, needs `rdma system`", done.stderr)
        raise ParseError("rdma system show", "failed", done.first_error)
    words = done.stdout.split()
    if "netns" in words[:-1]:
        mode = words[words.index("netns") + 1]
        if mode in ("shared", "exclusive"):
            return mode
    raise ParseError("rdma system show", "no netns mode", done.stdout)
