# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of ``ethtool -S`` and ``hw_counters``, under one name whatever the vendor calls them (host-contract 4.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json

_ETHTOOL_LINE = re.compile(r"\s+(?P<name>\S.*?): (?P<value>\d+)")


class PfcCounters(NamedTuple):
    """Pause frames of one priority since the driver was loaded; None where the card has no such counter."""

    received: int | None
    sent: int | None


#: Meaning -> counters of all vendors; ``{}`` is the priority of RoCE. A card has some of the names, or none.
NAMES: Mapping[str, tuple[str, ...]] = {
    "roce_bytes": ("rx_prio{}_bytes", "rx_bytes_pri{}"),
    "bulk_bytes": ("rx_prio0_bytes", "rx_bytes_pri0"),
    "pause_received": ("rx_prio{}_pause", "rx_pfc_ena_frames_pri{}", "rx_priority_{}_xoff.nic"),
    "pause_sent": ("tx_prio{}_pause", "tx_pfc_ena_frames_pri{}", "tx_priority_{}_xoff.nic"),
    "discards": (
        "rx_prio{}_discards",
        "rx_discards_phy",
        "rx_out_of_buffer",
        "rx_prio{}_buf_discard",
        "rx_prio{}_cong_discard",
        "rx_stat_discard",
        "rx_roce_discards",
        "rx_dropped.nic",
    ),
    "sequence": (
        "out_of_sequence",
        "packet_seq_err",
        "implied_nak_seq_err",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "seq_err_naks_rcvd",
        "oos_drop_count",
        "RetransSegs",
        "Nak Sequence Error",
        "out_of_seq_request",
        "rcvd_seq_err",
    ),
    "timeouts": (
        "local_ack_timeout_err",
        "req_transport_retries_exceeded",
        "to_retransmits",
        "max_retry_exceeded",
        "RTO",
        "retry_exceeded_err",
    ),
    "not_ready": ("rnr_nak_retry_err", "out_of_buffer", "rnr_naks_rcvd", "RNR received", "rcvd_rnr_err"),
    "ecn": (
        "np_ecn_marked_roce_packets",
        "np_cnp_sent",
        "rp_cnp_handled",
        "rx_ecn_marked_pkts",
        "tx_cnp_pkts",
        "rx_cnp_pkts",
        "RxECNMrkd",
        "cnpSent",
        "cnpHandled",
    ),
    "storms": ("tx_pause_storm_warning_events", "tx_pause_storm_error_events", "continuous_roce_pause_events"),
    "cable": (
        "rx_crc_errors_phy",
        "rx_symbol_err_phy",
        "rx_icrc_encapsulated",
        "rx_fcs_err_frames",
        "rx_crc_errors.nic",
    ),
}


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
    return PfcCounters(_first(counters, "pause_received", priority), _first(counters, "pause_sent", priority))


def _first(counters: Mapping[str, int], meaning: str, priority: int) -> int | None:
    names = [name.format(priority) for name in NAMES[meaning]]
    return next((counters[name] for name in names if name in counters), None)
