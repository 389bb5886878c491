# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""``lium-roce-agent PLAN FOLDER LOCK``: the agent as a program.

It writes ``FOLDER/records.jsonl``: a line ``{"begin": …}``, one line a record, and ``{"end": …}``, which is missing
only when the process was killed. Two agents never run on one host: the second finds the lock taken and ends.

Stdlib only: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from ansible_collections.lium.cluster.plugins.module_utils._lossless.counters import (
    NAMES,
    parse_ethtool_counters,
    parse_rdma_statistic,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._roce.agent import Agent
from ansible_collections.lium.cluster.plugins.module_utils._roce.child import Child
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import CONTAINER, RailAt
from ansible_collections.lium.cluster.plugins.module_utils._roce.hostplan import Plan
from ansible_collections.lium.cluster.plugins.module_utils._roce.incast import IncastAgent
from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import Loop, Stopped
from ansible_collections.lium.cluster.plugins.module_utils._roce.sockets import listens

RECORDS = "records.jsonl"
#: Counters that tell of loss, by any driver's name (host-contract 4.6).
_COUNTERS = frozenset(
    """
    out_of_sequence packet_seq_err implied_nak_seq_err local_ack_timeout_err roce_adp_retrans roce_adp_retrans_to
    roce_slow_restart req_transport_retries_exceeded rnr_nak_retry_err out_of_buffer rx_icrc_encapsulated
    np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled seq_err_naks_rcvd to_retransmits oos_drop_count
    max_retry_exceeded rnr_naks_rcvd rx_roce_discards out_of_seq_request rcvd_seq_err retry_exceeded_err
    """.split()  # noqa: SIM905  a list of two dozen quoted names reads worse
)
#: Those that are read around an incast.
_PROOF_COUNTERS = frozenset(
    name.format(priority) for names in NAMES.values() for name in names for priority in range(8)
)
_COUNTERS_S = 10.0
_VERSION_S = 5.0
#: A Docker that takes longer than this for its list does not answer.
_DOCKER_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HostBench:
    """The host that this process runs on."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ: Mapping[str, str] = {"PATH": _PATH, **environ, "LC_ALL": "C"}

    def listens(self, port: int, address: str) -> bool:
        return listens(port, address)

    def counters(self, rail: RailAt) -> dict[str, int]:
        return self._files(rail, _COUNTERS)

    def snapshot(self, rail: RailAt) -> dict[str, dict[str, int]]:
        hardware = self._files(rail, _PROOF_COUNTERS)
        if not hardware:  # no such files, as in a container; the tool asks the kernel itself
            argv = ["rdma", "-j", "statistic", "show", "link", f"{rail.device}/{rail.port}"]
            hardware = self._told(argv, parse_rdma_statistic)
        ethtool: dict[str, int] = {}
        for netdev in rail.netdevs:
            for name, value in self._told(["ethtool", "-S", netdev], parse_ethtool_counters).items():
                ethtool[name] = ethtool.get(name, 0) + value
        return {
            group: {name: value for name, value in found.items() if name in _PROOF_COUNTERS}
            for group, found in (("ethtool", ethtool), ("hardware", hardware))
        }

    def _files(self, rail: RailAt, names: frozenset[str]) -> dict[str, int]:
        folder = f"/sys/class/infiniband/{rail.device}/ports/{rail.port}/hw_counters"
        found = {}
        with contextlib.suppress(OSError):
            for name in names.intersection(os.listdir(folder)):
                with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name)) as stream:
                    found[name] = int(stream.read())
        return found

    def _told(self, argv: Sequence[str], parse: Callable[[str], dict[str, int]]) -> dict[str, int]:
        """What a tool counts; nothing where it cannot be asked, for what is missing is not known."""
        try:
            done = subprocess.run(argv, env=dict(self.environ), capture_output=True, timeout=_COUNTERS_S, check=True)
            return parse(done.stdout.decode("utf-8", "replace"))
        except (OSError, subprocess.SubprocessError, ParseError):
            return {}

    def version(self, program: str) -> str | None:
        """Its exit code says nothing: some versions end ``--version`` with 0 and some do not."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            argv = [program, "--version"]
            done = subprocess.run(argv, env=dict(self.environ), capture_output=True, timeout=_VERSION_S, check=False)
            found = re.search(rb"^\s*version\s*:\s*([\w.+~-]+)", done.stdout, re.I | re.M)
            return found.group(1).decode() if found else None
        return None

    def now(self) -> str:
        return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class DockerGuard:
    """Looks at the host's containers, as the idle guard does (host-contract 0.3)."""

    def __init__(self, loop: Loop, environ: Mapping[str, str]) -> None:
        self._loop = loop
        self._environ = environ
        self._names: list[str] = []
        self._failures = 0

    def rented(self) -> str:
        """One look without an answer is a busy Docker; two in a row leave it open whether a rental runs."""
        told = self._look()
        self._failures = self._failures + 1 if told else 0
        if told and self._failures > 1:
            return told
        return ", ".join(name for name in self._names if "pod_" in name)

    def _look(self) -> str:
        """Lists the containers; why it could not, empty when it could. Other agents are answered meanwhile."""
        self._names = []
        if shutil.which("docker", path=self._environ.get("PATH")) is None:
            return ""
        try:
            child = Child(self._loop, ["docker", "ps", "--format", "{{.Names}}"], self._environ)
        except OSError as exc:
            return f"docker ps: {exc.strerror}"
        try:
            child.wait(self._loop.clock() + _DOCKER_S)
        finally:
            end = child.finish()
        if end.timed_out:
            return f"docker ps gave no answer within {_DOCKER_S:g} s"
        if end.rc != 0:
            return f"docker ps failed: {end.stdout.strip()[:200]}"
        self._names = end.stdout.split()
        return ""

    def probing(self) -> bool:
        return "lium_roce_probe" in self._names


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs the plan; 0 when it came to its own end, 1 when it was stopped or failed, 2 for wrong use, 3 when locked."""
    if len(argv) != 3:
        print("usage: lium-roce-agent PLAN FOLDER LOCK", file=sys.stderr)
        return 2
    plan_path, folder, lock_path = map(os.path.abspath, argv)
    os.chdir("/")  # whoever started this may go, and take its folder along
    with open(lock_path, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{lock_path} is taken: another verification runs on this host", file=sys.stderr)
            return 3
        with open(os.path.join(folder, RECORDS), "w", encoding="utf-8") as records:
            return _run(plan_path, records, environ)


def _run(plan_path: str, records: TextIO, environ: Mapping[str, str]) -> int:
    def write(row: Mapping[str, Any]) -> None:
        records.write(json.dumps(row, separators=(",", ":")) + "\n")
        records.flush()

    loop = Loop()
    loop.stop_on(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    bench = HostBench(environ)
    started = loop.clock()

    def end(how: str, why: str = "") -> int:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu = [round(one.ru_utime + one.ru_stime, 3) for one in used]
        seconds = round(loop.clock() - started, 3)
        write(
            {
                "end": how,
                "why": why,
                "seconds": seconds,
                "cpu_s": cpu,
                "memory_kib": used[0].ru_maxrss,
                "at": bench.now(),
            }
        )
        return 0 if how in ("done", "budget", "quarantined") else 1

    try:
        with open(plan_path, encoding="utf-8") as stream:
            plan = Plan.from_dict(json.load(stream))
        write({"begin": plan.run, "host": plan.host, "pid": os.getpid(), "at": bench.now()})
        if plan.settings.image:
            # A container of ours that an earlier, killed agent left; this process holds the lock, so it is nobody's
            # now.
            remove = ["docker", "rm", "-f", CONTAINER]
            subprocess.run(remove, env=dict(bench.environ), capture_output=True, timeout=60, check=False)
        kind = IncastAgent if plan.settings.incast else Agent
        agent = kind(plan, loop, bench, DockerGuard(loop, bench.environ), write)
        how = agent.run()
        return end(how, agent.why)
    except Stopped as exc:
        return end("stopped", str(exc))
    except Exception as exc:  # noqa: BLE001  the last line must be written whatever happens
        return end("failed", f"{type(exc).__name__}: {exc}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
