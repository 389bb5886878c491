# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The process that a probe leaves on a host between its tasks: it holds the lock, watches the wire, and cleans up.

It ends when it is told to, or by itself after its lifetime, so that an interrupted play leaves nothing behind.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._wireguard.sniffer import Sniffer

#: Shared by all tests that use the network, the RDMA tests as well (host-contract 2.6).
LOCK = "/run/lock/lium-net-probe.lock"
FOLDER = "/run/lium-wg-probe"
#: The signals that tell the holder to clean up and end.
TOLD = (signal.SIGTERM, signal.SIGINT)


class Busy(Exception):
    """Another test runs on this host."""


def take_lock(path: str = LOCK) -> int:
    """The lock's descriptor; it is released when the last process that has it ends."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise Busy("another network test runs on this host (it holds the lock)") from exc
    return descriptor


def write_state(name: str, value: Any) -> None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    path = os.path.join(FOLDER, name)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        json.dump(value, stream)
    os.replace(f"{path}.new", path)


def read_state(name: str) -> Any:
    """What an earlier task wrote; None when there is nothing."""
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None


def start_time(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: with its pid it names the process for good. None when gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            text = stream.read()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def leave_behind(
    lock: int, addresses: Sequence[str], ports: Sequence[int], lifetime: float, clean_up: Callable[[], None]
) -> dict[str, Any]:
    """Starts the holder and answers how it is found again. The caller must not clean up any more."""
    sniffer = Sniffer(addresses, ports)
    # Until the holder can hear it, a signal waits: one that came earlier would end it with nothing cleaned up.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sniffer.close()
        return {"pid": pid, "start": start_time(pid)}
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, min(lock, sniffer.fileno()))
        if _hold(sniffer, lifetime):
            write_state("wire.json", [[*key, count] for key, count in sniffer.counts.items()])
        else:
            # Nobody has come for it within its time, and nobody will.
            shutil.rmtree(FOLDER, ignore_errors=True)
    finally:
        clean_up()
        os._exit(0)
    raise AssertionError("the holder ends above")


def _hold(sniffer: Sniffer, lifetime: float) -> bool:
    """Watches the wire. True when told to end, False when the lifetime is over."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.set_wakeup_fd(writer)
    for number in TOLD:
        signal.signal(number, lambda _number, _frame: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
    end = time.monotonic() + lifetime
    with selectors.DefaultSelector() as selector:
        selector.register(sniffer.fileno(), selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            for key, _events in selector.select(left):
                if key.fd == reader:
                    return True
                sniffer.take()
    return False


def end_holder(found: dict[str, Any], patience: float = 300.0) -> bool:
    """Tells the holder to clean up and end, and waits for it. False when it was gone already, or will not end."""
    pid, start = int(found["pid"]), found["start"]
    if start is None or start_time(pid) != start:
        return False
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if start_time(pid) != start:
            return True
        time.sleep(0.05)
    return False
