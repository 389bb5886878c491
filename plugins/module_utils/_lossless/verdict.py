# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""From findings to a verdict: lossless, lossy or unknown, how sure that is, and the link that breaks the chain.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.lium.cluster.plugins.module_utils._lossless.judges import Finding
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy, Target
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rules import CHAIN, DCBX_PEER, RULES, Rule
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import Reading
from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, OK, UNKNOWN

LOSSLESS, LOSSY, UNCLEAR = "lossless", "lossy", "unknown"
#: Worst first: a host is what its worst rail is.
VERDICTS = (LOSSY, UNCLEAR, LOSSLESS)
#: Of a host whose fabric is none of Ethernet. No rail has it.
NOT_APPLICABLE = "not_applicable"

#: What a verdict rests on, least first: settings of the host alone say nothing of the switch.
HOST_ONLY, HOST_AND_PEER, EXERCISED = "host_only", "host_and_peer", "exercised"
CONFIDENCES = (HOST_ONLY, HOST_AND_PEER, EXERCISED)

#: Results of the counter proof (host-contract 4.6).
EXERCISED_OK, EXERCISED_LOSS, NOT_EXERCISED = "exercised_ok", "exercised_loss", "not_exercised"


@dataclasses.dataclass(frozen=True)
class LegVerdict:
    """One leg: its findings by rule, and what they come to. ``broken`` is the first rule of the chain that fails."""

    reading: Reading
    target: Target
    findings: Mapping[Rule, Finding]
    verdict: str
    confidence: str
    broken: Rule | None


def judge_leg(reading: Reading, policy: Policy, proven: str = NOT_EXERCISED) -> LegVerdict:
    """Applies all rules (host-contract 4.5). Traffic that was seen to be lost counts more than any setting."""
    target = policy.target(reading.settings, reading.leg.driver)
    findings = {rule: rule.apply(reading, target) for rule in RULES}
    required = [finding.status for rule, finding in findings.items() if rule.required]
    if MUST_FIX in required or target.ecn_only:
        verdict = LOSSY
    elif UNKNOWN in required or reading.leg.soft:
        verdict = UNCLEAR
    else:
        verdict = LOSSLESS
    confidence = HOST_AND_PEER if findings[DCBX_PEER].status == OK else HOST_ONLY
    return LegVerdict(reading, target, findings, *exercised(verdict, confidence, proven), _broken(findings))


def exercised(verdict: str, confidence: str, proven: str) -> tuple[str, str]:
    """Verdict and confidence of a rail once its port was under load (host-contract 4.5).

    A loss stands above all settings; that nothing was lost makes a verdict surer, and no better.
    """
    if proven not in (EXERCISED_OK, EXERCISED_LOSS):
        return verdict, confidence
    return LOSSY if proven == EXERCISED_LOSS else verdict, EXERCISED


def _broken(findings: Mapping[Rule, Finding]) -> Rule | None:
    failing = [rule for rule in findings if rule.link in CHAIN and findings[rule].status == MUST_FIX]
    return min(failing, key=lambda rule: CHAIN.index(rule.link), default=None)


def host_verdict(legs: Iterable[LegVerdict], others: Sequence[str] = ()) -> tuple[str, str]:
    """Verdict and confidence of all rails together: the worst, and the least sure. No rail is no knowledge.

    ``others`` are ports that the check does not apply to. Where there are only such, it does not apply to the host.
    """
    seen = list(legs)
    if not seen:
        return NOT_APPLICABLE if others else UNCLEAR, HOST_ONLY
    verdict = next(verdict for verdict in VERDICTS if any(leg.verdict == verdict for leg in seen))
    return verdict, min((leg.confidence for leg in seen), key=CONFIDENCES.index)
