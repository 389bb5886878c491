"""`pulumi-lium` as CI runs it: a process of its own in a stack's environment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import OWNER_KEY, PULUMI_LIUM
from tests.support.pulumi_stack import Stack

TIMEOUT_S = 180.0


class Lium:
    """One command at work. `text()` is all it has printed so far."""

    def __init__(self, stack: Stack, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.began = time.monotonic()
        self._log = stack.root / f"lium-{time.monotonic_ns()}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [*PULUMI_LIUM, *arguments],
                cwd=stack.root,
                env={**stack.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def wait(self, code: int | None = 0) -> str:
        """Until it has ended with this exit code (None: any); all it printed, which never holds the key."""
        try:
            ended = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not done after {TIMEOUT_S:.0f} s:\n{self.text()}") from None
        text = self.text()
        assert OWNER_KEY not in text
        assert code is None or ended == code, f"exit code {ended}:\n{text}"
        return text


def teardown(stack: Stack, *arguments: str, env: Mapping[str, str] | None = None) -> Lium:
    """`pulumi-lium teardown` of this stack."""
    folder: Path = stack.project
    return Lium(stack, "teardown", "--cwd", str(folder), "--stack", stack.name, *arguments, env=env)
