#!/usr/bin/python3
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Says whether a job's NCCL log shows RDMA or sockets, with the line that tells it and the likely cause.

    lium-nccl-log FILE        `-` reads stdin

Ends with 0 for RDMA, 1 for sockets or RDMA that failed, 3 when the log does not tell, 2 on wrong use. A run that ended
well over sockets is not well: it is many times slower (host-contract 8). Only the standard library.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

IB, SOCKET, UNKNOWN = "IB", "Socket", "unknown"


class Reading(NamedTuple):
    """What the log shows. ``number`` counts from 1, 0 is no line; ``cause`` and ``fix`` are empty when all is well."""

    transport: str
    number: int
    line: str
    cause: str
    fix: str

    @property
    def well(self) -> bool:
        return self.transport == IB and not self.cause


# What decides, strongest first: a channel that was built, the network that a rank took, a network that came up.
_DECIDING = (
    re.compile(r"\bvia NET/(?P<net>[A-Za-z]+)\b"),
    re.compile(r"\b(?:Using network|Assigned NET plugin|Initialized NET plugin) (?P<net>\S+)"),
    re.compile(r"\bNET/(?P<net>IB|Socket) ?: Using \["),
)
_RANK = re.compile(r"^(?P<process>\S+?:\d+):\d+ \[")

_RUNTIME = "Start the container without --runtime, so that Docker's default runtime maps the devices"
# (mark in the log, cause, what to do), most telling first.
_CAUSES = (
    (r"NCCL_IB_DISABLE set (?:by environment )?to [^0\s]", "RDMA is switched off by NCCL_IB_DISABLE", "Unset it"),
    (r"NCCL_NET set (?:by environment )?to Socket", "NCCL_NET asks for sockets", "Unset NCCL_NET"),
    (
        r"Failed to open libibverbs\.so",
        "the image has no libibverbs",
        "Install libibverbs1 and ibverbs-providers in the image",
    ),
    (
        r"ibv_open_device failed|Unable to open device (?P<device>\S+)",
        "an RDMA device is listed but cannot be opened: its node is missing in the container, or has no rights there",
        _RUNTIME,
    ),
    (
        r"ibv_(?:reg_mr|reg_dmabuf_mr|create_cq|create_qp)\w* failed.*Cannot allocate memory",
        "the limit of locked memory is too low",
        "Start the container with --ulimit memlock=-1:-1 --cap-add IPC_LOCK, or with the default runtime",
    ),
    (
        r"NET/IB ?: No device found",
        "NCCL found no RDMA device: none is mapped into the container, none is active, or NCCL_IB_HCA selects none",
        f"{_RUNTIME}; then look at `lium-fabric-env check`",
    ),
)
_FAILED = (
    (
        r"ibv_modify_qp\w* failed.*(?:timed out|Connection timed out)",
        "the GID in use is not one of the fabric",
        "Unset NCCL_IB_GID_INDEX, or take the one that lium-fabric-env names",
    ),
    (
        r"Got completion.*(?:status=12|error 12|opcode.*status 12)",
        "the peer did not acknowledge: the switch drops RDMA (PFC, ECN, MTU), or a rank has died",
        "Look for the first rank that ended, then let the provider verify the pair",
    ),
    _CAUSES[4],
)
_NO_WORD = "Run the job again with NCCL_DEBUG=INFO (and NCCL_DEBUG_SUBSYS=INIT,NET) and give this log"


def read_log(text: str) -> Reading:
    """Reads the whole log: each rank is judged by its strongest line, and one rank on sockets makes the job so."""
    lines = text.splitlines()
    ranks: dict[str, tuple[int, int, str]] = {}  # process -> (strength, line number, network)
    for number, line in enumerate(lines, 1):
        found = _RANK.match(line.strip())
        process = found["process"] if found else ""
        for strength, pattern in enumerate(_DECIDING):
            match = pattern.search(line)
            if not match:
                continue
            network = match["net"].rstrip(".,;:")
            before = ranks.get(process)
            # Of equal lines one on sockets counts: a single slow channel holds up all others.
            if before is None or strength < before[0] or (strength == before[0] and network == SOCKET != before[2]):
                ranks[process] = (strength, number, network)
            break
    if not ranks:
        number, line, cause, fix = _look(lines, _CAUSES)
        if number:
            return Reading(UNKNOWN, number, line, cause, fix)
        wrote = any("NCCL" in line for line in lines)
        cause = "the log names no network" if wrote else "there is no line of NCCL in it"
        return Reading(UNKNOWN, 0, "", cause, _NO_WORD)
    decided = sorted(ranks.values(), key=lambda row: (row[2] == IB, row[2] != SOCKET, row[1]))
    _, number, network = decided[0]
    line = lines[number - 1].strip()
    if network == SOCKET:
        _, _, cause, fix = _look(lines, _CAUSES)
        cause = cause or "the log does not say why RDMA was not taken"
        return Reading(SOCKET, number, line, cause, fix or "Look at `lium-fabric-env check` in the job's container")
    if network != IB:
        return Reading(UNKNOWN, number, line, f"the network {network} is neither IB nor Socket", "Ask who brought it")
    failed, text_of_it, cause, fix = _look(lines, _FAILED)
    return Reading(IB, failed or number, text_of_it or line, cause, fix)


def _look(lines: Sequence[str], marks: Sequence[tuple[str, str, str]]) -> tuple[int, str, str, str]:
    """The first mark that occurs: (line number, line, cause, fix); 0 and empty texts when none does."""
    for pattern, cause, fix in marks:
        for number, line in enumerate(lines, 1):
            if re.search(pattern, line):
                return number, line.strip(), cause, fix
    return 0, "", "", ""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="lium-nccl-log", description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the log of a job that ran with NCCL_DEBUG=INFO; - for stdin")
    options = parser.parse_args(argv)
    try:
        if options.file == "-":
            text = sys.stdin.read()
        else:
            with open(options.file, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
    except OSError as exc:
        print(f"lium-nccl-log: {options.file}: {exc.strerror}", file=sys.stderr)
        return 2
    reading = read_log(text)
    print(reading.transport)
    if reading.number:
        print(f"line {reading.number}: {reading.line}")
    if reading.cause:
        print(f"likely cause: {reading.cause}\nwhat to do: {reading.fix}")
    if reading.well:
        return 0
    return 3 if reading.transport == UNKNOWN else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
