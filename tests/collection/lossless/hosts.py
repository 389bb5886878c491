"""Hosts with one RoCE rail that is lossless, and what the module makes of a host."""

from __future__ import annotations

import copy
import functools
import random
from pathlib import Path
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe

from tests.collection.recorded_host import RecordedHost, healthy_host

NETDEV = "enp32s0np0"


def lossless_host(driver: str = "mlx5_core", rails: int = 1) -> RecordedHost:
    """A host whose rails are of that driver, the caller's to change."""
    return copy.deepcopy(_lossless_host(driver, rails))


@functools.cache
def _lossless_host(driver: str, rails: int) -> RecordedHost:
    rng = random.Random(11)
    while True:
        host = healthy_host(rng, kind="roce", driver=driver)
        if host.description.endswith(f" {rails} x {driver}"):
            return host


def site_options(host: RecordedHost) -> dict[str, Any]:
    """The options of the host's site: with cards of Intel, DSCP 0 is the lossless one."""
    return {"dscp": 0} if host.description.endswith("ice") else {}


def look(host: RecordedHost, folder: Path, **options: Any) -> Look:
    return look_at_lossless(open_probe(str(host.write(folder)), {}), options or site_options(host))
