"""Programs of this machine, with the errors a person can act on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.rack.errors import RackError

ENVIRON = {**os.environ, "LC_ALL": "C.UTF-8", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}

#: The kernel tells of a parent's death only from the moment at which it is asked to: one that died before is asked for.
_IF_OURS = '[ "$PPID" -eq "$0" ] && exec "$@"'

#: Put before a program that mounts or starts things: own mount and process namespaces, so nothing of it stays behind.
ISOLATED: tuple[str, ...] = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def ending_with_us() -> list[str]:
    """To be put before a program that this process starts and that must not outlive it, however it ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _IF_OURS, str(os.getpid())]


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
