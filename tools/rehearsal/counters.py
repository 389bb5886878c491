"""Counters of the emulated ports, and the ways in which an incast can go: what `ethtool -S` and `rdma` would show.

Each host has one NIC, of mlx5's manner, for each rail. Only what a verdict rests on is counted.
"""

from __future__ import annotations

import json
from collections import defaultdict

from tools.rehearsal.fabric import Flow

#: What can be planted below an incast.
TROUBLES = ("none", "switch", "host-buffers", "deaf-switch", "wrong-class", "idle", "unreadable")
PRIORITY, DSCP = 3, 26
_BYTES = 20_000_000_000
_LOST = 1234


class Counters:
    """All counters of a fabric. ``trouble`` is planted at the port of ``where``, everywhere without it."""

    def __init__(self, trouble: str = "none", where: str | None = None) -> None:
        if trouble not in TROUBLES:
            raise ValueError(f"{trouble}: none of {', '.join(TROUBLES)}")
        self._trouble = trouble
        self._where = where
        # Those of queue pairs stand just before they come round.
        self._hardware: dict[tuple[str, int], dict[str, int]] = defaultdict(
            lambda: {
                "out_of_sequence": 2**32 - 5,
                "packet_seq_err": 2**32 - 1,
                "local_ack_timeout_err": 7,
                "rnr_nak_retry_err": 0,
                "np_ecn_marked_roce_packets": 2**32 - 3,
                "rp_cnp_handled": 0,
            }
        )
        self._ethtool: dict[tuple[str, int], dict[str, int]] = defaultdict(
            lambda: {
                **{f"{way}_prio{priority}_bytes": 10**13 for way in ("rx", "tx") for priority in (0, PRIORITY)},
                f"rx_prio{PRIORITY}_pause": 900,
                f"tx_prio{PRIORITY}_pause": 400,
                f"rx_prio{PRIORITY}_discards": 0,
                "rx_discards_phy": 3,
            }
        )

    def here(self, host: str) -> str:
        """What is planted at a host's port."""
        return self._trouble if self._where in (None, host) else "none"

    def sent(self, flow: Flow, tclass: int, *, crowded: bool) -> None:
        """A sender of a load has ended."""
        trouble = self.here(flow.server)
        receiver, sender = ((host, flow.rail) for host in (flow.server, flow.client))
        protected = tclass >> 2 == DSCP and trouble != "wrong-class"
        priority = PRIORITY if protected else 0
        self._ethtool[receiver][f"rx_prio{priority}_bytes"] += _BYTES
        self._ethtool[sender][f"tx_prio{priority}_bytes"] += _BYTES
        if not crowded or trouble == "idle":
            return
        if protected and trouble != "switch":
            self._ethtool[receiver][f"tx_prio{PRIORITY}_pause"] += 50_000
            if trouble != "deaf-switch":
                self._ethtool[sender][f"rx_prio{PRIORITY}_pause"] += 20_000
                self._grow(receiver, "np_ecn_marked_roce_packets", 10)
        if trouble in ("switch", "host-buffers"):
            self._grow(receiver, "out_of_sequence", _LOST)
            self._grow(sender, "packet_seq_err", _LOST)
        if trouble == "host-buffers":
            self._ethtool[receiver][f"rx_prio{PRIORITY}_discards"] += _LOST

    def _grow(self, port: tuple[str, int], name: str, by: int) -> None:
        self._hardware[port][name] = (self._hardware[port][name] + by) % 2**32

    def ethtool(self, host: str, rail: int) -> tuple[int, str]:
        """Exit code and text of ``ethtool -S``."""
        if self.here(host) == "unreadable":
            return 94, "no stats available\n"
        rows = "".join(f"     {name}: {value}\n" for name, value in self._ethtool[host, rail].items())
        return 0, f"NIC statistics:\n{rows}"

    def rdma(self, host: str, rail: int) -> tuple[int, str]:
        """Exit code and text of ``rdma -j statistic show link``."""
        if self.here(host) == "unreadable":
            return 1, "error: Operation not supported\n"
        row = {"ifindex": rail, "ifname": f"mlx5_{rail}", "port": 1, **self._hardware[host, rail]}
        return 0, json.dumps([row]) + "\n"
