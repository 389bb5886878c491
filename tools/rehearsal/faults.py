"""Faults by their names on the command line of the rehearsal."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.rehearsal.fabric import (
    CableFault,
    Fabric,
    Fault,
    GroupFault,
    HostFault,
    NicFault,
    Oversubscription,
    PathFault,
)

_MAKERS: dict[str, Callable[[Fabric, str, str], Fault]] = {
    "host": lambda fabric, host, other: HostFault(host, "memlock"),
    "nic": lambda fabric, host, other: NicFault(host, 0, factor=0.48),
    "cable": lambda fabric, host, other: CableFault(host, 0, "server"),
    "cable-lossy": lambda fabric, host, other: CableFault(host, 0, "client", lossy=True),
    "group": lambda fabric, host, other: GroupFault(fabric.leaf(host)),
    "oversubscription": lambda fabric, host, other: Oversubscription(fabric.leaf_size / 3),
    "path": lambda fabric, host, other: PathFault(host, other),
}
KINDS = tuple(_MAKERS)


def make_fault(kind: str, fabric: Fabric, rng: random.Random) -> Fault:
    """A fault of this kind at a random host (and peer)."""
    host, other = rng.sample(list(fabric.hosts), 2)
    return _MAKERS[kind](fabric, host, other)
