"""`make soak`: a million lives of a stack, each killed and recovered (tests/simulation).

`SCHEDULES=` says how many, `SEED=` where they begin. A seed that fails is named with the command that plays it again:
`python -m tools.soak --replay SEED` tells its story in its shortest form. The last line sums up; the exit code is 1
where an invariant is broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.schedule import Schedule, schedule_of
from tests.simulation.shrink import describe, shrink
from tests.simulation.simulator import run

DEFAULT_SCHEDULES = 1_000_000
_CHUNK = 250
_MOST_NAMED = 10
_COUNTED = ("orphans", "foreign", "doubles", "wrong", "kills")


def replay_command(seed: int) -> str:
    """What plays one seed again."""
    return f".venv/bin/python -m tools.soak --replay {seed}"


def run_seeds(seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """What these schedules came to in sum, and each that failed: (seed, what was wrong)."""
    counts: Counter[str] = Counter(schedules=len(seeds))
    failed = []
    for seed in seeds:
        verdict = run(schedule_of(seed))
        for name in _COUNTED:
            counts[name] += getattr(verdict, name)
        if not verdict.ok:
            failed.append((seed, verdict.notes[0].strip().splitlines()[-1]))
    return counts, failed


def soak(first: int, schedules: int, jobs: int) -> tuple[Counter[str], list[tuple[int, str]]]:
    """All of them, on `jobs` processes; the progress goes to stderr."""
    chunks = [range(at, min(at + _CHUNK, first + schedules)) for at in range(first, first + schedules, _CHUNK)]
    counts: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    began = said = time.monotonic()
    for found, bad in _each(chunks, jobs):
        counts += found
        for seed, why in bad[: max(0, _MOST_NAMED - len(failed))]:
            print(f"seed {seed}: {why}\n  {replay_command(seed)}", flush=True)
        failed += bad
        now = time.monotonic()
        if now - said > 2:
            said = now
            rate = counts["schedules"] / (now - began)
            left = (schedules - counts["schedules"]) / rate
            print(
                f"{counts['schedules']:,} of {schedules:,} schedules, {len(failed)} failed,"
                f" {rate:,.0f} a second, {left:,.0f} s left",
                file=sys.stderr,
                flush=True,
            )
    return counts, failed


def _each(chunks: list[range], jobs: int) -> Iterator[tuple[Counter[str], list[tuple[int, str]]]]:
    if jobs == 1:
        yield from map(run_seeds, chunks)
        return
    with multiprocessing.get_context("forkserver").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seeds, chunks)


def replay(seed: int) -> bool:
    """Plays one seed; one that fails is shortened and told. True where nothing is wrong."""
    schedule = schedule_of(seed)
    verdict = run(schedule)
    if not verdict.ok:

        def fails(candidate: Schedule) -> bool:
            return bool(run(candidate).kinds & verdict.kinds)

        schedule = shrink(schedule, fails)
        verdict = run(schedule, say=print)
        print()
    print(describe(schedule))
    for note in verdict.notes:
        print(f"- {note}")
    print("fails" if not verdict.ok else "nothing is wrong")
    return verdict.ok


def _number(name: str, default: int, *, least: int) -> int:
    """A whole number from the environment. Ends the program with a line that names the variable."""
    text = os.environ.get(name) or str(default)
    try:
        number = int(text)
    except ValueError:
        raise SystemExit(f"{name}={text} is no whole number, as 20000 is.") from None
    if number < least:
        raise SystemExit(f"{name}={text} is too small: at least {least}.")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replay", type=int, metavar="SEED", help="play one seed again and tell its story")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    asked = parser.parse_args()
    if asked.replay is not None:
        raise SystemExit(0 if replay(asked.replay) else 1)
    first, schedules = _number("SEED", 0, least=0), _number("SCHEDULES", DEFAULT_SCHEDULES, least=1)
    began = time.monotonic()
    counts, failed = soak(first, schedules, asked.jobs)
    rate = counts["schedules"] / (time.monotonic() - began)
    print(f"seeds {first} to {first + schedules - 1}: killed {counts['kills']} times, other faults {counts['wrong']}")
    print(
        f"schedules {counts['schedules']}, orphans {counts['orphans']}, foreign touched {counts['foreign']},"
        f" double orders {counts['doubles']}, schedules a second {rate:.0f}"
    )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
