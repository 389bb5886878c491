# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The lossless check of one host (host-contract 4): a record a rule, and ``roce.lossless`` for the verdict. Read only.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._facts import host_facts
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._lossless.commands import switch_text
from ansible_collections.lium.cluster.plugins.module_utils._lossless.counters import (
    PfcCounters,
    parse_ethtool_counters,
    pfc_counters,
)
from ansible_collections.lium.cluster.plugins.module_utils._lossless.judges import Finding, numbers, switch_fix
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy, Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import Rails, find_rails
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rules import RULES, Rule
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import Settings
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import read_leg
from ansible_collections.lium.cluster.plugins.module_utils._lossless.verdict import (
    HOST_ONLY,
    LOSSLESS,
    LOSSY,
    LegVerdict,
    host_verdict,
    judge_leg,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._record import (
    MUST_FIX,
    OK,
    SKIPPED,
    UNKNOWN,
    WARN,
    Record,
    worst_status,
)

VERDICT = Check(
    id="roce.lossless",
    title="RDMA loses no packets",
    severity="degraded",
    expected="lossless on every rail",
    why="a fabric that drops RDMA packets under load makes NCCL collapse, or fall back to TCP",
    source="the checks roce.* of this report",
)
ALL = (VERDICT, *(rule.check for rule in RULES))


def look_at_lossless(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Records and facts of one host; never raises for what a host shows. Raises PolicyError for impossible options."""
    policy = Policy.from_options(options)
    confidential = confidential_vm_host(probe)
    if confidential:
        return Look([check.skipped(confidential) for check in ALL], {"kept_out": confidential})
    host = Host(probe)
    facts = host_facts(host)
    try:
        rails = find_rails(host)
    except (ProbeError, ParseError) as exc:
        return Look([check.unknown(str(exc)) for check in ALL], facts)
    legs = [judge_leg(read_leg(probe, leg), policy) for leg in rails.legs]
    paused = [_pause_frames(probe, leg) for leg in legs]
    return Look(_records(rails, legs), {**facts, "lossless": lossless_facts(rails, legs, paused)})


def _pause_frames(probe: HostProbe, leg: LegVerdict) -> PfcCounters:
    """They are shown and not judged: that none came says nothing of whether the switch would send one."""
    try:
        text = probe.output("ethtool", "-S", leg.reading.leg.netdev)
        return pfc_counters(parse_ethtool_counters(text), leg.target.priority)
    except (ProbeError, ParseError):
        return PfcCounters(None, None)


def _records(rails: Rails, legs: Sequence[LegVerdict]) -> list[Record]:
    if not legs:
        reason = "; ".join(rails.not_applicable) or "no active RoCE port"
        return [check.skipped(reason) for check in ALL]
    return [_verdict_record(legs), *(_rule_record(rule, legs) for rule in RULES)]


def _verdict_record(legs: Sequence[LegVerdict]) -> Record:
    verdict, confidence = host_verdict(legs)
    if verdict == LOSSLESS:
        observed = f"{verdict} ({confidence})"
        return VERDICT.ok(f"{observed}: the switch is not proven" if confidence == HOST_ONLY else observed)
    broken = {leg.reading.leg.name: leg.broken for leg in legs if leg.verdict == LOSSY and leg.broken is not None}
    if verdict == LOSSY and not broken:
        return VERDICT.warn(f"{verdict} by design: ECN alone", "For a lossless fabric set lossless_mode to lossless")
    if verdict == LOSSY:
        links = _grouped(
            [(name, f"the chain breaks at {rule.link} ({rule.check.id})") for name, rule in broken.items()]
        )
        ids = ", ".join(dict.fromkeys(rule.check.id for rule in broken.values()))
        return VERDICT.must_fix(f"{verdict}: {links}", f"Mend {ids} first. {switch_fix(legs[0].target)}")
    ids = [
        rule.check.id for rule in RULES if rule.required and _status([leg.findings[rule] for leg in legs]) == UNKNOWN
    ]
    if not ids:
        return VERDICT.unknown("unknown: Soft-RoCE has nothing to read", "Nothing to set here; prove the pairs instead")
    return VERDICT.unknown(f"{verdict}: {', '.join(ids)} could not be read", f"Make {', '.join(ids)} readable")


def _rule_record(rule: Rule, legs: Sequence[LegVerdict]) -> Record:
    findings = [(leg.reading.leg.name, leg.findings[rule]) for leg in legs]
    status = _status([finding for _name, finding in findings])
    observed = _grouped([(name, finding.observed) for name, finding in findings])
    fix = "; ".join(
        dict.fromkeys(finding.fix for _name, finding in findings if finding.status == status and finding.fix)
    )
    source = ", ".join(dict.fromkeys(filter(None, (leg.reading.source(rule.needs) for leg in legs)))) or None
    if status == OK:
        return rule.check.ok(observed, source=source)
    if status == SKIPPED:
        return rule.check.skipped(observed)
    make = {WARN: rule.check.warn, MUST_FIX: rule.check.must_fix, UNKNOWN: rule.check.unknown}[status]
    return make(observed, fix, source=source)


def _status(findings: Sequence[Finding]) -> str:
    return worst_status(finding.status for finding in findings)


def _grouped(rows: Sequence[tuple[str, str]]) -> str:
    """Rails that say the same stand together; what all say stands alone."""
    by_text: dict[str, list[str]] = {}
    for name, text in rows:
        by_text.setdefault(text, []).append(name)
    if len(by_text) == 1 and len(rows) > 1:
        return f"all {len(rows)} rails: {rows[0][1]}"
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in by_text.items())


def lossless_facts(rails: Rails, legs: Sequence[LegVerdict], paused: Sequence[PfcCounters]) -> dict[str, Any]:
    """JSON types only: the verdict of host and rails, the settings that all hosts of a fabric must share, and the pause
    frames of each leg on the priority of RoCE."""
    verdict, confidence = host_verdict(legs, rails.not_applicable)
    return {
        "verdict": verdict,
        "confidence": confidence,
        "not_applicable": list(rails.not_applicable),
        "rails": [
            {
                "rail": leg.reading.leg.rail,
                "netdev": leg.reading.leg.netdev,
                "neighbour": leg.reading.settings.peer.system or None if leg.reading.settings.peer else None,
                "soft": leg.reading.leg.soft,
                "verdict": leg.verdict,
                "confidence": leg.confidence,
                "broken_link": leg.broken.link if leg.broken else None,
                "settings": shared_settings(leg.reading.settings, leg.target),
                "priority": leg.target.priority,
                "traffic_class": leg.target.traffic_class,
                "ecn_only": leg.target.ecn_only,
                "sources": dict(leg.reading.told_by),
                "pause_frames": frames._asdict(),
            }
            for leg, frames in zip(legs, paused)
        ],
        "switch": switch_text(legs[0].target) if legs else {},
    }


def shared_settings(settings: Settings, target: Target) -> dict[str, str | None]:
    """The tuple of host-contract 4.4 as texts; None for what could not be read. The MTU has a check of its own."""
    ecn: str | None = None
    if settings.ecn_np is not None and settings.ecn_rp is not None:
        ecn = "on" if target.priority in settings.ecn_np & settings.ecn_rp else "off"
    leads_to = None if settings.dscp_map is None else settings.dscp_map.get(target.dscp, "no priority")
    return {
        "PFC": None if settings.pfc is None else numbers(settings.pfc),
        "trust": settings.trust,
        "DSCP": None if leads_to is None else f"{target.dscp} -> {leads_to}",
        "forced class": None if settings.forced_class is None else str(settings.forced_class),
        "ECN": ecn,
    }
