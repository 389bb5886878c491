# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of ``ethtool -S`` and ``hw_counters``, under one name whatever the vendor calls them (host-contract 4.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json

_ETHTOOL_LINE = re.compile(r"\s+(?P<name>\S.*?): (?P<value>\d+)")


class PfcCounters(NamedTuple):
    """Pause frames of one priority since the driver was loaded; None where the card has no such counter."""

    received: int | None
    sent: int | None


#: mlx5, bnxt_en, ice; ``{}`` is the priority. ``rx_prio3_pause`` must not be taken for ``rx_prio3_pause_duration``.
_PFC_RECEIVED = ("rx_prio{}_pause", "rx_pfc_ena_frames_pri{}", "rx_priority_{}_xoff.nic")
_PFC_SENT = ("tx_prio{}_pause", "tx_pfc_ena_frames_pri{}", "tx_priority_{}_xoff.nic")


def parse_ethtool_counters(text: str) -> dict[str, int]:
    """``ethtool -S``: a head line, then ``name: value``. Lines of another form are no counters."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "NIC statistics:":
        raise ParseError("ethtool -S", "no statistics", text)
    found = {}
    for line in lines[1:]:
        match = _ETHTOOL_LINE.fullmatch(line.rstrip())
        if match:
            found[match["name"]] = int(match["value"])
    return found


def parse_rdma_statistic(text: str) -> dict[str, int]:
    """``rdma [-j] statistic show link DEV/PORT``: ``link DEV/PORT name value …`` in one line or several, or JSON.

    irdma has names with blanks, which only JSON keeps whole.
    """
    if text.lstrip().startswith("["):
        rows = load_json("rdma statistic", text)
        if len(rows) != 1 or not isinstance(rows[0], dict):
            raise ParseError("rdma statistic", "not one link", text)
        return {
            name: value
            for name, value in rows[0].items()
            if isinstance(value, int) and not isinstance(value, bool) and name not in ("port", "ifindex")
        }
    words = text.split()
    if len(words) < 2 or words[0] != "link" or len(words) % 2:
        raise ParseError("rdma statistic", "not pairs of name and value", text)
    names, values = words[2::2], words[3::2]
    if not all(value.isascii() and value.isdecimal() for value in values):
        raise ParseError("rdma statistic", "a counter that is no number", text)
    return dict(zip(names, map(int, values)))


def pfc_counters(counters: Mapping[str, int], priority: int) -> PfcCounters:
    """The pause frames of one priority."""
    return PfcCounters(_first(counters, _PFC_RECEIVED, priority), _first(counters, _PFC_SENT, priority))


def _first(counters: Mapping[str, int], names: Iterable[str], priority: int) -> int | None:
    return next((counters[name.format(priority)] for name in names if name.format(priority) in counters), None)
