"""What drives the official client, and what is read back from the emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pulumi_lium.emulator.scenario import builtin_scenario
from tools.emulator import ControlPlane

OWNER_KEY = "sk_emulator_owner"
H100 = "H100"
_PROGRAM = Path(sys.executable).parent / "lium"


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    exit: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The object on standard output."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """`error` of the object on standard error, which stands there last (contract 11; warnings come before it)."""
        assert self.stdout == "", self.stdout
        failure = json.loads(self.stderr[self.stderr.index("{") :])
        assert failure["ok"] is False
        assert failure["error"]["exit_code"] == self.exit
        return dict(failure["error"])


@dataclass(frozen=True)
class Cli:
    """`lium` with a home of its own (contract 9)."""

    home: Path
    base_url: str

    def __call__(self, *arguments: str, key: str = OWNER_KEY) -> Result:
        env = {**self._env(key), "LIUM_NONINTERACTIVE": "1"}
        done = subprocess.run(
            [_PROGRAM, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def at_a_terminal(self, *arguments: str, answers: str) -> Result:
        """The command with a person at its terminal, who types this; what it prompts with stands in `stderr`."""
        controller, terminal = os.openpty()
        try:
            os.write(controller, answers.encode())
            done = subprocess.run(
                [_PROGRAM, *arguments],
                env=self._env(OWNER_KEY),
                stdin=terminal,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(terminal)
            os.close(controller)
        return Result(done.returncode, done.stdout, done.stderr)

    def _env(self, key: str) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "LIUM_BASE_URL": self.base_url,
            "LIUM_API_KEY": key,
            "LIUM_SELF_UPDATE_DISABLE": "1",
            "NO_PROXY": "127.0.0.1",
        }


class EmulatorTime:
    """Stands where the SDK has the module `time`: its sleeps move the emulator's clock."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._now = 0.0

    def time(self) -> float:
        return self._now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._control.advance(seconds)


def scenario(**changes: Any) -> dict[str, Any]:
    """The built-in scenario with some of its top-level parts laid over."""
    return {**yaml.safe_load(builtin_scenario()), **changes}


def whole_fabric(control: ControlPlane) -> str:
    """The id of the first offer, whose machines are all free: what FABRIC stands for on the command line."""
    request = urllib.request.Request(
        control.base_url + "/executors/infiniband-clusters", headers={"X-API-KEY": OWNER_KEY}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)[0]["fabric_id"])


def requests(control: ControlPlane) -> list[str]:
    """`METHOD path` of every request since the reset."""
    return [f"{row['method']} {row['path']}" for row in control.journal()]
