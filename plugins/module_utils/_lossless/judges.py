# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What each rule of host-contract 4.4 says of one leg: a status, what was seen, and the exact commands that mend it.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._lossless import commands
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import ECT_BITS, MAX_LOSSLESS, Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import MLX5
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    DSCP,
    FIRMWARE_CONTROLLED,
    ROCE_UDP_PORT,
    Settings,
)
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import Reading
from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, OK, SKIPPED, UNKNOWN, WARN

#: The least share of the bandwidth that RoCE's traffic class should have, in percent.
MIN_SHARE = 30
_IDLE = "On an idle host: "


class Finding(NamedTuple):
    """What a rule says of one leg."""

    status: str
    observed: str
    fix: str = ""


def make_readable(reading: Reading) -> str:
    if reading.leg.driver == MLX5:
        return (
            "Install iproute2 with dcb, or mlnx_qos of DOCA-OFED (role rdma, rdma_stack: doca), and look again as root"
        )
    return "Install iproute2 with dcb and the card's own tool, and look again as root"


def unread(reading: Reading, facts: Sequence[str]) -> Finding:
    """The finding on a leg that does not show what a rule needs: what the sources said, and how to make it readable."""
    return Finding(UNKNOWN, reading.why_unknown(facts), make_readable(reading))


def pause_lossless(reading: Reading) -> bool:
    """No PFC, and link-level pause in effect at both ends: then nothing is dropped, whatever its priority."""
    pause = reading.settings.pause
    return (
        reading.settings.pfc == frozenset()
        and pause is not None
        and all((pause.rx, pause.tx, pause.rx_negotiated, pause.tx_negotiated))
    )


def numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, sorted(values))) or "none"


def tool_of(reading: Reading, fact: str = "pfc") -> str:
    """The tool that this leg is set with: the one that could read it."""
    return commands.MLNX_QOS if reading.told_by.get(fact) == commands.MLNX_QOS else commands.DCB


def _run(lines: Iterable[str]) -> str:
    return f"{_IDLE}{'; '.join(lines)}"


def pfc(reading: Reading, target: Target) -> Finding:
    on = reading.settings.pfc or frozenset()
    seen = f"PFC on priority {numbers(on)}"
    fix = _run(commands.set_pfc(reading.leg, tool_of(reading), target.pfc))
    if target.priority not in on:
        return Finding(MUST_FIX, f"{seen}, not on {target.priority}" + _too_many(on), fix)
    if _too_many(on):
        return Finding(MUST_FIX, seen + _too_many(on), fix)
    if 0 in on - target.pfc:
        return Finding(MUST_FIX, f"{seen}: priority 0 carries everything else", fix)
    return Finding(OK, seen) if on == target.pfc else Finding(WARN, seen, fix)


def _too_many(on: frozenset[int]) -> str:
    return f", {len(on)} lossless priorities" if len(on) > MAX_LOSSLESS else ""


def trust(reading: Reading, target: Target) -> Finding:
    mode = reading.settings.trust
    if mode == DSCP:
        return Finding(OK, DSCP)
    lines = commands.set_trust(reading.leg, tool_of(reading), DSCP) or _map_lines(reading, target)
    if target.priority in reading.leg.vlan_priorities:
        return Finding(WARN, f"{mode}, with a VLAN that tags priority {target.priority}", _run(lines))
    return Finding(MUST_FIX, f"{mode}: untagged packets all get priority 0", _run(lines))


def _map_lines(reading: Reading, target: Target) -> list[str]:
    wanted = {target.dscp: target.priority, target.cnp_dscp: _cnp_priority(reading, target)}
    return commands.set_dscp(reading.leg, tool_of(reading), wanted)


def _cnp_priority(reading: Reading, target: Target) -> int:
    return target.cnp_priority(reading.settings.cnp_priority)


def _ets_lines(reading: Reading, target: Target) -> list[str]:
    return commands.set_ets(reading.leg, tool_of(reading, "tsa"), target.pfc, _cnp_priority(reading, target))


def dscp_map(reading: Reading, target: Target) -> Finding:
    if reading.settings.trust != DSCP:
        return Finding(SKIPPED, "packets are not sorted by their DSCP, see roce.trust")
    table = reading.settings.dscp_map or {}
    roce, cnp = table.get(target.dscp), table.get(target.cnp_dscp)
    seen = f"DSCP {target.dscp} -> {_shown(roce)}, DSCP {target.cnp_dscp} (CNP) -> {_shown(cnp)}"
    fix = _run(_map_lines(reading, target))
    if roce != target.priority:
        return Finding(MUST_FIX, f"{seen}; RoCE belongs to priority {target.priority}", fix)
    return Finding(OK, seen) if cnp in target.cnp_priorities else Finding(WARN, seen, fix)


def _shown(priority: int | None) -> str:
    return "no priority" if priority is None else f"priority {priority}"


def effective_dscp(reading: Reading, target: Target) -> Finding:
    """Tenants ask for no class, so only what the driver forces takes their packets out of the lossy priority 0."""
    settings = reading.settings
    forced = settings.forced_class or 0
    sent = forced >> 2
    fix = _force(reading, target)
    if not forced:
        if target.dscp == 0:
            return Finding(OK, "no class forced: DSCP 0, as the site wants")
        return Finding(MUST_FIX, "no class forced: tenants' RDMA goes out with DSCP 0", fix)
    seen = f"class {forced} forced: DSCP {sent}"
    if sent == target.dscp:
        if forced & ECT_BITS in (0b01, 0b10):
            return Finding(OK, seen)
        return Finding(WARN, f"{seen}, but without the bits for ECN", fix)
    if settings.dscp_map is None or settings.pfc is None:
        return unread(reading, ("dscp_map", "pfc"))
    leads_to = settings.dscp_map.get(sent)
    if leads_to in settings.pfc:
        return Finding(WARN, f"{seen}, not {target.dscp}, but it leads to lossless priority {leads_to}", fix)
    return Finding(MUST_FIX, f"{seen}, which leads to {_shown(leads_to)}, a lossy one", fix)


def _of_firmware(settings: Settings) -> str:
    return (
        "The card's firmware owns DSCPs and priorities (its service profile): have them changed there with niccli, or"
        f" take its own as the site's (lossless_dscp: {(settings.forced_class or 0) >> 2})"
    )


def _force(reading: Reading, target: Target) -> str:
    if reading.settings.firmware_class:
        return _of_firmware(reading.settings)
    if reading.settings.can_force:
        return f"{'; '.join(commands.set_class(reading.leg, target.traffic_class))}, now and at each boot"
    if reading.leg.driver == MLX5:
        return "Install DOCA-OFED (role rdma, rdma_stack: doca): the inbox driver cannot force a class"
    return (
        f"{reading.leg.driver} cannot force a class: make DSCP 0 the lossless one on hosts and switches"
        f" (lossless_dscp: 0), or tell tenants to set NCCL_IB_TC={target.traffic_class}"
    )


def ecn(reading: Reading, target: Target) -> Finding:
    settings, leg = reading.settings, reading.leg
    fix = _run(
        commands.set_ecn(leg, target.priority, True, True) or ["load irdma with dcqcn_enable=1 (vendor's driver)"]
    )
    if settings.ecn_np is None or settings.ecn_rp is None:
        if settings.ecn_firmware is None:
            return unread(reading, ("ecn_np", "ecn_firmware"))
        if target.priority not in settings.ecn_firmware:
            mask = f"mstconfig -d {leg.pci} set ROCE_CC_PRIO_MASK_P1=255, then a reset of the card's firmware"
            return Finding(MUST_FIX, f"off for priority {target.priority} in the firmware's settings", f"{_IDLE}{mask}")
        observed = f"on for priority {target.priority} in the firmware's settings for its next start"
        return Finding(WARN, observed, "Nothing shows what runs now; the driver of DOCA-OFED does (role rdma)")
    points = {"notification point": settings.ecn_np, "reaction point": settings.ecn_rp}
    off = [point for point, on in points.items() if target.priority not in on]
    if off:
        return Finding(MUST_FIX, f"off for priority {target.priority} ({' and '.join(off)} missing)", fix)
    if target.ecn_only:
        return Finding(WARN, "on, without PFC", "Turn PFC on as well for a lossless fabric (lossless_mode: lossless)")
    return Finding(OK, f"on for priority {target.priority}")


def cnp(reading: Reading, target: Target) -> Finding:
    settings = reading.settings
    priority = settings.cnp_priority
    seen = f"DSCP {settings.cnp_dscp}, priority {priority}"
    fix = _run(commands.set_cnp(reading.leg, target.cnp_dscp, target.cnp_priorities[0]))
    if settings.firmware_class:
        fix = _of_firmware(settings)
    if priority is None or (priority < target.priority and priority not in target.cnp_priorities):
        return Finding(MUST_FIX, f"{seen}: behind bulk data", fix)
    if priority == target.priority:
        return Finding(WARN, f"{seen}: the priority of RoCE itself, which pauses them", fix)
    if priority not in target.cnp_priorities or settings.cnp_dscp != target.cnp_dscp:
        return Finding(WARN, seen, fix)
    if settings.firmware_class:
        return Finding(OK, f"{seen}, strict in the firmware's service profile")
    if settings.tsa is None or settings.tc_of is None:
        why = reading.why_unknown(("tsa", "tc_of"))
        return Finding(UNKNOWN, f"{seen}; whether its queue is strict: {why}", make_readable(reading))
    served = settings.tsa.get(settings.tc_of.get(priority, -1), "unknown")
    if served != "strict":
        return Finding(WARN, f"{seen}, served as {served}", _run(_ets_lines(reading, target)))
    return Finding(OK, f"{seen}, strict")


def pause(reading: Reading, target: Target) -> Finding:
    state = reading.settings.pause
    if state is None:
        return unread(reading, ("pause",))
    seen = f"RX {_word(state.rx)}, TX {_word(state.tx)}"
    fix = _run(commands.set_pause(reading.leg, rx=False, tx=False, autoneg=False))
    if not state.rx and not state.tx:
        return Finding(OK, seen)
    if state.rx_negotiated is False and state.tx_negotiated is False:
        return Finding(WARN, f"{seen} configured, off in effect (negotiated off)", fix)
    if not reading.settings.pfc:
        ends = " at both ends" if pause_lossless(reading) else ""
        return Finding(WARN, f"{seen}{ends}, no PFC: one flow that is paused stops all of the link", fix)
    return Finding(MUST_FIX, f"{seen}: global pause and PFC exclude each other", fix)


def _word(on: bool) -> str:
    return "on" if on else "off"


def buffers(reading: Reading, target: Target) -> Finding:
    settings = reading.settings
    buffer_of, sizes = settings.buffer_of or {}, settings.buffer_sizes or ()
    mine, bulk = buffer_of.get(target.priority), buffer_of.get(0)
    if mine is None or mine >= len(sizes):
        return Finding(UNKNOWN, f"no size of the buffer of priority {target.priority}", make_readable(reading))
    seen = f"priority {target.priority} in buffer {mine} of {sizes[mine]} bytes"
    fix = _run(commands.set_buffers(reading.leg, tool_of(reading, "buffer_sizes"), target.pfc, sizes))
    if sizes[mine] == 0:
        return Finding(MUST_FIX, seen, fix)
    if mine == bulk:
        return Finding(WARN, f"{seen}, shared with priority 0", fix)
    if target.cable_length is None:
        return Finding(OK, seen)
    if not settings.cable_length:  # 0 is what a driver shows that has no such setting
        why = reading.why_unknown(("cable_length",))
        return Finding(UNKNOWN, f"{seen}; for which cable length: {why}", make_readable(reading))
    seen += f", cable length {settings.cable_length} m"
    if settings.cable_length >= target.cable_length:
        return Finding(OK, seen)
    tool = tool_of(reading, "cable_length")
    longer = commands.set_cable_length(reading.leg, tool, target.cable_length, settings.pfc or ())
    return Finding(WARN, f"{seen}, not {target.cable_length} m", _run(longer))


def ets(reading: Reading, target: Target) -> Finding:
    settings = reading.settings
    tc_of, tsa, shares = settings.tc_of or {}, settings.tsa or {}, settings.bandwidth or {}
    mine = tc_of.get(target.priority)
    if mine is None or mine not in tsa:
        return Finding(UNKNOWN, f"no traffic class of priority {target.priority}", make_readable(reading))
    share, others = (
        shares.get(mine),
        [number for number, tc in tc_of.items() if tc == mine and number != target.priority],
    )
    seen = f"priority {target.priority} in traffic class {mine}, {tsa[mine]}" + ("" if share is None else f" {share} %")
    fix = _run(_ets_lines(reading, target))
    if tsa[mine] == "ets" and share == 0:
        return Finding(MUST_FIX, seen, fix)
    if others:
        return Finding(WARN, f"{seen}, together with priority {numbers(others)}", fix)
    if tsa[mine] != "ets" or share is None or share < MIN_SHARE:
        return Finding(WARN, seen, fix)
    return Finding(OK, seen)


def dcbx_owner(reading: Reading, target: Target) -> Finding:
    settings = reading.settings
    firmware = settings.dcbx == FIRMWARE_CONTROLLED
    seen = "firmware" if firmware else "the system"
    if not settings.lldpad:
        return Finding(OK, seen)
    if firmware:
        return Finding(MUST_FIX, "firmware and lldpad both negotiate", "Stop one: systemctl disable --now lldpad")
    if settings.pfc is not None and settings.lldpad_pfc == settings.pfc:
        return Finding(OK, f"{seen}, with lldpad of one mind")
    return Finding(
        WARN,
        f"{seen}, and lldpad runs beside it with PFC on {_announced(settings.lldpad_pfc)}",
        "Set the port through lldpad as well, or: systemctl disable --now lldpad; it may overwrite what was set",
    )


def _announced(pfc: frozenset[int] | None) -> str:
    return "nothing" if pfc is None else f"priority {numbers(pfc)}"


def dcbx_peer(reading: Reading, target: Target) -> Finding:
    peer, on = reading.settings.peer, reading.settings.pfc
    if peer is None or on is None:
        return unread(reading, ("pfc", "peer"))
    fix = switch_fix(target)
    if peer.pfc is None:
        return Finding(WARN, f"{peer.name} announces no PFC", fix)
    seen = f"{peer.name}: PFC on priority {numbers(peer.pfc)}"
    if peer.pfc != on:
        return Finding(MUST_FIX, f"{seen}, this host on {numbers(on)}", fix)
    roce = {peer.udp_map.get(ROCE_UDP_PORT), peer.dscp_map.get(target.dscp)} - {None}
    if roce != {target.priority}:
        told = f"for priority {numbers(number for number in roce if number is not None)}" if roce else "no entry"
        return Finding(WARN, f"{seen}; for RoCE {told}", fix)
    return Finding(OK, f"{seen}, RoCE on {target.priority}")


def switch_fix(target: Target) -> str:
    """The commands for the switch, for a record: one sentence a system."""
    return for_operator(commands.switch_text(target))


def for_operator(texts: Mapping[str, str]) -> str:
    """Commands by switch system as one sentence."""
    return "Hand to the operator of the switch: " + " | ".join(f"{name}: {text}" for name, text in texts.items())
