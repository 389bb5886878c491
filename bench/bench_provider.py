"""The provider: up and destroy, import, requests while waiting, twenty clusters.

Against a program with one empty dynamic resource (what the engine itself costs) and against the official client's own
`up` and `rm`, with the emulator booting nodes at once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure
from tests.support.clusters import cluster, market, program
from tests.support.pulumi_stack import Stack
from tools.emulator import Emulator
from tools.pulumi.cli import resolve

KEY = "sk_emulator_owner"
ROUNDS = 3
EMPTY = """
import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Empty(ResourceProvider):
    def create(self, props):
        return CreateResult("empty", {})

Resource_ = type("Empty", (Resource,), {})
Resource_(Empty(), "empty", {})
"""


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch, _emulator(Path(scratch)) as emulator:
        root = Path(scratch)
        return [
            *_up_and_destroy(root, emulator),
            *_official_client(root, emulator),
            _import_time(),
            _requests_while_waiting(root, emulator),
            _twenty(root, emulator),
        ]


@contextmanager
def _emulator(root: Path) -> Iterator[Emulator]:
    command = (sys.executable, "-m", "pulumi_lium.cli")
    with Emulator(command, ["--clock", "real"], {"PATH": os.environ["PATH"], "HOME": str(root)}) as emulator:
        yield emulator


@contextmanager
def _stack(root: Path, name: str, text: str, emulator: Emulator) -> Iterator[Stack]:
    prefix = Path(sys.prefix)
    path = resolve(os.environ).path(os.pathsep.join([str(prefix / "bin"), os.environ.get("PATH", os.defpath)]))
    env = {"PATH": path, "VIRTUAL_ENV": str(prefix), "LIUM_API_KEY": KEY, "LIUM_BASE_URL": emulator.base_url}
    stack = Stack(root / name, text, files={}, env=env, name=name)
    stack.init()
    try:
        yield stack
    finally:
        stack.close()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _up_and_destroy(root: Path, emulator: Emulator) -> list[Figure]:
    """Rounds of both programs by turns, so that both see the same machine."""
    emulator.reset(market())
    ups: dict[str, list[float]] = {"ours": [], "empty": []}
    downs: dict[str, list[float]] = {"ours": [], "empty": []}
    with (
        _stack(root, "ours", program(cluster()), emulator) as ours,
        _stack(root, "empty", EMPTY, emulator) as empty,
    ):
        for _ in range(ROUNDS):
            for name, stack in (("empty", empty), ("ours", ours)):
                ups[name].append(_seconds(stack.up))
                downs[name].append(_seconds(stack.destroy))
    found = []
    for verb, times in (("up", ups), ("destroy", downs)):
        own, base = statistics.median(times["ours"]), statistics.median(times["empty"])
        found.append(
            Figure(
                f"`pulumi {verb}` of one cluster",
                f"{own:.2f} s",
                f"{base:.2f} s with one empty dynamic resource (ratio {own / base:.2f})",
                "at most 0.5 s more",
                own - base <= 0.5,
            )
        )
    return found


def _official_client(root: Path, emulator: Emulator) -> list[Figure]:
    """Requests and seconds of one life: ours by the engine, the official client's by its command line.

    Its second life counts, with the first one's home: only in the first does it register an SSH key.
    """
    home = root / "home"
    (home / ".ssh").mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / ".ssh" / "id_ed25519")], check=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LIUM_API_KEY": KEY, "LIUM_BASE_URL": emulator.base_url}
    lium = str(Path(sys.executable).with_name("lium"))

    def official(*arguments: str) -> None:
        subprocess.run([lium, "clusters", *arguments], env=env, check=True, capture_output=True, timeout=120)

    def counted(work: Callable[[], object]) -> tuple[int, float]:
        before = len(emulator.journal())
        seconds = _seconds(work)
        return len(emulator.journal()) - before, seconds

    emulator.reset(market())
    for _ in range(2):
        their_up = counted(lambda: official("up", "hot", "--nodes", "2", "-n", "job", "--ttl", "8h", "--yes"))
        their_end = counted(lambda: official("rm", "job", "-y"))
    emulator.reset(market())
    with _stack(root, "requests", program(cluster(ttl="8h")), emulator) as stack:
        for _ in range(2):
            own_up, own_end = counted(stack.up), counted(stack.destroy)
    rows = [
        Figure(
            f"requests of {what}", str(ours[0]), f"{theirs[0]} of the official client", "no more", ours[0] <= theirs[0]
        )
        for what, ours, theirs in (
            ("`pulumi up`, order to running", own_up, their_up),
            ("`pulumi destroy`, to gone", own_end, their_end),
        )
    ]
    own_seconds, seconds = own_up[1] + own_end[1], their_up[1] + their_end[1]
    return [
        *rows,
        Figure(
            "seconds of one life, up to gone",
            f"{own_seconds:.2f} s",
            f"{seconds:.2f} s of the official client (ratio {own_seconds / seconds:.2f})",
        ),
    ]


_IMPORT = """
import time
times = [time.perf_counter()]
import pulumi
times.append(time.perf_counter())
import pulumi_lium
pulumi_lium.LiumCluster
times.append(time.perf_counter())
print(times[1] - times[0], times[2] - times[1])
"""


def _import_time() -> Figure:
    # One process for both: between two processes the machine's own unrest is larger than the difference.
    runs = [subprocess.check_output([sys.executable, "-c", _IMPORT], text=True).split() for _ in range(7)]
    base, more = (min(float(run[column]) for run in runs) * 1000 for column in (0, 1))
    both = base + more
    return Figure(
        "import of `pulumi_lium`, LiumCluster used",
        f"{both:.0f} ms",
        f"{base:.0f} ms of `pulumi` alone (ratio {both / base:.2f})",
        "at most 60 ms more",
        more <= 60,
    )


def _requests_while_waiting(root: Path, emulator: Emulator) -> Figure:
    """What a longer boot costs: a boot of eighty seconds against one of twenty, four nodes each."""

    def requests(boot: int) -> int:
        emulator.reset(market(boot=(boot, boot)))
        with _stack(root, f"boot-{boot}", program(cluster(nodes=4)), emulator) as stack:
            stack.up()
            sent = len(emulator.journal())
            stack.destroy()
        return sent

    short, long = requests(20), requests(80)
    return Figure(
        "requests a minute while four nodes boot",
        str(long - short),
        f"{short} requests with a boot of 20 s, {long} with one of 80 s",
        "at most 6",
        long - short <= 6,
    )


def _twenty(root: Path, emulator: Emulator) -> Figure:
    emulator.reset(market(hosts=10, fabrics=4))
    many = [cluster(f"train-{number}", "first" if number == 0 else "_") for number in range(20)]
    with (
        _stack(root, "twenty", program(*many), emulator) as stack,
        _stack(root, "one", program(cluster()), emulator) as single,
    ):
        seconds = _seconds(stack.up)
        stack.destroy()
        one = _seconds(single.up)
        single.destroy()
    return Figure(
        "`pulumi up` of twenty clusters", f"{seconds:.1f} s", f"{one:.1f} s for one (ratio {seconds / one:.1f})"
    )
