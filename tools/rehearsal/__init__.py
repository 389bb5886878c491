"""The rehearsal: pair verification of hundreds of emulated hosts on one machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("perftest.c")


def build_perftest(folder: Path) -> Path:
    """Compiles the emulated ``ib_write_bw`` into a folder. Raises ``FileNotFoundError`` without a C compiler."""
    program = folder / "ib_write_bw"
    subprocess.run(["cc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program
