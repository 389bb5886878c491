"""``make rehearsal HOSTS=300``: the playbook verify_roce and its agents against emulated hosts on this machine.

Everything is real but perftest and the fabric behind it: Ansible, the agents' processes, their sockets and locks. The
hosts live in a network namespace without any way out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tools.rehearsal import build_perftest
from tools.rehearsal.fabric import Fabric, Fault
from tools.rehearsal.faults import KINDS, make_fault
from tools.rehearsal.hosts import NETWORK, addresses, write_inventory
from tools.rehearsal.lifeline import Interrupted, inside, run_inside, watch
from tools.rehearsal.model_server import FLOOR_S, RETRY_S, ModelServer
from tools.rehearsal.playbook import run_playbook, warm_python
from tools.rehearsal.simulation import agree


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    if not inside():
        return run_inside(argv, NETWORK)
    watch()
    rng = random.Random(options.seed)
    names = [f"gpu{number + 1:03}" for number in range(options.hosts)]
    bare = Fabric(names, options.rails, leaf_size=options.leaf_size, seed=options.seed)
    faults = [make_fault(kind, bare, rng) for kind in options.fault]
    fabric = Fabric(names, options.rails, leaf_size=options.leaf_size, faults=tuple(faults), seed=options.seed)
    folder = Path(tempfile.mkdtemp(prefix="lium-rehearsal-"))
    try:
        return _rehearse(options, fabric, faults, folder)
    except Interrupted as exc:
        print(f"\nended by {exc} {so_far(folder / 'hosts', fabric)}", file=sys.stderr)
        return 128 + exc.number
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make rehearsal", description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=32)
    parser.add_argument("--rails", type=int, default=1)
    parser.add_argument("--leaf-size", type=int, default=16, help="hosts behind one leaf switch")
    parser.add_argument("--fault", action="append", choices=[*KINDS, "none"], help="what to plant; may be repeated")
    parser.add_argument("--floor", type=float, default=FLOOR_S, help="seconds that one perftest takes")
    parser.add_argument("--full", action="store_true", help="every rail, both directions")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--forks", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--results", type=Path, help="file of results; what is proven in it is not measured again")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the emulated hosts")
    options = parser.parse_args(argv)
    options.fault = [kind for kind in options.fault or ["cable"] if kind != "none"]
    if options.hosts < 2:
        parser.error("--hosts: a fabric has at least 2")
    return options


def _rehearse(options: argparse.Namespace, fabric: Fabric, faults: Sequence[Fault], folder: Path) -> int:
    # Without setpriv: a perftest that outlives its agent ends with the namespace, and starting it costs half as much.
    programs = folder / "bin"
    programs.mkdir()
    build_perftest(programs)
    socket = folder / "model.sock"
    server = ModelServer(fabric, addresses(fabric), floor_s=options.floor, retry_s=RETRY_S * options.floor / FLOOR_S)
    _serve(server, socket)
    variables: dict[str, Any] = {"roce_verify_mode": "full" if options.full else "platform"}
    if options.full:
        variables.update(roce_verify_duration_s=0)
    results = (options.results or folder / "lium-roce.json").absolute()
    variables["roce_verify_results"] = str(results)
    planted = ", ".join(map(str, faults)) or "nothing"
    print(f"{len(fabric.hosts)} emulated hosts, {options.rails} rail(s); planted: {planted}", flush=True)
    with warm_python(folder) as python:
        variables["ansible_python_interpreter"] = str(python)
        write_inventory(folder / "inventory.json", folder / "hosts", fabric, programs, socket, variables)
        started = time.monotonic()
        code = run_playbook(folder, options.forks)
        wall = time.monotonic() - started
    return _conclude(options, fabric, faults, server, results, code, wall, folder / "hosts")


def _serve(server: ModelServer, socket: Path) -> None:
    ready = threading.Event()

    async def run() -> None:
        async with await server.serve(socket):
            ready.set()
            await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    ready.wait(10)


def _conclude(
    options: argparse.Namespace,
    fabric: Fabric,
    faults: Sequence[Fault],
    server: ModelServer,
    results: Path,
    code: int,
    wall: float,
    homes: Path,
) -> int:
    """Compares the verdict with what was planted; 0 when they agree."""
    if not results.exists():
        print(f"the playbook ended with {code} and left no results", file=sys.stderr)
        return 1
    report = json.loads(results.read_text())
    (verdict,) = report["fabrics"]
    agrees = agree(fabric, verdict["guilty"])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "hosts": len(fabric.hosts),
        "pairs": verdict["pairs"],
        "proven": verdict["proven"],
        "rounds": report["rounds"],
        "tests": server.tests,
        "most_at_once": server.most_at_once,
        "collisions": len(server.collisions),
        "wall_s": round(wall, 1),
        "ideal_s": round(report["rounds"] * options.floor, 1),
        "busiest_s": round(_busiest(report["records"]), 1),
        **_agents(homes),
        "tests_own_s": round(sum(row["duration_ms"] for row in report["records"]) / 1000, 1),
        "controller_cpu_s_per_host": round((usage.ru_utime + usage.ru_stime) / len(fabric.hosts), 2),
        "controller_memory_mib": usage.ru_maxrss // 1024,
        "results_kib": results.stat().st_size // 1024,
        "agrees": agrees,
    }
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(
        f"{figures['pairs']} pairs in {figures['rounds']} rounds: {figures['wall_s']} s"
        f" ({figures['ideal_s']} s of it are perftest's own time, {figures['busiest_s']} s on the host whose tests took"
        f" longest), {figures['tests']} tests, at most {figures['most_at_once']} at once, {figures['collisions']}"
        f" collisions;"
        f" {figures['controller_cpu_s_per_host']} CPU-s a host, {figures['controller_memory_mib']} MiB"
    )
    print(f"planted: {', '.join(map(str, faults)) or 'nothing'}")
    print(f"found:   {', '.join(part['name'] for part in verdict['guilty']) or 'nothing'}")
    print(f"sellable together: {len(verdict['sellable']['hosts'])} of {len(fabric.hosts)}")
    print("the verdict names what was planted" if agrees else "THE VERDICT DIFFERS from what was planted")
    return 0 if agrees and not server.collisions else 1


def _busiest(records: Sequence[dict[str, Any]]) -> float:
    """The seconds of all tests of the host with most: less than that no timetable can take."""
    own: dict[str, float] = {}
    for record in records:
        for host in (record["a"], record["b"]):
            own[host] = own.get(host, 0.0) + record["duration_ms"] / 1000
    return max(own.values(), default=0.0)


def so_far(homes: Path, fabric: Fabric) -> str:
    """What the agents of a rehearsal that was ended had measured: tests and pairs, of how many."""
    seen: dict[frozenset[str], bool] = {}
    for path in homes.glob("*/agent/records.jsonl"):
        for line in path.read_text().splitlines():
            if line.startswith('{"schema"') and line.endswith("}"):
                record = json.loads(line)
                if record["gigabits_per_second"] is not None or record["status"] == "FAIL":
                    pair = frozenset((record["a"], record["b"]))
                    seen[pair] = seen.get(pair, True) and record["status"] != "FAIL"
    pairs = len(fabric.hosts) * (len(fabric.hosts) - 1) // 2
    failed = sorted(" and ".join(sorted(pair)) for pair, good in seen.items() if not good)
    told = f"with {len(seen)} of {pairs} pairs measured, {len(failed)} of them failed"
    return told + (f": {', '.join(failed[:8])}{' and more' if len(failed) > 8 else ''}" if failed else "")


def _agents(homes: Path) -> dict[str, float]:
    """What the agents' last lines say: the time from the last start to the last end, and the costliest agent."""
    begins, ends = [], []
    for path in homes.glob("*/agent/records.jsonl"):
        first, *_, last = path.read_text().splitlines()
        begins.append(datetime.fromisoformat(json.loads(first)["at"]))
        ends.append(json.loads(last))
    if not ends:
        return {}
    last_end = max(datetime.fromisoformat(end["at"]) for end in ends)
    return {
        "agents_s": round((last_end - max(begins)).total_seconds(), 2),
        "agent_cpu_s": max(round(sum(end["cpu_s"]), 2) for end in ends),
        "agent_memory_mib": max(end["memory_kib"] for end in ends) // 1024,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
