# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What a directed test of a UDP port means, from what both ends saw (host-contract 2.6). Pure.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

REACHABLE = "reachable"
CLOSED = "closed"
NOT_VERIFIED = "not verified"


class Judgement(NamedTuple):
    """``state`` is reachable, closed or not verified; ``culprit`` the host to look at, empty for the way between."""

    state: str
    cause: str
    fix: str
    culprit: str


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One directed test. Counts are packets on the wire of that host; None where nobody watched."""

    sender: str
    receiver: str
    address: str
    port: int
    path: str
    handshake: bool
    received: bool
    left: int | None = None
    arrived: int | None = None
    answered: int | None = None
    answer_arrived: int | None = None
    udp_error: str = ""
    tcp: str = ""


def judge(seen: Evidence) -> Judgement:
    """The verdict on one direction: where the packets were lost, and what to do there.

    WireGuard answers no stranger, a send never fails, and TCP says nothing: only a handshake at both ends proves the
    port open, and only a refusal proves it closed.
    """
    port, to = f"UDP {seen.port}", f"{seen.sender} to {seen.receiver} ({seen.address})"
    if seen.handshake and seen.received:
        return Judgement(REACHABLE, "handshake seen at both ends", "", "")
    if seen.left == 0:
        return Judgement(
            NOT_VERIFIED,
            f"{to}: {seen.sender} sent nothing; its own firewall or routing stops {port}",
            f"Allow outgoing {port} on {seen.sender} (see wg.fw_forward there) and check its route to {seen.address}",
            seen.sender,
        )
    if seen.arrived:
        if seen.answered:
            return Judgement(
                NOT_VERIFIED,
                f"{to}: the request arrived, {seen.receiver} answered, and the answer was lost on the way back",
                f"Let answers from {port} of {seen.receiver} through to {seen.sender}: switch, edge, or a filter"
                f" without state on {seen.sender}",
                seen.sender if seen.answer_arrived else "",
            )
        return Judgement(
            CLOSED if seen.udp_error else NOT_VERIFIED,
            f"{to}: the packets arrive at {seen.receiver}, which drops them before its container",
            f"Open {port} on the FORWARD path of {seen.receiver}: see wg.fw_forward there for the rule",
            seen.receiver,
        )
    if seen.udp_error:
        return Judgement(
            CLOSED,
            f"{to}: refused ({seen.udp_error})",
            f"Something on the way rejects {port}: take its rule out, or publish the port on {seen.receiver}",
            "",
        )
    if seen.tcp in ("open", "refused"):
        return Judgement(
            NOT_VERIFIED,
            f"{to}: TCP {seen.port} gets through ({seen.tcp}), {port} does not arrive",
            f"Forward UDP as well as TCP {seen.port} to {seen.receiver} at the edge or switch; many forward TCP alone",
            "",
        )
    return Judgement(
        NOT_VERIFIED,
        f"{to}: {port} does not arrive",
        f"Open {port} towards {seen.receiver} on the way: switch ACL, edge firewall, port forwarding",
        "",
    )
