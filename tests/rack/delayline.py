"""A delay line between ports of the switch: what a port gives is put back into it some time later, in order.

Run as a program: `delayline.py SECONDS PORT... READY`; READY is a file that is made once the ports are open.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
#: Larger than any frame; the kernel cuts oversized offloaded frames before it hands them over.
FRAME = 65536


def open_port(name: str) -> int:
    """The descriptor of an existing tap device."""
    port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return port


def carry(ports: list[int], seconds: float) -> None:
    """Delay frames until the process is ended."""
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for port in select.select(ports, [], [], timeout)[0]:
            waiting.append((time.monotonic() + seconds, port, os.read(port, FRAME)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, port, frame = waiting.popleft()
            os.write(port, frame)


def main() -> None:
    seconds, *names, ready = sys.argv[1:]
    ports = [open_port(name) for name in names]
    with open(ready, "w"):
        pass
    carry(ports, float(seconds))


if __name__ == "__main__":
    main()
