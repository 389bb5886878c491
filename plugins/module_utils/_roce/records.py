# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The record of one test (host-contract 5.6): written on the hosts as tests end, read again on the control node.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import Failure
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import (
    FAIL,
    NOT_MEASURED,
    OK,
    SKIPPED,
    WARN,
    Rail,
    Slot,
    ceiling,
    mark,
)
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import Reading

SCHEMA = 1
STATUSES = (OK, WARN, FAIL, SKIPPED, NOT_MEASURED)
_SIZE = 65536

#: Why a test did not take place, and what that means for its pair: neither proven nor failed.
NOT_MEASURED_CAUSES = {
    "peer_lost": "the other host's agent could not be reached",
    "quarantined": "every test of a host had failed, or all in one direction, so its other ones were left out",
    "budget": "the time for the whole verification was used up",
    "stopped": "the verification was stopped",
    "locked": "another verification runs on a host",
    "rented": "a rental started on a host, or it could not be ruled out",
    "not_run": "no record came back from either host",
}
#: Tests that a host declined for a reason of its own.
_DECLINED = ("locked", "rented")


class Ends(NamedTuple):
    """The two ends of a test: names, and the rail that each uses."""

    server: str
    client: str
    server_rail: RailAt
    client_rail: RailAt


def carrying(rail: RailAt) -> Rail:
    """What a rail can carry, for the pass mark."""
    return Rail(rail.link_gbps, Slot(*rail.slot) if rail.slot else None)


def measured(
    ends: Ends,
    rail: int,
    settings: Settings,
    reading: Reading,
    *,
    seconds: float,
    measured_at: str,
    counters: Mapping[str, int] | None,
    alone: bool,
    perftest: str | None = None,
) -> dict[str, Any]:
    """The record of a test that ran, with its status. ``a`` is the end whose name sorts first.

    ``counters`` are those that grew, ``None`` where neither end could read any. ``perftest`` is the version on the
    client's host, ``None`` where it is not known.
    """
    top = ceiling(carrying(ends.server_rail), carrying(ends.client_rail), reading.mtu)
    told = mark(reading.gigabits_per_second, top)
    links = [own.link_gbps for own in (ends.server_rail, ends.client_rail) if own.link_gbps]
    link = min(links) if links else None
    rate = reading.gigabits_per_second
    return {
        **_head(ends, rail, settings),
        "gigabits_per_second": rate,
        "link_gbps": link,
        "ratio": round(rate / link, 3) if rate and link else None,
        "ceiling_gbps": round(top.gigabits_per_second, 2) if top else None,
        "share": round(told.share, 4) if told.share is not None else None,
        "status": told.status,
        "hint": told.hint,
        **failure_fields(reading.failure, ends),
        "counters": None if counters is None else dict(counters),
        "measured_at": measured_at,
        "duration_ms": round(seconds * 1000),
        "alone": alone,
        "perftest": perftest,
    }


def not_measured(
    ends: Ends, rail: int, settings: Settings, name: str, *, measured_at: str, lost: str | None = None, why: str = ""
) -> dict[str, Any]:
    """The record of a test that did not take place; ``lost`` names the host it failed to take place for."""
    return {
        **_head(ends, rail, settings),
        "gigabits_per_second": None,
        "link_gbps": None,
        "ratio": None,
        "ceiling_gbps": None,
        "share": None,
        "status": SKIPPED if name in _DECLINED else NOT_MEASURED,
        "hint": "",
        "class": name,
        "cause": NOT_MEASURED_CAUSES[name],
        "fix": "",
        "accused": lost,
        "stderr_tail": why,
        "counters": {},
        "measured_at": measured_at,
        "duration_ms": 0,
        "alone": False,
        "perftest": None,
    }


def _head(ends: Ends, rail: int, settings: Settings) -> dict[str, Any]:
    ordered = ends.client < ends.server
    first, second = (ends.client_rail, ends.server_rail) if ordered else (ends.server_rail, ends.client_rail)
    return {
        "schema": SCHEMA,
        "a": min(ends.server, ends.client),
        "b": max(ends.server, ends.client),
        "a_address": first.address,
        "b_address": second.address,
        "rail": rail,
        "a_device": f"{first.device}:{first.port}",
        "b_device": f"{second.device}:{second.port}",
        "a_gid_index": first.gid_index,
        "b_gid_index": second.gid_index,
        "direction": "a_to_b" if ordered else "b_to_a",
        "size": _SIZE,
        **told_of(settings),
    }


def told_of(settings: Settings) -> dict[str, Any]:
    """How a test was run, as its record says it: a number of messages or a number of seconds, the other is ``None``."""
    return {
        "mode": "full" if settings.diagnostic else "platform",
        "tclass": settings.tclass,
        "qps": settings.qps,
        "iterations": None if settings.duration_s else settings.iterations,
        "duration_s": settings.duration_s or None,
    }


def failure_fields(told: Failure | None, ends: Ends) -> dict[str, Any]:
    """The fields of a record that say what went wrong; empty ones where nothing did."""
    if told is None:
        return {"class": None, "cause": "", "fix": "", "accused": None, "stderr_tail": ""}
    return {
        "class": told.name,
        "cause": told.cause,
        "fix": told.fix,
        "accused": told.accuses(server=ends.server, client=ends.client),
        "stderr_tail": f"{told.end}: {told.quote}" if told.quote else "",
    }
