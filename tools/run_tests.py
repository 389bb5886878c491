"""`make test`: runs every tier that this machine can run, names each that it leaves out and why, and sums up.

`python3 -m tools.run_tests [TIER …]`; without names all of them. REQUIRE_ALL=1 makes a tier that is left out, and a
test that is skipped, a failure. The last line of the output is the verdict.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from tools.console import paint, say
from tools.environment import ROOT, environ
from tools.system import ensure
from tools.tiers import SHARED_FOLDERS, TIERS, Tier

END_GRACE_S = 20.0


@dataclass
class Result:
    """What became of a tier. `left_out` and `failure` hold the reason; at most one of them is set."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    left_out: str | None = None
    failure: str | None = None


def unknown_folders(tests: Path) -> list[str]:
    """Folders under `tests` with tests in them that belong to no tier."""
    known = {folder for tier in TIERS for folder in tier.folders} | set(SHARED_FOLDERS)
    return sorted(
        folder.name
        for folder in tests.iterdir()
        if folder.is_dir() and folder.name not in known and any(folder.rglob("test_*.py"))
    )


def run(tier: Tier) -> Result:
    """Runs one tier to its end."""
    result = Result(tier.name)
    result.left_out = ensure(tier.apt) or next(filter(None, (need.missing() for need in tier.needs)), None)
    if result.left_out is None and tier.counts_tests and not any((ROOT / "tests" / f).is_dir() for f in tier.folders):
        result.failure = "its folder is missing"
    if result.left_out or result.failure:
        return result
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        for command in tier.commands:
            if tier.counts_tests:
                command = (*command, f"--junitxml={report}")
            left = tier.limit_s - (time.monotonic() - began)
            code = _run(command, left)
            if code is None:
                result.failure = f"not done after {tier.limit_s:.0f} s: {' '.join(command[:4])}"
                break
            if code != 0:
                result.failure = result.failure or f"exit code {code} of `{' '.join(command[:4])}`"
        if tier.counts_tests:
            _count(report, result)
    result.seconds = time.monotonic() - began
    return result


def _run(command: tuple[str, ...], limit_s: float) -> int | None:
    """Exit code of `command`, or None if it had to be ended at its limit."""
    process = subprocess.Popen(command, cwd=ROOT, env=environ(), start_new_session=True)
    try:
        return process.wait(max(limit_s, 1.0))
    except subprocess.TimeoutExpired:
        _end(process)
        return None
    except KeyboardInterrupt:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the session of `process`: politely, so that fixtures clear up, then by force."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(END_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _count(report: Path, result: Result) -> None:
    if not report.exists():
        result.failure = result.failure or "pytest left no report"
        return
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        result.failed += bad
        result.skipped += skipped
        result.passed += int(suite.get("tests", 0)) - bad - skipped
    if result.failed and result.failure is None:
        result.failure = f"{result.failed} failed"
    if result.passed == 0 and result.failure is None:
        result.failure = "no test ran"


def verdict(results: list[Result], require_all: bool) -> tuple[bool, list[str]]:
    """Whether all is well, and the lines of the summary; the last one is for machines too."""
    lines = []
    for result in results:
        counts = f"{result.passed} passed" + (f", {result.failed} failed" if result.failed else "")
        counts += f", {result.skipped} skipped" if result.skipped else ""
        if result.left_out:
            what, style = f"left out: {result.left_out}", "red" if require_all else "yellow"
        elif result.failure:
            ran = result.passed or result.failed or result.skipped
            what, style = f"FAILED: {result.failure}" + (f" ({counts})" if ran else ""), "red"
        else:
            what, style = counts if result.passed or result.skipped else "passed", "green"
        lines.append(f"  {result.tier:<12} {result.seconds:6.1f} s  {paint(what, style)}")
    failed = [result.tier for result in results if result.failure]
    left_out = [result.tier for result in results if result.left_out]
    skipped = sum(result.skipped for result in results)
    good = not failed and not (require_all and (left_out or skipped))
    last = [f"{sum(result.passed for result in results)} tests passed in {len(results) - len(left_out)} tiers"]
    last += [f"failed: {' '.join(failed)}"] if failed else []
    last += [f"{skipped} tests skipped"] if skipped else []
    last += [f"left out: {' '.join(left_out)}"] if left_out else []
    last += ["REQUIRE_ALL=1 allows neither"] if require_all and (left_out or skipped) else []
    lines.append(f"make test: {'OK' if good else 'FAILED'}: {'; '.join(last)}")
    return good, lines


def main(names: list[str]) -> int:
    require_all = os.environ.get("REQUIRE_ALL", "") not in ("", "0")
    known = {tier.name: tier for tier in TIERS}
    if unknown := [name for name in names if name not in known]:
        print(f"error: no tier {' '.join(unknown)}; there are {' '.join(known)}", file=sys.stderr)
        return 2
    if forgotten := unknown_folders(ROOT / "tests"):
        print(f"error: tests/{forgotten[0]} belongs to no tier: add it to TIERS in tools/tiers.py", file=sys.stderr)
        return 2
    results = []
    for name in names or known:
        say(paint(f"== {name}", "bold"))
        result = run(known[name])
        results.append(result)
        state = f"left out: {result.left_out}" if result.left_out else result.failure or "done"
        say(f"== {name}: {state} ({result.seconds:.1f} s)\n")
    good, lines = verdict(results, require_all)
    say("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("make test: FAILED: interrupted", file=sys.stderr)
        sys.exit(130)
