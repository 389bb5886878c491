"""Programs of this machine, with the errors a person can act on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.rack.errors import RackError

ENVIRON = {**os.environ, "LC_ALL": "C.UTF-8", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}

#: Put before a program whose life must not outlast ours, however we end.
WITH_US: tuple[str, ...] = ("setpriv", "--pdeathsig", "KILL", "--")

#: Put before a program that mounts or starts things: own mount and process namespaces, so nothing of it stays behind.
ISOLATED: tuple[str, ...] = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def run(
    command: Sequence[str | Path],
    *,
    text: str | None = None,
    cwd: Path | None = None,
    environ: dict[str, str] | None = None,
) -> str:
    """Run a program to its end and return its output; `RackError` with the end of that output when it fails."""
    arguments = [str(part) for part in command]
    done = subprocess.run(
        arguments,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd=cwd,
        env={**ENVIRON, **(environ or {})},
    )
    if done.returncode != 0:
        raise RackError(f"{' '.join(arguments)[:300]}\nended with {done.returncode}:\n{done.stdout[-3000:].strip()}")
    return done.stdout
