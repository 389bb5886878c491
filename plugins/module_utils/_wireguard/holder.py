# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The process that a probe leaves on a host between its tasks: it holds the lock, watches the wire, and cleans up.

It ends when it is told to, or by itself when no step of its play has come for its lifetime, so that an interrupted play
leaves nothing behind.

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
from typing import Any, NamedTuple

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
        raise Busy(_who_is_busy()) from exc
    return descriptor


def _who_is_busy() -> str:
    found = leftover(read_state("state.json"), start_time)
    return f"{found.what}. {found.fix}" if found.alive else "another network test runs on this host (it holds the lock)"


def write_state(name: str, value: Any) -> None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    _replace_state(name, value)


def _replace_state(name: str, value: Any) -> None:
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
    return parse_start_time(text)


def parse_start_time(stat: str) -> str | None:
    """The start time in a text of ``/proc/PID/stat``; None for a process that has ended and waits for its parent."""
    fields = stat.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] == "Z" else fields[19]


def lease(lifetime: float) -> dict[str, Any]:
    """Until when a probe waits for the next step: ``until`` by the clock that the holder goes by, ``until_utc`` for
    people."""
    end = time.gmtime(time.time() + lifetime)
    return {
        "lifetime": lifetime,
        "until": time.monotonic() + lifetime,
        "until_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", end),
    }


def renew(state: dict[str, Any]) -> None:
    """A step of the play has come: the probe has its whole lifetime before it again. Raises OSError when it is gone."""
    _replace_state("state.json", {**state, **lease(state["lifetime"])})


class Leftover(NamedTuple):
    """A probe that stands on a host: what it is, how to end it, and whether its holder is there to do so."""

    what: str
    fix: str
    alive: bool


def leftover(state: Any, start_of: Callable[[int], str | None]) -> Leftover:
    """What a probe's own note says of it; ``start_of`` answers when a process was started."""
    known = state if isinstance(state, dict) else {}
    found = known.get("holder")
    if not found or found["start"] is None or start_of(int(found["pid"])) != found["start"]:
        return Leftover(
            "left by a verify_wireguard that was killed",
            "Run verify_wireguard again, which takes it away",
            False,
        )
    until = known.get("until_utc", "an unknown time")
    return Leftover(
        f"the probe of another verify_wireguard, which runs now or was interrupted (process {found['pid']}, waits for"
        f" its next step until {until})",
        f"Wait for it to end, at {until} at the latest when its play was interrupted, or run `kill {found['pid']}` as"
        " root on the host, which frees the port",
        True,
    )


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
        if _hold(sniffer, lifetime, _renewed):
            write_state("wire.json", [[*key, count] for key, count in sniffer.counts.items()])
        else:
            # Nobody has come for it within its time, and nobody will.
            shutil.rmtree(FOLDER, ignore_errors=True)
    finally:
        clean_up()
        os._exit(0)
    raise AssertionError("the holder ends above")


def _renewed() -> float:
    """Until when the steps of the play have asked this holder to wait; 0 where nobody has."""
    try:
        state = read_state("state.json")
        return float(state["until"]) if state["holder"]["pid"] == os.getpid() else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _hold(sniffer: Sniffer, lifetime: float, renewed: Callable[[], float]) -> bool:
    """Watches the wire. True when told to end, False when the lifetime is over and no step has renewed it."""
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
        while (left := end - time.monotonic()) > 0 or (left := (end := renewed()) - time.monotonic()) > 0:
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
