# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Brings together what both ends of each pair saw of the overlay's port: check `wg.reachable_pairs`.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.renting import RANGE
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.sniffer import (
    ANSWER_IN,
    ANSWER_OUT,
    REQUEST_IN,
    REQUEST_OUT,
)
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.verdict import (
    REACHABLE,
    Evidence,
    Judgement,
    judge,
)

PAIRS = Check(
    id="wg.reachable_pairs",
    title="The overlay's UDP port is open between the hosts, both ways",
    severity="blocker",
    expected="a handshake with an endpoint-less receiver in each direction of each pair",
    why="a provider whose port is closed does not appear in the Clusters tab, and a pod's overlay stays down",
    source="wireguard_probe",
)
Wire = collections.Counter[tuple[str, str, int]]


class PairTest:
    """One directed test with its verdict, as the report holds it."""

    def __init__(self, row: Mapping[str, Any], evidence: Evidence) -> None:
        self.evidence = evidence
        self.judgement: Judgement = judge(evidence)
        self._row = row

    def as_dict(self) -> dict[str, Any]:
        seen = self.evidence
        return {
            "from": seen.sender,
            "to": seen.receiver,
            "address": seen.address,
            "port": seen.port,
            "path": seen.path,
            "handshake": seen.handshake and seen.received,
            "rtt_ms": self._row["rtt_ms"],
            "rx_bytes": self._row["rx_bytes"],
            "tx_bytes": self._row["tx_bytes"],
            "at": self._row["at"],
            "state": self.judgement.state,
            "cause": self.judgement.cause,
        }


def collect_tests(facts: Mapping[str, Mapping[str, Any]]) -> list[PairTest]:
    """All directed tests of a play, from what each host sent, received and saw on its wire."""
    probes = {host: values["wireguard_probe"] for host, values in facts.items() if "wireguard_probe" in values}
    wires = {host: _wire(probe) for host, probe in probes.items()}
    tests = []
    for sender, probe in probes.items():
        for row in probe.get("sent") or []:
            receiver = row["to"]
            other = probes.get(receiver, {})
            received = {(seen["from"], seen["port"]): seen for seen in other.get("received") or []}
            seen = received.get((sender, row["port"]))
            own = probe.get("own_addresses") or []
            evidence = Evidence(
                sender=sender,
                receiver=receiver,
                address=row["address"],
                port=row["port"],
                path=other.get("path") or "",
                handshake=bool(row["handshake"]),
                received=bool(seen and seen["handshake"] and seen["rx_bytes"] > 0),
                left=_count(wires[sender], REQUEST_OUT, [row["address"]], row["port"]),
                arrived=_count(wires.get(receiver), REQUEST_IN, own, row["port"]),
                answered=_count(wires.get(receiver), ANSWER_OUT, own, row["port"]),
                answer_arrived=_count(wires[sender], ANSWER_IN, [row["address"]], row["port"]),
                udp_error=row["udp_error"],
                tcp=row["tcp"],
            )
            tests.append(PairTest(row, evidence))
    return tests


def _wire(probe: Mapping[str, Any]) -> Wire | None:
    rows = probe.get("wire")
    if rows is None:
        return None
    return collections.Counter({(kind, address, port): count for kind, address, port, count in rows})


def _count(wire: Wire | None, kind: str, addresses: Sequence[str], port: int) -> int | None:
    return None if wire is None else sum(wire[kind, address, port] for address in addresses)


def pair_records(facts: Mapping[str, Mapping[str, Any]], tests: Sequence[PairTest]) -> dict[str, list[Record]]:
    """One record a host about all pairs it is in; none where the play probed nothing."""
    probes = {host: values["wireguard_probe"] for host, values in facts.items() if "wireguard_probe" in values}
    if not probes:
        return {}
    return {host: _records_of_host(host, probe, probes, tests) for host, probe in probes.items()}


def _records_of_host(
    host: str, probe: Mapping[str, Any], probes: Mapping[str, Mapping[str, Any]], tests: Sequence[PairTest]
) -> list[Record]:
    if probe.get("refused"):
        return [PAIRS.skipped(f"not probed: {probe['refused']}")]
    if probe.get("error"):
        return [
            PAIRS.must_fix(f"the probe failed here: {probe['error']}", "Mend what the message says; see wg.port_free")
        ]
    others = [name for name in probe["hosts"] if name != host]
    if not others:
        return [PAIRS.skipped("there is no second host in this play")]
    mine = [test for test in tests if host in (test.evidence.sender, test.evidence.receiver)]
    overlay = [test for test in mine if test.evidence.port in _overlay_ports(test.evidence.receiver, probes, tests)]
    records = [_pairs_record(host, others, overlay, probes, tests)]
    if probe.get("range_error"):
        records.append(RANGE.warn(probe["range_error"], "Mend what the message says and run verify_wireguard again"))
    elif int(probe.get("range_port") or 0):
        # The range is the receiver's own, so what others say of theirs is theirs to report.
        called = [test for test in mine if test.evidence.receiver == host]
        proven = [test for test in called if test.evidence.port == int(probe["range_port"])]
        if proven and all(test.judgement.state == REACHABLE for test in proven):
            records.append(RANGE.ok(f"UDP {probe['range_port']} proven"))
        else:
            causes = "; ".join(test.judgement.cause for test in proven if test.judgement.state != REACHABLE)
            records.append(RANGE.warn(causes or "no port proven", "Forward UDP as well as TCP for the renting range"))
    return records


def _overlay_ports(receiver: str, probes: Mapping[str, Mapping[str, Any]], tests: Sequence[PairTest]) -> frozenset[int]:
    """Ports of a host that an overlay may be given: those it was told to prove, without the one that stands for the
    renting range. Where its facts do not list them, all that it was called at."""
    probe = probes.get(receiver, {})
    told = probe.get("ports")
    if told:
        return frozenset(int(port) for port in told)
    called = {test.evidence.port for test in tests if test.evidence.receiver == receiver}
    return frozenset(called - {int(probe.get("range_port") or 0)})


def _pairs_record(
    host: str,
    others: Sequence[str],
    overlay: Sequence[PairTest],
    probes: Mapping[str, Mapping[str, Any]],
    tests: Sequence[PairTest],
) -> Record:
    closed = [test for test in overlay if test.judgement.state != REACHABLE]
    if closed:
        return PAIRS.must_fix(
            "; ".join(test.judgement.cause for test in closed),
            "; ".join(dict.fromkeys(test.judgement.fix for test in closed)),
        )
    done = {(test.evidence.sender, test.evidence.receiver, test.evidence.port) for test in overlay}
    left_out = []
    for other in others:
        reason = probes.get(other, {}).get("refused") or probes.get(other, {}).get("error")
        if reason:
            left_out.append(f"{other} ({reason})")
        elif not _expected(host, other, probes, tests) <= done:
            return PAIRS.unknown(
                f"the test with {other} did not end at both ends", "See the messages of the steps above and run again"
            )
    passed = len(others) - len(left_out)
    observed = f"both directions proven with {passed} of {len(others)} hosts"
    if left_out:
        return PAIRS.skipped(f"{observed}; left out: {', '.join(left_out)}")
    if any(test.evidence.path == "host" for test in overlay):
        return PAIRS.warn(
            f"{observed}, on the hosts' own path as a host here has no Docker",
            "Install Docker and run verify_wireguard again: pods are reached through the FORWARD path",
        )
    return PAIRS.ok(observed)


def _expected(
    host: str, other: str, probes: Mapping[str, Mapping[str, Any]], tests: Sequence[PairTest]
) -> set[tuple[str, str, int]]:
    """The directed tests that must have ended between two hosts; a host that nobody called still owes one."""
    return {
        (sender, receiver, port)
        for sender, receiver in ((host, other), (other, host))
        for port in _overlay_ports(receiver, probes, tests) or {0}
    }
