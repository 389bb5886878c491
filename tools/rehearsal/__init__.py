"""The rehearsal: pair verification of hundreds of emulated hosts on one machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

_HERE = Path(__file__).parent


def build_perftest(folder: Path) -> Path:
    """Compiles the emulated ``ib_write_bw`` into a folder. Raises ``FileNotFoundError`` without a C compiler."""
    return _build("perftest.c", folder / "ib_write_bw")


def build_python(folder: Path, socket: Path, python: str) -> Path:
    """Compiles the emulated hosts' ``python3`` into a folder: it hands programs to interpreter.py at ``socket``."""
    return _build("python.c", folder / "python3", f'-DSOCKET="{socket}"', f'-DPYTHON="{python}"')


def _build(source: str, program: Path, *options: str) -> Path:
    """Linked statically where the C library allows it: a process then starts in half the time."""
    command = ["cc", "-O2", *options, "-o", str(program), str(_HERE / source)]
    if subprocess.run([*command, "-static"], capture_output=True).returncode:
        subprocess.run(command, check=True)
    return program
