"""`make bench`: every benchmark, one after the other, as a table. `--write` keeps it in docs/benchmarks.md.

Each module `bench_<subject>.py` has a function `figures()` and a subject line as the first line of its docstring.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from pathlib import Path

from bench.figure import Figure, table

HERE = Path(__file__).resolve().parent
KEPT_IN = HERE.parent / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Made by `make bench`. Figures of one row come from one run on one machine; across machines only ratios mean something.

"""


def main() -> int:
    subjects = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(subjects)}; default: all")
    parser.add_argument("--write", action="store_true", help=f"keep the table in {KEPT_IN.relative_to(HERE.parent)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - set(subjects):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(subjects)}")
    text = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n"
    print(text, flush=True)
    for subject in arguments.subjects or subjects:
        module = importlib.import_module(f"bench.bench_{subject}")
        title = f"## {(module.__doc__ or subject).splitlines()[0].rstrip('.:')}"
        print(f"{title}\n", flush=True)
        figures: list[Figure] = module.figures()
        print(f"{table(figures)}\n", flush=True)
        text += f"\n{title}\n\n{table(figures)}\n"
    if arguments.write:
        KEPT_IN.write_text(INTRODUCTION + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
