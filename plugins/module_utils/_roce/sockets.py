# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Whether something listens on a TCP port of this host, without touching it.

A connection would not do: perftest's server takes the first one for its client. The kernel is asked over netlink for
the listening sockets of that port alone, as ``ss`` does (host-contract 5.2). /proc/net/tcp makes the kernel walk its
whole table of connections: milliseconds at each look, at the moment when a test is about to start. It is the way out
where netlink is not to be had, or where asking would load a kernel module: a look leaves a host as it is.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
from collections.abc import Iterator

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_STATE_LISTEN = 1 << 10
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_SOCKET_ID = "!HH16s16s8s4s"  # inet_diag_sockid: source and destination port, both addresses, interface, cookie
_REQUEST = struct.Struct("=BBBBI")  # inet_diag_req_v2 before its socket: family, protocol, extensions, padding, states
_PATIENCE_S = 1.0

_LISTEN = b"0A"
_ANY4 = b"00000000"
_ANY6 = b"0" * 32


def listens(port: int, address: str, proc: str = "/proc") -> bool:
    """Whether a socket listens on ``port`` of this IPv4 ``address`` or of all addresses.

    What cannot be read counts as "no": the caller's deadline judges then.
    """
    own = socket.inet_aton(address)
    mapped = bytes(10) + b"\xff\xff" + own
    if asking_loads_a_module():
        return listens_by_tables(port, address, proc)
    try:
        return any(found[:4] in (own, bytes(4)) for found in _listeners(socket.AF_INET, port)) or any(
            found in (mapped, bytes(16)) for found in _listeners(socket.AF_INET6, port)
        )
    except OSError:
        return listens_by_tables(port, address, proc)


@functools.cache
def asking_loads_a_module(root: str = "/") -> bool:
    """Whether the kernel would load tcp_diag for the answer: it is a module of this kernel, and not loaded."""
    try:
        with open(os.path.join(root, "proc/modules"), encoding="ascii") as stream:
            if any(line.startswith("tcp_diag ") for line in stream):
                return False
        release = os.uname().release
        with open(os.path.join(root, "lib/modules", release, "modules.dep"), encoding="utf-8") as stream:
            return "/tcp_diag.ko" in stream.read()
    except OSError:
        return False  # a kernel without modules has it built in, or not at all


def _listeners(family: int, port: int) -> Iterator[bytes]:
    """The 16 bytes of address of each socket of a family that listens on the port. Raises ``OSError``."""
    wanted = struct.pack(_SOCKET_ID, port, 0, b"", b"", b"", b"")
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATE_LISTEN) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0) + body)
        while True:
            answer = kernel.recv(65536)
            while answer:
                length, kind, *_ = _HEADER.unpack_from(answer)
                content, answer = answer[_HEADER.size : length], answer[(length + 3) & ~3 :]
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", content)
                    raise OSError(-code, os.strerror(-code))
                source, _, found, *_ = struct.unpack_from(_SOCKET_ID, content, 4)
                if source == port:
                    yield found


def listens_by_tables(port: int, address: str, proc: str = "/proc") -> bool:
    """The same from the tables of /proc."""
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
