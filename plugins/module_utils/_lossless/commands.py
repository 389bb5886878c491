# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The commands that set what the lossless check looks at: on a host by tool, and on a switch as text for its operator.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import BNXT, MLX5, Leg
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import DSCP, PRIORITIES
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import CONFIGFS

MLNX_QOS, DCB = "mlnx_qos", "dcb"

#: The part of all receive buffers that is left to traffic that may be dropped.
_LOSSY_PART = 1 / 8


def set_pfc(leg: Leg, tool: str, priorities: Iterable[int]) -> list[str]:
    wanted = set(priorities)
    if tool == MLNX_QOS:
        return [f"mlnx_qos -i {leg.netdev} --pfc {_flags(wanted)}"]
    on = "".join(f" {number}:on" for number in sorted(wanted))
    return [f"dcb pfc set dev {leg.netdev} prio-pfc all:off{on}"]


def _flags(priorities: Iterable[int]) -> str:
    wanted = set(priorities)
    return ",".join("1" if number in wanted else "0" for number in PRIORITIES)


def set_cable_length(leg: Leg, tool: str, metres: int, pfc: Iterable[int]) -> list[str]:
    """``mlnx_qos`` writes it together with PFC, and would turn PFC off where only the length is named."""
    if tool == MLNX_QOS:
        return [f"mlnx_qos -i {leg.netdev} --pfc {_flags(pfc)} --cable_len {metres}"]
    return [f"dcb pfc set dev {leg.netdev} delay {metres}"]


def set_buffers(leg: Leg, tool: str, lossless: Iterable[int], sizes: Sequence[int]) -> list[str]:
    """The lossless priorities get buffer 1, all others buffer 0. ``sizes`` now, in bytes: no more is given out."""
    bulk = int(sum(sizes) * _LOSSY_PART)
    room = sum(sizes) - bulk
    if tool == MLNX_QOS:
        return [f"mlnx_qos -i {leg.netdev} --prio2buffer {_flags(lossless)} --buffer_size {bulk},{room},0,0,0,0,0,0"]
    own = "".join(f" {number}:1" for number in sorted(set(lossless)))
    return [f"dcb buffer set dev {leg.netdev} prio-buffer all:0{own} buffer-size all:0 0:{bulk} 1:{room}"]


def set_ets(leg: Leg, tool: str, lossless: Iterable[int], cnp: int) -> list[str]:
    """A traffic class for each lossless priority and one for CNPs, above the one of everything else, which is 0.

    CNPs are served strictly, all others share the bandwidth in equal parts. With two lossless priorities these are four
    classes, as many as any card has.
    """
    own = sorted(set(lossless) - {0})
    tc_of = {priority: tc for tc, priority in enumerate(own, start=1)}
    shared = [0, *tc_of.values()]
    if cnp:  # else they belong to everything else
        tc_of.setdefault(cnp, len(shared))
    share = 100 // len(shared)
    shares = dict.fromkeys(shared, share) | {0: 100 - share * (len(shared) - 1)}
    if tool == MLNX_QOS:
        rows = {
            "prio_tc": [tc_of.get(priority, 0) for priority in PRIORITIES],
            "tsa": ["ets" if tc in shares else "strict" for tc in PRIORITIES],
            "tcbw": [shares.get(tc, 0) for tc in PRIORITIES],
        }
        options = " ".join(f"--{name} {','.join(map(str, row))}" for name, row in rows.items())
        return [f"mlnx_qos -i {leg.netdev} {options}"]
    classes = "".join(f" {priority}:{tc}" for priority, tc in sorted(tc_of.items()))
    served = "".join(f" {tc}:ets" for tc in shares)
    parts = "".join(f" {tc}:{part}" for tc, part in shares.items())
    return [f"dcb ets set dev {leg.netdev} prio-tc all:0{classes} tc-tsa all:strict{served} tc-bw all:0{parts}"]


def set_trust(leg: Leg, tool: str, mode: str) -> list[str]:
    """``dcb`` has no word for it: the first DSCP entry makes the driver trust DSCP, and no entry takes it back."""
    if tool == MLNX_QOS:
        return [f"mlnx_qos -i {leg.netdev} --trust {mode}"]
    return [] if mode == DSCP else [f"dcb app flush dev {leg.netdev} dscp-prio"]


def set_dscp(leg: Leg, tool: str, wanted: Mapping[int, int]) -> list[str]:
    if not wanted:
        return []
    if tool == MLNX_QOS:
        return [
            f"mlnx_qos -i {leg.netdev} --dscp2prio set,{dscp},{priority}" for dscp, priority in sorted(wanted.items())
        ]
    pairs = " ".join(f"{dscp}:{priority}" for dscp, priority in sorted(wanted.items()))
    return [f"dcb app replace dev {leg.netdev} dscp-prio {pairs}"]


def delete_dscp(leg: Leg, entries: Mapping[int, int]) -> list[str]:
    """Only ``dcb`` can have no entry for a DSCP."""
    pairs = " ".join(f"{dscp}:{priority}" for dscp, priority in sorted(entries.items()))
    return [f"dcb app del dev {leg.netdev} dscp-prio {pairs}"] if pairs else []


def set_class(leg: Leg, traffic_class: int) -> list[str]:
    """Of mlx5 and bnxt_re; other drivers have no such setting, and their list is empty. mlx5 writes -1 for none."""
    if leg.driver == MLX5:
        return [f"echo {traffic_class or -1} > /sys/class/infiniband/{leg.device}/tc/{leg.port}/traffic_class"]
    if leg.driver == BNXT:
        return [_bnxt_cc(leg, {"roce_dscp": traffic_class >> 2})]
    return []


def set_ecn(leg: Leg, priority: int, notification: bool, reaction: bool) -> list[str]:
    if leg.driver == MLX5:
        folder = f"/sys/class/net/{leg.netdev}/ecn"
        return [
            f"echo {int(on)} > {folder}/{point}/enable/{priority}"
            for point, on in (("roce_np", notification), ("roce_rp", reaction))
        ]
    if leg.driver == BNXT:
        on = int(notification and reaction)
        return [_bnxt_cc(leg, {"ecn_enable": on, "ecn_marking": on, "cc_mode": 1})]
    return []


def set_cnp(leg: Leg, dscp: int, priority: int) -> list[str]:
    if leg.driver == MLX5:
        folder = f"/sys/class/net/{leg.netdev}/ecn/roce_np"
        return [f"echo {dscp} > {folder}/cnp_dscp", f"echo {priority} > {folder}/cnp_802p_prio"]
    if leg.driver == BNXT:
        return [_bnxt_cc(leg, {"cnp_dscp": dscp, "cnp_prio": priority})]
    return []


def set_pause(leg: Leg, rx: bool, tx: bool, autoneg: bool) -> list[str]:
    words = ["on" if value else "off" for value in (autoneg, rx, tx)]
    return [f"ethtool -A {leg.netdev} autoneg {words[0]} rx {words[1]} tx {words[2]}"]


def _bnxt_cc(leg: Leg, values: Mapping[str, int]) -> str:
    """configfs shows the files only while a folder stands there, and ``apply`` commits what was written."""
    top = f"{CONFIGFS}/{leg.device}"
    folder = f"{top}/ports/{leg.port}/cc"
    writes = " && ".join(f"echo {value:#x} > {folder}/{name}" for name, value in values.items())
    return f"mkdir -p {top} && {writes} && echo 1 > {folder}/apply && rmdir {top}"


#: Where switches begin and end to mark, in KB: the values of Onyx's own RoCE mode (host-contract 4.7).
_ECN_MIN, _ECN_MAX = 150, 1500
#: The priority that the RoCE modes of Cumulus and Onyx are made for.
_ROCE_MODE_PRIORITY = 3


def switch_text(target: Target, port: str = "PORT") -> dict[str, str]:
    """What the switch's operator would type for the ports of these hosts, by system (host-contract 4.7).

    Each sets PFC, where the DSCPs of RoCE and of CNPs lead to, and ECN on the queue of RoCE.
    """
    dscps = {target.dscp: target.priority, target.cnp_dscp: target.cnp_priorities[0]}
    systems = {"Cumulus": _cumulus, "SONiC": _sonic, "Arista": _arista, "Onyx": _onyx}
    site = (target.priority, sorted(target.pfc), dscps, port)
    return {name: "; ".join(lines(*site)) for name, lines in systems.items()}


def _cumulus(priority: int, pfc: Sequence[int], dscps: Mapping[int, int], port: str) -> list[str]:
    lines = ["nv set qos roce mode lossless"]
    if list(pfc) != [_ROCE_MODE_PRIORITY]:
        lines.append(f"nv set qos pfc default-global switch-priority {','.join(map(str, pfc))}")
    lines += [f"nv set qos mapping default-global dscp {dscp} switch-priority {to}" for dscp, to in dscps.items()]
    return [
        *lines,
        f"nv set qos egress-queue-mapping default-global switch-priority {priority} traffic-class {priority}",
        f"nv set qos congestion-control default-global traffic-class {priority} ecn enable",
        "nv config apply",
        f"check: nv show qos roce, nv show interface {port} qos roce status",
    ]


def _sonic(priority: int, pfc: Sequence[int], dscps: Mapping[int, int], port: str) -> list[str]:
    entries = ", ".join(f'"{dscp}": "{to}"' for dscp, to in dscps.items())
    return [
        f'PORT_QOS_MAP|{port} pfc_enable "{",".join(map(str, pfc))}"',
        f"DSCP_TO_TC_MAP {entries}",
        f'TC_TO_QUEUE_MAP "{priority}": "{priority}"',
        f'QUEUE|{port}|{priority} wred_profile of a WRED_PROFILE with ecn "ecn_all"',
        f"lossless buffer profiles for priority {', '.join(map(str, pfc))}: config qos reload",
        "check: show pfc priority, show ecn",
    ]


def _arista(priority: int, pfc: Sequence[int], dscps: Mapping[int, int], port: str) -> list[str]:
    return [
        *(f"qos map dscp {dscp} to traffic-class {to}" for dscp, to in dscps.items()),
        f"qos map traffic-class {priority} to tx-queue {priority}",
        f"interface {port}",
        "qos trust dscp",
        "priority-flow-control on",
        *(f"priority-flow-control priority {number} no-drop" for number in pfc),
        "dcbx mode ieee",
        f"tx-queue {priority} (uc-tx-queue on some models)",
        f"random-detect ecn minimum-threshold {_ECN_MIN} kbytes maximum-threshold {_ECN_MAX} kbytes",
        "check: show priority-flow-control status, show qos interfaces ecn counters queue",
    ]


def _onyx(priority: int, pfc: Sequence[int], dscps: Mapping[int, int], port: str) -> list[str]:
    """Its RoCE mode knows one priority; for another one PFC and its pool are set one by one."""
    of_port = f"interface ethernet {port}"
    lines = ["roce lossless"]
    if list(pfc) != [_ROCE_MODE_PRIORITY]:
        lines = [
            "traffic pool roce type lossless",
            *(f"traffic pool roce map switch-priority {number}" for number in pfc),
            "dcb priority-flow-control enable force",
            *(f"dcb priority-flow-control priority {number} enable" for number in pfc),
            f"{of_port} dcb priority-flow-control mode on force",
            f"{of_port} qos trust L3",
        ]
    return [
        *lines,
        *(f"{of_port} qos map dscp {dscp} to switch-priority {to}" for dscp, to in dscps.items()),
        f"{of_port} traffic-class {priority} congestion-control ecn"
        f" minimum-absolute {_ECN_MIN} maximum-absolute {_ECN_MAX}",
        "check: show roce, show dcb priority-flow-control",
    ]
