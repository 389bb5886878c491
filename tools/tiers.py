"""The tiers of `make test`, as data. A new one is one line in TIERS; a folder under `tests/` that no tier names is an
error, so that no test is forgotten.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from tools.console import SetupError
from tools.environment import ROOT as CHECKOUT
from tools.environment import environ
from tools.gotool import ACTIONLINT as ACTIONLINT_TOOL
from tools.pulumi import cli


@dataclass(frozen=True)
class Need:
    """Something a tier cannot do without. `missing()` answers why it is missing, or None; it may bring it first."""

    name: str
    missing: Callable[[], str | None]


@dataclass(frozen=True)
class Tier:
    """Commands that are run one after the other, all of them; those of a pytest tier come from `pytest_tier`.

    `apt` names system packages that are installed where this machine lets us; `limit_s` ends a tier that hangs.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[Need, ...] = ()
    apt: tuple[str, ...] = ()
    limit_s: float = 900
    folders: tuple[str, ...] = ()

    @property
    def counts_tests(self) -> bool:
        return bool(self.folders)


# What takes a tier's time stands at its end.
SLOWEST = ("--durations=12", "--durations-min=10")


def pytest_tier(
    folder: str, *, workers: int = 1, needs: tuple[Need, ...] = (), apt: tuple[str, ...] = (), limit_s: float = 900
) -> Tier:
    """The tier of `tests/<folder>`. With `workers` > 1 its tests share nothing and run side by side, more of them than
    there are cores where they mostly wait."""
    parallel = ("-n", str(workers)) if workers > 1 else ("-p", "no:xdist")
    command = ("python", "-m", "pytest", f"tests/{folder}", "-q", "--timeout=300", *SLOWEST, *parallel)
    return Tier(folder, (command,), needs, apt, limit_s, (folder,))


def check(name: str, *commands: str, needs: tuple[Need, ...] = ()) -> Tier:
    """A tier of plain commands, each a line."""
    return Tier(name, tuple(tuple(line.split()) for line in commands), needs)


def program(name: str) -> Need:
    """A program on PATH."""
    return Need(name, lambda: None if shutil.which(name, path=environ()["PATH"]) else f"no {name} on PATH")


def _no_pulumi() -> str | None:
    try:
        cli.resolve()
    except SetupError as error:
        return str(error)
    return None


def _no_actionlint() -> str | None:
    try:
        ACTIONLINT_TOOL.build()
    except SetupError as error:
        return str(error)
    return None


def _no_root() -> str | None:
    return None if os.geteuid() == 0 else "needs root, for network namespaces"


def _no_rack() -> str | None:
    # Minutes where nothing is cached: not in the time that the first test on a virtual host has.
    command = ["python", "-m", "tests.rack.cli", "build"]
    done = subprocess.run(command, cwd=CHECKOUT, env=environ(), stderr=subprocess.PIPE, text=True)
    return None if done.returncode == 0 else done.stderr.strip() or f"`{' '.join(command)}` failed"


PULUMI = Need("Pulumi CLI", _no_pulumi)
ACTIONLINT = Need("actionlint", _no_actionlint)
ROOT = Need("root", _no_root)
RACK = Need("rack of virtual hosts", _no_rack)

TIERS: tuple[Tier, ...] = (
    check("lint", "ruff check .", "yamllint --strict .", "antsibull-changelog lint"),
    check("types", "mypy"),
    pytest_tier("unit", workers=2),
    pytest_tier("emulator", workers=2),
    pytest_tier("simulation", workers=2),
    pytest_tier("conformance"),
    check("ansible-lint", "tools/collection/lint -q"),
    check("ansible-test", "tools/collection/sanity", "tools/collection/sanity --units"),
    pytest_tier("collection", workers=2),
    pytest_tier("field", workers=2, needs=(PULUMI,)),
    pytest_tier("engine", workers=3, needs=(PULUMI, ACTIONLINT), limit_s=1800),
    pytest_tier("browser", apt=("chromium", "poppler-utils", "fonts-dejavu-core")),
    pytest_tier("docker", needs=(ROOT,), apt=("docker.io", "docker-compose", "runc", "busybox-static")),
    pytest_tier("rack", needs=(RACK,), limit_s=1800),
    pytest_tier("roles", workers=2, needs=(PULUMI, RACK), limit_s=3000),
)

# Under tests/, but no tests of their own.
SHARED_FOLDERS = ("fixtures", "support")
