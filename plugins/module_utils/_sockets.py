# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Who holds a port, from /proc alone: `ss` would load the kernel's diagnosis modules, and a check changes nothing.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ProbeError

#: What is said of a socket that no process in sight has.
UNSEEN = "the kernel, or a process that cannot be seen"
_TCP_LISTEN = "0A"
_UDP_UNCONNECTED = "07"


class Socket(NamedTuple):
    """A listening socket. One of the kernel's own, as WireGuard has, may have an ``inode`` like any other, or 0."""

    port: int
    inode: int


def parse_proc_net(text: str, state: str) -> list[Socket]:
    """Listening sockets of ``/proc/net/udp``, ``udp6``, ``tcp`` or ``tcp6``; ``state`` is the hexadecimal one."""
    sockets = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if not words:
            continue
        match = re.fullmatch(r"[0-9A-F]{8,32}:([0-9A-F]{4})", words[1]) if len(words) > 9 else None
        if match is None or not words[9].isdecimal():
            raise ParseError("/proc/net", "not a line about a socket", line)
        if words[3] == state:
            sockets.append(Socket(int(match[1], 16), parse_int("/proc/net", words[9])))
    return sockets


def port_holders(probe: HostProbe, protocol: str, port: int) -> list[str]:
    """``name (pid n)`` of whoever listens on a ``udp`` or ``tcp`` port; empty where it is no process in sight."""
    state = _UDP_UNCONNECTED if protocol == "udp" else _TCP_LISTEN
    sockets = parse_proc_net(probe.read(f"/proc/net/{protocol}"), state)
    # A kernel without IPv6 has no such file.
    sockets += parse_proc_net(probe.read_or_none(f"/proc/net/{protocol}6") or "", state)
    inodes = [socket.inode for socket in sockets if socket.port == port]
    if not inodes:
        return []
    owners = _owners(probe, {inode for inode in inodes if inode})
    return sorted({owners.get(inode, "") for inode in inodes})


def _owners(probe: HostProbe, inodes: set[int]) -> dict[int, str]:
    owners: dict[int, str] = {}
    for pid in probe.entries("/proc") if inodes else []:
        if not pid.isdecimal():
            continue
        try:
            links = [probe.link_target(f"/proc/{pid}/fd/{number}") for number in probe.entries(f"/proc/{pid}/fd")]
            name = probe.read(f"/proc/{pid}/comm")
        except ProbeError:
            continue  # ended meanwhile, or not ours to see
        for link in links:
            match = re.fullmatch(r"socket:\[(\d{1,20})\]", os.path.basename(link or ""))
            if match and int(match[1]) in inodes:
                owners[int(match[1])] = f"{name} (pid {pid})"
    return owners
