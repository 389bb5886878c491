# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What counters prove after an incast (host-contract 4.6): that nothing is lost, that something is, and where.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._lossless.counters import NAMES
from ansible_collections.lium.cluster.plugins.module_utils._lossless.verdict import (
    EXERCISED_LOSS,
    EXERCISED_OK,
    NOT_EXERCISED,
    UNCLEAR,
)

#: Queue pair counters of cards are this wide; those of ``ethtool -S`` have 64 bits and do not come round.
WRAP = 2**32
#: No error counter moves this far in a test: what seems so was set to zero in between, by a driver that started anew.
_IMPLAUSIBLE = WRAP // 2

#: The places where packets can get lost.
HOST_BUFFERS, SWITCH, WRONG_CLASS, BLACKHOLE, CABLE = "host buffers", "switch", "wrong class", "blackhole", "cable"

#: "About line rate", and "collapsed", as parts of it.
_LINE, _COLLAPSED = 0.9, 0.1
#: Counters that show a sender being held back.
_MECHANISM = ("pause_sent", "pause_received", "ecn")
#: Pause frames that a switch cannot have swallowed with its own buffers.
_HUGE_PAUSE = 10_000
#: Lost packets that a fabric without PFC may have.
_ECN_ONLY_TOLERANCE = 1e-6
_PACKET = 4096


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Counters of one rail at one moment: those of ``ethtool -S``, and those of its queue pairs (``hw_counters``)."""

    ethtool: Mapping[str, int]
    hardware: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class History:
    """One rail before and after the load."""

    name: str
    before: Snapshot
    after: Snapshot

    def moved(self, meaning: str, priority: int) -> int | None:
        """How far the counters of a meaning have moved together; None where the card shows none of them.

        A counter that was set to zero in between tells nothing; it makes the whole meaning unknown.
        """
        found: list[int | None] = []
        for name in (name.format(priority) for name in NAMES[meaning]):
            if name in self.before.ethtool and name in self.after.ethtool:
                found.append(delta(self.before.ethtool[name], self.after.ethtool[name], wraps=False))
            elif name in self.before.hardware and name in self.after.hardware:
                found.append(delta(self.before.hardware[name], self.after.hardware[name], wraps=True))
        known = [value for value in found if value is not None]
        return sum(known) if found and len(known) == len(found) else None


def delta(before: int, after: int, *, wraps: bool) -> int | None:
    """How far a counter has moved. None when it was set to zero in between."""
    if after >= before:
        return after - before
    moved = after - before + WRAP
    return moved if wraps and before < WRAP and moved < _IMPLAUSIBLE else None


@dataclasses.dataclass(frozen=True)
class Load:
    """An incast: who received, who sent, at which rates (Gb/s) together and at most; None where the port shows none."""

    receiver: History
    senders: Sequence[History]
    rate: float
    line_rate: float | None
    priority: int = 3
    ecn_only: bool = False

    @property
    def rails(self) -> list[History]:
        return [self.receiver, *self.senders]


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the load proved. ``place`` is where packets get lost, or would: traffic in the wrong class is lossy by its
    set-up though nothing was lost. ``readable`` is false where the counters that would tell are not there. ``unread``
    names what could not be told; ``warnings`` what is worth a look."""

    proven: str
    reason: str
    place: str | None = None
    readable: bool = True
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The entry in the table of verdicts: what was proven, or ``unknown`` where there was nothing to read."""
        return self.proven if self.readable else UNCLEAR


def prove(load: Load) -> Proof:
    """The verdict of host-contract 4.6 on one load."""
    unread = tuple(
        f"{meaning} of {rail.name}"
        for meaning in ("sequence", "timeouts")
        for rail in load.rails
        if rail.moved(meaning, load.priority) is None
    )
    found = _judge(load, bool(unread))
    return dataclasses.replace(found, unread=unread, warnings=tuple(_warnings(load)))


def _judge(load: Load, blind: bool) -> Proof:
    discards = _sum(load, "discards", [load.receiver])
    sequence, timeouts = _sum(load, "sequence"), _sum(load, "timeouts")
    lost = discards + sequence + timeouts
    if lost > _tolerated(load):
        shown = "uncounted" if load.receiver.moved("discards", load.priority) is None else str(discards)
        reason = f"{shown} discards at the receiver, {sequence} out of sequence, {timeouts} timeouts"
        return Proof(EXERCISED_LOSS, reason, _place(load, discards, timeouts))
    if _in_wrong_class(load):
        return Proof(NOT_EXERCISED, "the traffic came in priority 0, which nothing protects", WRONG_CLASS)
    if _pause_ignored(load):
        return Proof(EXERCISED_LOSS, "the receiver's pause frames reach no sender", SWITCH)
    if blind:
        return Proof(NOT_EXERCISED, "whether packets were lost cannot be read", readable=False)
    if not any(rail.moved(name, load.priority) is not None for name in _MECHANISM for rail in load.rails):
        return Proof(NOT_EXERCISED, "neither pause nor ECN is counted", readable=False)
    if not _mechanism(load):
        return Proof(NOT_EXERCISED, "neither pause nor ECN was needed")
    if load.line_rate is None:
        return Proof(NOT_EXERCISED, "the rate of the receiver's link cannot be read", readable=False)
    if load.rate < _LINE * load.line_rate:
        return Proof(NOT_EXERCISED, f"{load.rate:g} of {load.line_rate:g} Gb/s: the link was never full")
    return Proof(EXERCISED_OK, "pause or ECN held the senders back, nothing was lost")


def _sum(load: Load, meaning: str, rails: Iterable[History] | None = None) -> int:
    """How far a meaning has moved on the rails together; what is not known adds nothing."""
    return sum(rail.moved(meaning, load.priority) or 0 for rail in (load.rails if rails is None else rails))


def _tolerated(load: Load) -> float:
    return _ECN_ONLY_TOLERANCE * (_sum(load, "roce_bytes", [load.receiver]) / _PACKET) if load.ecn_only else 0


def _in_wrong_class(load: Load) -> bool:
    """Most of what came in is in priority 0, next to nothing in that of RoCE. Where RoCE has priority 0 there is no
    wrong one."""
    mine = load.receiver.moved("roce_bytes", load.priority)
    bulk = load.receiver.moved("bulk_bytes", load.priority)
    return load.priority != 0 and mine is not None and bulk is not None and bulk > 0 and mine < bulk / 100


def _pause_ignored(load: Load) -> bool:
    sent = load.receiver.moved("pause_sent", load.priority)
    received = [rail.moved("pause_received", load.priority) for rail in load.senders]
    return sent is not None and sent > _HUGE_PAUSE and bool(received) and set(received) == {0}


def _place(load: Load, discards: int, timeouts: int) -> str | None:
    if _in_wrong_class(load):
        return WRONG_CLASS
    if discards:
        return HOST_BUFFERS
    if timeouts and load.line_rate is not None and load.rate < _COLLAPSED * load.line_rate:
        return BLACKHOLE
    if _sum(load, "cable") and not _pause_ignored(load):
        return CABLE
    # Only a receiver that would show its own discards clears itself.
    return None if load.receiver.moved("discards", load.priority) is None else SWITCH


def _mechanism(load: Load) -> bool:
    paused = _sum(load, "pause_sent", [load.receiver]) + _sum(load, "pause_received", load.senders)
    return paused + _sum(load, "ecn") > 0


def _warnings(load: Load) -> Iterable[str]:
    texts = {
        "storms": "pause storms: a slow receiver (its PCIe link), or a storm",
        "cable": "errors of the cable or the optics",
        "not_ready": "a receiver that was not ready, which is its software and not the network",
    }
    for meaning, text in texts.items():
        for rail in load.rails:
            count = rail.moved(meaning, load.priority)
            if count:
                yield f"{rail.name}: {count} x {text}"
