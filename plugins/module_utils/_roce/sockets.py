# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Whether something listens on a TCP port of this host, without touching it.

A connection would not do: perftest's server takes the first one for its client.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
import socket
import struct

_LISTEN = b"0A"
_ANY4 = b"00000000"
_ANY6 = b"0" * 32


def listens(port: int, address: str, proc: str = "/proc") -> bool:
    """Whether a socket listens on ``port`` of this IPv4 ``address`` or of all addresses.

    A table that cannot be read counts as "no": the caller's deadline judges then.
    """
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    own = b"%08X" % number
    mapped = b"0000000000000000FFFF0000" + own
    wanted = {
        "tcp": {b"%s:%04X" % (host, port) for host in (own, _ANY4)},
        "tcp6": {b"%s:%04X" % (host, port) for host in (mapped, _ANY6)},
    }
    return any(_among(os.path.join(proc, "net", table), names) for table, names in wanted.items())


def _among(table: str, names: set[bytes]) -> bool:
    """The table starts with the listening sockets; what comes after them can be long and is not read."""
    try:
        with open(table, "rb", buffering=8192) as stream:
            next(stream, None)
            for line in stream:
                fields = line.split(None, 4)
                if len(fields) < 4:
                    continue
                if fields[3] != _LISTEN:
                    return False
                if fields[1] in names:
                    return True
    except OSError:
        return False
    return False
