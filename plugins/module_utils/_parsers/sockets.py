# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Who holds a port: ``ss`` (host-contract 2.3).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError

_PROCESS = re.compile(r'users:\(\("(?P<name>[^"]*)",pid=(?P<pid>\d+)')


class Socket(NamedTuple):
    """A listening socket. ``process`` is empty for one of the kernel's own, as WireGuard in the kernel has it."""

    local: str
    process: str


def parse_ss(text: str) -> list[Socket]:
    """Lines of ``ss -lunpH`` or ``ss -ltnpH``."""
    sockets = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) < 5 or ":" not in words[3]:
            raise ParseError("ss", "not a line about a socket", line)
        match = _PROCESS.search(line)
        sockets.append(Socket(words[3], f"{match['name']} (pid {match['pid']})" if match else ""))
    return sockets
