# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The sources of the lossless check in their order of trust (host-contract 4.2), and how each is asked.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._lossless import broadcom, dcb, intel, mlx5
from ansible_collections.lium.cluster.plugins.module_utils._lossless.lldp import parse_lldpcli, parse_lldptool
from ansible_collections.lium.cluster.plugins.module_utils._lossless.mlnx_qos import parse_mlnx_qos
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import BNXT, ICE, MLX5, Leg
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    FIELDS,
    FIRMWARE_CONTROLLED,
    PRIORITIES,
    Settings,
    told,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ethtool_pause
from ansible_collections.lium.cluster.plugins.module_utils._probe import (
    CommandError,
    Completed,
    HostProbe,
    Missing,
    ProbeError,
    ToolMissing,
)

CONFIGFS = "/sys/kernel/config/bnxt_re"
DEBUGFS = "/sys/kernel/debug/bnxt_re"

#: Agents answer at once or hang; every rail asks them anew.
_LLDP_TIMEOUT = 10.0


@dataclasses.dataclass(frozen=True)
class Source:
    """One place to read from. ``facts`` are those that it can tell; it is asked while one of them is not known yet.

    ``drivers`` is empty for a source of every driver. ``read`` may raise ProbeError and ParseError, which make the
    reason why a fact stays unknown.
    """

    name: str
    facts: tuple[str, ...]
    read: Callable[[HostProbe, Leg], Settings]
    drivers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Reading:
    """What is known of one leg, who told it, and what stood in the way of the rest (fact -> reasons)."""

    leg: Leg
    settings: Settings
    told_by: Mapping[str, str]
    reasons: Mapping[str, Sequence[str]]

    def why_unknown(self, facts: Sequence[str]) -> str:
        found = [reason for fact in facts for reason in self.reasons.get(fact, ())]
        return "; ".join(dict.fromkeys(found)) or "no source on this host tells it"

    def source(self, facts: Sequence[str]) -> str:
        return ", ".join(dict.fromkeys(self.told_by[fact] for fact in facts if fact in self.told_by))


def read_leg(probe: HostProbe, leg: Leg) -> Reading:
    """Asks the sources in their order; of a fact the first that tells it counts. Never raises for what a host shows."""
    if leg.soft:
        return Reading(leg, Settings(), {}, {})
    if not leg.netdev:
        return Reading(leg, Settings(), {}, {fact: [f"{leg.rail} has no netdev"] for fact in FIELDS})
    facts: dict[str, object] = {}
    told_by: dict[str, str] = {}
    reasons: dict[str, list[str]] = {}
    for source in SOURCES:
        open_facts = [fact for fact in source.facts if fact not in facts]
        if not open_facts or (source.drivers and leg.driver not in source.drivers):
            continue
        try:
            found = told(source.read(probe, leg))
        except (ProbeError, ParseError) as exc:
            for fact in open_facts:
                reasons.setdefault(fact, []).append(str(exc))
            continue
        for fact in open_facts:
            if fact in found:
                facts[fact], told_by[fact] = found[fact], source.name
            else:
                reasons.setdefault(fact, []).append(f"{source.name} does not show it")
    return Reading(leg, Settings(**facts), told_by, reasons)  # type: ignore[arg-type]


def _mlnx_qos(probe: HostProbe, leg: Leg) -> Settings:
    return parse_mlnx_qos(probe.output("mlnx_qos", "-i", leg.netdev))


def _dcb(what: str, parse: Callable[[str], Settings]) -> Callable[[HostProbe, Leg], Settings]:
    """JSON first; a version that answers in text with it is asked for text, with numbers for names."""

    def read(probe: HostProbe, leg: Leg) -> Settings:
        try:
            return parse(probe.output("dcb", "-j", what, "show", "dev", leg.netdev))
        except ParseError:
            return parse(probe.output("dcb", "-N", what, "show", "dev", leg.netdev))

    return read


def _dcb_pfc(probe: HostProbe, leg: Leg) -> Settings:
    found = _dcb("pfc", dcb.parse_dcb_pfc)(probe, leg)
    return found if leg.driver == MLX5 else dataclasses.replace(found, cable_length=None)


def _niccli(probe: HostProbe, leg: Leg) -> Settings:
    """Three generations of the tool; the newest one that is there answers."""
    if probe.which("niccli") is None:
        return broadcom.parse_bnxt_qos(probe.output("bnxtqos", f"-dev={leg.netdev}", "get_qos"))
    try:
        return broadcom.parse_bnxt_qos(probe.output("niccli", "--dev", leg.pci or "", "qos", "--ets", "--show"))
    except (CommandError, ParseError):
        index = broadcom.parse_niccli_list(probe.output("niccli", "--list"), leg.pci or leg.netdev, leg.netdev)
        return broadcom.parse_bnxt_qos(probe.output("niccli", "-dev", index, "get_qos"))


def _bnxt_cc(probe: HostProbe, leg: Leg) -> Settings:
    """configfs shows its files once somebody has made a folder there; taking it away again leaves nothing behind."""
    top, folder = f"{CONFIGFS}/{leg.device}", f"{CONFIGFS}/{leg.device}/ports/{leg.port}/cc"
    made = False
    if not probe.exists(top):
        try:
            made = probe.run("mkdir", top).rc == 0
        except ToolMissing:
            made = False
    try:
        files = _texts(probe, folder)
    finally:
        if made:
            probe.run("rmdir", top)
    files = files or _texts(probe, f"{DEBUGFS}/{leg.pci}/cc_config")
    try:
        info = probe.read(f"{DEBUGFS}/{leg.device}/info")
    except ProbeError:  # older drivers, or a kernel that keeps debugfs to itself
        info = ""
    return broadcom.parse_bnxt_cc(files, broadcom.has_service_profile(info))


def _texts(probe: HostProbe, folder: str) -> dict[str, str]:
    """Values of a folder's files; those that can only be written are left out by their names."""
    return {name: probe.read(f"{folder}/{name}") for name in probe.entries_or_none(folder) or [] if name in _CC_FILES}


_CC_FILES = frozenset(
    {"ecn_enable", "ecn_marking", "cc_mode", "roce_prio", "roce_dscp", "cnp_prio", "cnp_dscp", "enable_cc", "tos_ecn"}
)


def _traffic_class(probe: HostProbe, leg: Leg) -> Settings:
    path = f"/sys/class/infiniband/{leg.device}/tc/{leg.port}/traffic_class"
    try:
        return mlx5.parse_traffic_class(probe.read(path))
    except Missing:
        if not probe.exists(f"/sys/class/infiniband/{leg.device}"):
            raise
        return Settings(forced_class=0, can_force=False)  # the inbox driver


def _no_forced_class(probe: HostProbe, leg: Leg) -> Settings:
    """irdma has no such setting: packets carry what the application asks for, and tenants ask for nothing."""
    return Settings(forced_class=0, can_force=False)


def _ecn_files(probe: HostProbe, leg: Leg) -> Settings:
    folder = f"/sys/class/net/{leg.netdev}/ecn"
    points = []
    for point in ("roce_np", "roce_rp"):
        entries = probe.entries(f"{folder}/{point}/enable")
        numbers = [int(name) for name in entries if name in map(str, PRIORITIES)]
        points.append({number: probe.read(f"{folder}/{point}/enable/{number}") for number in numbers})
    names = ("cnp_dscp", "cnp_802p_prio")
    cnp = {name: probe.read_or_none(f"{folder}/roce_np/{name}") for name in names}
    return mlx5.parse_ecn(points[0], points[1], {name: text for name, text in cnp.items() if text is not None})


def _mstconfig(probe: HostProbe, leg: Leg) -> Settings:
    names = ("ROCE_CC_PRIO_MASK_P1", "CNP_DSCP_P1", "CNP_802P_PRIO_P1")
    return mlx5.parse_mstconfig(probe.output("mstconfig", "-d", leg.pci or "", "q", *names))


def _dcqcn(probe: HostProbe, leg: Leg) -> Settings:
    text = probe.read_or_none("/sys/module/irdma/parameters/dcqcn_enable")
    # Without the parameter the driver is the kernel's own, which leaves it off.
    return intel.parse_dcqcn_enable("N" if text is None else text)


def _priv_flags(probe: HostProbe, leg: Leg) -> Settings:
    return intel.parse_priv_flags(probe.output("ethtool", "--show-priv-flags", leg.netdev))


def _pause(probe: HostProbe, leg: Leg) -> Settings:
    pause = parse_ethtool_pause(probe.run("ethtool", "-a", leg.netdev))
    if not pause.supported:
        raise ParseError("ethtool -a", f"pause state of {leg.netdev} unknown (not supported)")
    return Settings(pause=pause)


def _own_lldp(probe: HostProbe, leg: Leg) -> Settings:
    """Whether lldpad runs, and what it wants of the port."""
    done = _lldptool(probe, "-t", "-i", leg.netdev)
    if done is None:
        return Settings(lldpad=False)
    if done.rc != 0:
        return Settings(lldpad=True)
    return Settings(lldpad=True, lldpad_pfc=parse_lldptool(done.stdout).pfc)


def _lldptool(probe: HostProbe, *arguments: str) -> Completed | None:
    """An answer of lldpad; None where it is not installed or does not run."""
    try:
        done = probe.run("lldptool", *arguments, timeout=_LLDP_TIMEOUT)
    except ToolMissing:
        return None
    return None if "onnection refused" in done.stderr + done.stdout else done


def _lldpad_local(probe: HostProbe, leg: Leg) -> Settings:
    """With software DCB on ice, what lldpad says it has set is the last to be believed of the port itself."""
    own = parse_lldptool(probe.output("lldptool", "-ti", leg.netdev))
    return Settings(pfc=own.pfc)


def _peer_lldpad(probe: HostProbe, leg: Leg) -> Settings:
    return Settings(peer=parse_lldptool(_heard(probe, leg, "lldptool", "-t", "-n", "-i", leg.netdev)))


def _peer_lldpd(probe: HostProbe, leg: Leg) -> Settings:
    argv = ("lldpcli", "-f", "json0", "show", "neighbors", "details", "ports", leg.netdev)
    return Settings(peer=parse_lldpcli(_heard(probe, leg, *argv)))


def _heard(probe: HostProbe, leg: Leg, *argv: str) -> str:
    if leg.driver == ICE and _firmware_listens(probe, leg):
        raise CommandError(argv, "the card's firmware takes LLDP for itself (fw-lldp-agent is on)")
    return probe.output(*argv, timeout=_LLDP_TIMEOUT)


def _firmware_listens(probe: HostProbe, leg: Leg) -> bool:
    try:
        return _priv_flags(probe, leg).dcbx == FIRMWARE_CONTROLLED
    except (ProbeError, ParseError):
        return False


_QOS = ("pfc", "trust", "dscp_map", "tc_of", "tsa", "bandwidth")
_ECN = ("ecn_np", "ecn_rp", "cnp_dscp", "cnp_priority")

SOURCES = (
    Source(
        "mlnx_qos", (*_QOS, "buffer_of", "buffer_sizes", "cable_length", "dcbx", "lldpad"), _mlnx_qos, drivers=(MLX5,)
    ),
    Source("dcb pfc", ("pfc", "cable_length"), _dcb_pfc),
    Source("dcb app", ("trust", "dscp_map"), _dcb("app", dcb.parse_dcb_app)),
    Source("dcb ets", ("tc_of", "tsa", "bandwidth"), _dcb("ets", dcb.parse_dcb_ets)),
    Source("dcb buffer", ("buffer_of", "buffer_sizes"), _dcb("buffer", dcb.parse_dcb_buffer), drivers=(MLX5,)),
    Source("ethtool --show-priv-flags", ("dcbx",), _priv_flags, drivers=(ICE,)),
    Source("dcb dcbx", ("dcbx",), _dcb("dcbx", dcb.parse_dcb_dcbx)),
    Source("niccli", _QOS, _niccli, drivers=(BNXT,)),
    Source("lldptool (own)", ("pfc",), _lldpad_local, drivers=(ICE,)),
    Source("traffic_class", ("forced_class", "can_force"), _traffic_class, drivers=(MLX5,)),
    Source("ecn in sysfs", _ECN, _ecn_files, drivers=(MLX5,)),
    Source("mstconfig", ("ecn_firmware", "cnp_dscp", "cnp_priority"), _mstconfig, drivers=(MLX5,)),
    Source(
        "bnxt_re congestion control",
        ("forced_class", "can_force", "firmware_class", *_ECN),
        _bnxt_cc,
        drivers=(BNXT,),
    ),
    Source("irdma", ("forced_class", "can_force"), _no_forced_class, drivers=(ICE,)),
    Source("irdma dcqcn_enable", ("ecn_np", "ecn_rp"), _dcqcn, drivers=(ICE,)),
    Source("ethtool -a", ("pause",), _pause),
    Source("lldptool (own)", ("lldpad", "lldpad_pfc"), _own_lldp),
    Source("lldptool", ("peer",), _peer_lldpad),
    Source("lldpcli", ("peer",), _peer_lldpd),
)
