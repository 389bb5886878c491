# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the counters around each incast prove, the records of each host that follow, and the screen (host-contract 4.6).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import VERDICT
from ansible_collections.lium.cluster.plugins.module_utils._lossless.counters import NAMES
from ansible_collections.lium.cluster.plugins.module_utils._lossless.exercise import (
    BLACKHOLE,
    CABLE,
    HOST_BUFFERS,
    SWITCH,
    WRONG_CLASS,
    History,
    Load,
    Proof,
    Snapshot,
    prove,
)
from ansible_collections.lium.cluster.plugins.module_utils._lossless.judges import for_operator
from ansible_collections.lium.cluster.plugins.module_utils._lossless.verdict import (
    CONFIDENCES,
    EXERCISED,
    EXERCISED_LOSS,
    EXERCISED_OK,
    LOSSLESS,
    NOT_EXERCISED,
    VERDICTS,
    exercised,
)
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import Incast
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import lost_hosts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_plan import USUAL, legs_of, rail_name
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import Records, joined
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP, RunFolder

COUNTERS = Check(
    id="roce.loss_counters",
    title="An incast loses no packet",
    severity="degraded",
    expected="all others send to the port at its line rate, pause or ECN holds them back, and no counter of loss moves",
    why="NCCL sends from many hosts to one, and settings alone do not show what the switch does then",
    source="ethtool -S and hw_counters before and after ib_write_bw from all other hosts",
)

_AGAIN = "run verify_lossless again"


class Judged(NamedTuple):
    """One incast and what it proved. ``rates`` are Gb/s by sender, None where none came; ``fix`` says what to do."""

    incast: Incast
    rail: str
    proof: Proof
    fix: str
    rates: dict[str, float | None]
    rate: float
    line_rate: float | None
    priority: int
    moved: dict[str, dict[str, int]]
    measured_at: str | None

    @property
    def lossy(self) -> bool:
        """Lost packets, or traffic in a class where nothing protects it."""
        return self.proof.proven == EXERCISED_LOSS or self.proof.place == WRONG_CLASS


class Conclusion(NamedTuple):
    """``results`` is for each host what a check module would have returned: records, and facts for the report."""

    screen: str
    rows: list[dict[str, Any]]
    results: dict[str, dict[str, Any]]


def conclude(folder: RunFolder, ends: Mapping[str, Any], lossless: Mapping[str, Mapping[str, Any]]) -> Conclusion:
    """Judges a run.

    ``ends`` holds what the task that collected said of each host, ``lossless`` what lossless_info did.
    """
    run = folder.read_run()
    records = list(folder.records(SWEEP))
    loads = {(row["incast"], row["rail"]): row for _, row in records if "incast" in row}
    missed = joined((host, row) for host, row in records if "incast" not in row)
    lost = lost_hosts(run["planned"], ends)
    judged = [
        _judge(Incast(receiver, rail, tuple(senders)), run, loads.get((receiver, rail)), missed, lost, lossless)
        for receiver, rail, senders in run["incasts"]
    ]
    rows = [_row(one, run["tclass"]) for one in judged]
    results = {}
    for host in [*run["rails"], *run["refused"]]:
        own = [one for one in judged if one.incast.receiver == host]
        results[host] = _host_result(own, run["refused"].get(host, ""), lossless.get(host, {}))
    return Conclusion(_screen(run, judged, lost, results), rows, results)


def _judge(
    incast: Incast,
    run: Mapping[str, Any],
    load: Mapping[str, Any] | None,
    missed: Records,
    lost: Mapping[str, str],
    lossless: Mapping[str, Mapping[str, Any]],
) -> Judged:
    rails = {host: RailAt(**run["rails"][host][incast.rail]) for host in (incast.receiver, *incast.senders)}
    name = rail_name(rails[incast.receiver])
    leg = next(iter(legs_of(lossless.get(incast.receiver, {}), name)), None)
    priority = leg["priority"] if leg else USUAL.priority
    absent = dict(_absent(incast, load, missed, lost))
    if load is None:
        why = "; ".join(dict.fromkeys(f"{host}: {text}" for host, (text, _) in absent.items())) or "no record came back"
        proof = Proof(NOT_EXERCISED, f"did not run: {why}")
        rates: dict[str, float | None] = dict.fromkeys(incast.senders)
        fix = next((fix for _, fix in absent.values() if fix), f"See that all hosts run, then {_AGAIN}")
        return Judged(incast, name, proof, fix, rates, 0.0, rails[incast.receiver].link_gbps, priority, {}, None)
    rates = {host: load["senders"].get(host, {}).get("gigabits_per_second") for host in incast.senders}
    both_ways = 2 if len(run["segments"][_segment(run, incast.receiver)]) == 2 else 1
    histories = {
        host: History(f"{host} {rail_name(rails[host])}", Snapshot(**row["before"]), Snapshot(**row["after"]))
        for host, row in {incast.receiver: load, **load["senders"]}.items()
    }
    rate = sum(value or 0.0 for value in rates.values()) / both_ways
    line_rate = rails[incast.receiver].link_gbps
    senders = [histories[host] for host in load["senders"]]
    ecn_only = bool(leg and leg["ecn_only"])
    proof = prove(Load(histories[incast.receiver], senders, rate, line_rate, priority, ecn_only))
    fix = _fix(proof, incast.receiver, name, priority, run["tclass"], leg, lossless.get(incast.receiver, {}))
    if absent:
        told = "; ".join(f"{host}: {text}" for host, (text, _) in absent.items())
        proof = dataclasses.replace(proof, reason=f"{proof.reason} (without {told})")
        if not fix or (proof.proven == NOT_EXERCISED and proof.place is None):
            fix = next((fix for _, fix in absent.values() if fix), fix or f"See that all hosts run, then {_AGAIN}")
    moved = {host: _moved(history, priority) for host, history in histories.items()}
    return Judged(incast, name, proof, fix, rates, round(rate, 2), line_rate, priority, moved, str(load["measured_at"]))


def _segment(run: Mapping[str, Any], host: str) -> str:
    return next(segment for segment, hosts in run["segments"].items() if host in hosts)


def _absent(
    incast: Incast, load: Mapping[str, Any] | None, missed: Records, lost: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Hosts for which a part of the incast did not take place: why, and what mends it."""
    if load is None and incast.receiver in lost:
        yield incast.receiver, (lost[incast.receiver], f"See that {incast.receiver} runs, then {_AGAIN}")
        return
    for host in incast.senders:
        sent = (load or {"senders": {}})["senders"].get(host)
        if sent is not None:
            if sent["class"]:
                accused = sent["accused"] or host
                yield accused, (sent["cause"] or sent["class"], sent["fix"] or f"Mend it on {accused}, then {_AGAIN}")
        elif host in lost:
            yield host, (lost[host], f"See that {host} runs, then {_AGAIN}")
        else:
            record = next((row for test, row in missed.items() if test == (incast.receiver, host, incast.rail)), None)
            if record is not None:
                yield record["accused"] or host, (record["cause"], "")


def _moved(history: History, priority: int) -> dict[str, int]:
    """How far each meaning has moved; one that cannot be told is left out."""
    moved = {meaning: history.moved(meaning, priority) for meaning in NAMES}
    return {meaning: by for meaning, by in moved.items() if by is not None}


def _fix(
    proof: Proof,
    receiver: str,
    rail: str,
    priority: int,
    tclass: int,
    leg: Mapping[str, Any] | None,
    look: Mapping[str, Any],
) -> str:
    """What to do about a proof; nothing where all is well."""
    port = f"{rail} of {receiver}"
    if proof.place == WRONG_CLASS:
        return (
            f"Let traffic class {tclass} lead to priority {priority} on every host and on the switch: mend"
            " roce.effective_dscp, roce.trust and roce.dscp_map, and see that the switch keeps the DSCP"
        )
    if proof.place == HOST_BUFFERS:
        return (
            f"On {receiver} mend roce.pfc, roce.buffers and roce.pause, whose records have the commands; where these"
            f" are good, look at pcie.link: the card of {port} drops what its slot cannot take"
        )
    if proof.place == SWITCH:
        texts = ((look.get("facts") or {}).get("lossless") or {}).get("switch") or {}
        drops = f"The switch drops on its way to {port}"
        return f"{drops}. {for_operator(texts)}" if texts else f"{drops}: have PFC set on that port"
    if proof.place == BLACKHOLE:
        return (
            f"A path to {port} leads nowhere under load: look for a PFC watchdog that has tripped, a pause storm and a"
            " dead member of a bond, then run verify_roce"
        )
    if proof.place == CABLE:
        return f"Reseat or change cable and optic of the ports that count errors, then {_AGAIN}"
    if proof.proven == EXERCISED_LOSS:
        return f"{port} shows no discards of its own: look at its buffers and at those of the switch port"
    if proof.proven == EXERCISED_OK:
        return f"Look at {', '.join(proof.warnings)}" if proof.warnings else ""
    if not proof.readable and leg and leg["soft"]:
        return "Nothing to set: Soft-RoCE counts neither pause nor ECN; prove the pairs with verify_roce instead"
    if not proof.readable:
        return f"Make ethtool -S and hw_counters of {port} and of its senders readable, then {_AGAIN}"
    return (
        "Load the port more: more hosts, more queue pairs (roce_verify_incast_qps), or longer"
        f" (roce_verify_incast_duration_s), then {_AGAIN}"
    )


def _row(one: Judged, tclass: int) -> dict[str, Any]:
    """One incast in the report (docs/schema/report.schema.json)."""
    return {
        "receiver": one.incast.receiver,
        "rail": one.rail,
        "senders": one.rates,
        "tclass": tclass,
        "priority": one.priority,
        "gigabits_per_second": one.rate,
        "line_gbps": one.line_rate,
        "proven": one.proof.word,
        "place": one.proof.place,
        "reason": one.proof.reason,
        "fix": one.fix,
        "unread": list(one.proof.unread),
        "warnings": list(one.proof.warnings),
        "counters": one.moved,
        "measured_at": one.measured_at,
    }


def _host_result(own: Sequence[Judged], refused: str, look: Mapping[str, Any]) -> dict[str, Any]:
    """Records and facts of one host: those of its ports as receivers, and the verdict that these make surer."""
    if refused or not own:
        reason = f"no test ran: {refused}" if refused else "alone in its segment"
        return {"records": [COUNTERS.skipped(reason).as_dict()], "facts": {}}
    records = [_counters_record(own)]
    lossless = (look.get("facts") or {}).get("lossless")
    if not lossless or not lossless["rails"]:
        return {"records": [record.as_dict() for record in records], "facts": {}}
    proven = {one.rail: EXERCISED_LOSS if one.lossy else one.proof.proven for one in own}
    rails = []
    for leg in lossless["rails"]:
        verdict, confidence = exercised(leg["verdict"], leg["confidence"], proven.get(leg["rail"], NOT_EXERCISED))
        rails.append({**leg, "verdict": verdict, "confidence": confidence})
    verdict = min((leg["verdict"] for leg in rails), key=VERDICTS.index)
    confidence = min((leg["confidence"] for leg in rails), key=CONFIDENCES.index)
    lossy = [one for one in own if one.lossy]
    if lossy:
        seen = "; ".join(f"{one.rail}: {one.proof.place or one.proof.reason}" for one in lossy)
        records.append(VERDICT.must_fix(f"{verdict} ({EXERCISED}): {seen}", f"Mend {COUNTERS.id} first"))
    elif (verdict, confidence) == (LOSSLESS, EXERCISED):
        records.append(VERDICT.ok(f"{verdict} ({EXERCISED})"))
    facts = {"lossless": {**lossless, "verdict": verdict, "confidence": confidence, "rails": rails}}
    return {"records": [record.as_dict() for record in records], "facts": facts}


def _counters_record(own: Sequence[Judged]) -> Record:
    """The worst of a host's ports decides; what is not proven is not good."""
    observed = "; ".join(f"{one.rail}: {_summary(one)}" for one in own)
    for made, group in (
        (COUNTERS.must_fix, [one for one in own if one.lossy]),
        (COUNTERS.unknown, [one for one in own if one.proof.proven == NOT_EXERCISED and not one.lossy]),
        (COUNTERS.warn, [one for one in own if one.fix]),
    ):
        if group:
            return made(observed, "; ".join(dict.fromkeys(one.fix for one in group if one.fix)))
    return COUNTERS.ok(observed)


def _summary(one: Judged) -> str:
    place = f" at {one.proof.place}" if one.proof.place in (SWITCH, HOST_BUFFERS) else ""
    place = place or (f" ({one.proof.place})" if one.proof.place else "")
    return f"{one.proof.word}{place}: {one.proof.reason}"


def _screen(
    run: Mapping[str, Any], judged: Sequence[Judged], lost: Mapping[str, str], results: Mapping[str, Mapping[str, Any]]
) -> str:
    lines = []
    for segment, hosts in run["segments"].items():
        own = [one for one in judged if one.incast.receiver in hosts]
        done = sum(one.proof.word == EXERCISED_OK for one in own)
        lines.append(
            f"RoCE segment {segment}: {len(hosts)} hosts, {done} of {len(own)} ports lost nothing under an incast"
            f" (traffic class {run['tclass']})"
        )
        lines += ["", *_table(own)] if own else ["  alone in its segment: nobody sends to it"]
        for one in own:
            if one.fix:
                lines.append(f"  {one.incast.receiver} {one.rail}")
                lines += _wrapped("seen", _summary(one)) + _wrapped("do", one.fix)
        for host in hosts:
            facts = results[host]["facts"].get("lossless")
            if facts:
                lines.append(f"  {host}: {facts['verdict']} ({facts['confidence']})")
        lines += [f"  host {host}: {why}" for host, why in lost.items() if host in hosts]
        lines.append("")
    return "\n".join(lines)


def _table(own: Iterable[Judged]) -> list[str]:
    rows = [("receiver", "rail", "senders", "Gb/s", "proof", "place")]
    for one in own:
        ran = sum(rate is not None for rate in one.rates.values())
        line = f" of {one.line_rate:g}" if one.line_rate else ""
        shown = f"{one.rate:g}{line}", one.proof.word, one.proof.place or "-"
        rows.append((one.incast.receiver, one.rail, f"{ran} of {len(one.rates)}", *shown))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows] + [""]


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=f"    {label + ':':<6}", subsequent_indent=" " * 10)
