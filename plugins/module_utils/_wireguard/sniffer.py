# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Counts a probe's UDP packets on the wire of this host, before its firewall takes them and after it let them go.

That is what tells "dropped by this host" from "never arrived", which no end can tell from its socket.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import collections
import ctypes
import socket
import struct
from collections.abc import Iterable

#: What a packet is in a directed test: the sender's request to the probed port, or the receiver's answer from it.
REQUEST_IN, REQUEST_OUT, ANSWER_IN, ANSWER_OUT = "request_in", "request_out", "answer_in", "answer_out"

#: Sockets for one protocol see no packet that leaves; those for all do.
_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER = 26
#: Different senders that are kept apart; more than any fabric has, and no memory for a flood.
_MAX_KEYS = 4096

# "IPv4 and UDP" for a SOCK_DGRAM packet socket, where the IP header stands first: the kernel's note of the protocol is
# 0x0800, and byte 9 is 17. Of what passes 64 bytes are kept.
_UDP_ONLY = [
    (0x28, 0, 0, 0xFFFFF000),
    (0x15, 0, 3, 0x0800),
    (0x30, 0, 0, 9),
    (0x15, 0, 1, 17),
    (0x06, 0, 0, 64),
    (0x06, 0, 0, 0),
]


class Sniffer:
    """Counts by (what, other host's address, probed port). ``addresses`` are this host's own."""

    def __init__(self, addresses: Iterable[str], ports: Iterable[int]) -> None:
        self._own = {socket.inet_aton(address) for address in addresses}
        self._ports = set(ports)
        self.counts: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        _attach_filter(self._socket, _UDP_ONLY)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def take(self) -> None:
        """Takes one packet; call it when the socket is readable."""
        data, _address = self._socket.recvfrom(64)
        key = classify(data, self._own, self._ports)
        if key is not None and (key in self.counts or len(self.counts) < _MAX_KEYS):
            self.counts[key] += 1


def classify(data: bytes, own: set[bytes], ports: set[int]) -> tuple[str, str, int] | None:
    """What an IPv4 packet is for the probe. One that Docker has rewritten has no own address and does not count."""
    if len(data) < 28 or data[0] >> 4 != 4 or data[9] != 17:
        return None
    header = (data[0] & 0x0F) * 4
    if struct.unpack_from("!H", data, 6)[0] & 0x1FFF or len(data) < header + 4:
        return None  # a later fragment has no ports
    source, destination = data[12:16], data[16:20]
    source_port, destination_port = struct.unpack_from("!HH", data, header)
    if destination in own and destination_port in ports:
        return REQUEST_IN, socket.inet_ntoa(source), destination_port
    if source in own and destination_port in ports:
        return REQUEST_OUT, socket.inet_ntoa(destination), destination_port
    if destination in own and source_port in ports:
        return ANSWER_IN, socket.inet_ntoa(source), source_port
    if source in own and source_port in ports:
        return ANSWER_OUT, socket.inet_ntoa(destination), source_port
    return None


def _attach_filter(raw: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    """Lets the kernel sort out all but UDP, so that a busy host does not wake the probe for each packet."""
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    raw.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(buffer)))
