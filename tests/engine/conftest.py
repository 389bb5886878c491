"""The real Pulumi CLI on a file backend; everything it writes lies in the test's own folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.pulumi_stack import Stack
from tools.pulumi.cli import Cli, resolve


class MakeStack(Protocol):
    """Signature of the `make_stack` fixture."""

    def __call__(
        self,
        program: str | Path,
        *,
        files: Mapping[str, str] = ...,
        config: Mapping[str, str] = ...,
        env: Mapping[str, str] = ...,
        name: str = ...,
    ) -> Stack: ...


# Read when the module is imported, before a fixture clears variables: the machine's own choice of CLI counts.
_ENVIRON = dict(os.environ)


@pytest.fixture(scope="session")
def pulumi_cli() -> Cli:
    """The CLI that this machine uses: on PATH, installed or built."""
    return resolve(_ENVIRON)


@pytest.fixture
def make_stack(tmp_path: Path, pulumi_cli: Cli) -> Iterator[MakeStack]:
    """Makes stacks: `make_stack(program)` with the text of `__main__.py`, or a folder that is copied.

    `files` are further files of the program (path → text), `config` plain stack configuration, `env` variables for
    every command. Processes that a killed engine left behind are ended after the test.
    """
    made: list[Stack] = []

    def make(
        program: str | Path,
        *,
        files: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        name: str = "test",
    ) -> Stack:
        root = tmp_path / f"stack-{len(made)}"
        stack = Stack(root, program, files=files or {}, env={**base_env(pulumi_cli), **(env or {})}, name=name)
        made.append(stack)
        stack.init()
        for key, value in (config or {}).items():
            stack.set_config(key, value)
        return stack

    yield make
    for stack in made:
        stack.close()


def base_env(cli: Cli) -> dict[str, str]:
    prefix = Path(sys.prefix)
    path = os.pathsep.join([str(prefix / "bin"), _ENVIRON.get("PATH", os.defpath)])
    return {"PATH": cli.path(path), "VIRTUAL_ENV": str(prefix), "LANG": "C.UTF-8"}


@pytest.fixture
def engine_env(lium_env: dict[str, str]) -> dict[str, str]:
    """`env` for stacks whose program uses the emulator."""
    return lium_env
