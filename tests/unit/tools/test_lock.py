"""The lock file holds what pyproject.toml asks for, with hashes and without the address of a package index."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = (Path(__file__).resolve().parents[3] / "requirements" / "dev.txt").read_text()
# One entry: `name==version ; marker \` and its hashes, each on a line of its own.
ENTRY = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\\n]*)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)


def test_every_entry_has_a_version_and_hashes() -> None:
    entries = [line for line in LOCK.splitlines() if line[:1].isalnum()]
    assert len(ENTRY.findall(LOCK)) == len(entries) > 100


def test_there_is_no_address_in_it() -> None:
    assert "://" not in LOCK
    assert not [line for line in LOCK.splitlines() if line.startswith("-")]


def test_it_holds_every_dependency_in_a_version_that_is_asked_for() -> None:
    locked: dict[str, list[str]] = {}
    for name, version, _ in ENTRY.findall(LOCK):
        locked.setdefault(canonicalize_name(name), []).append(version)
    wanted = [Requirement(line) for line in requires("pulumi-lium") or []]
    off = [
        str(requirement)
        for requirement in wanted
        if canonicalize_name(requirement.name) != "pulumi-lium"
        if not any(requirement.specifier.contains(v) for v in locked.get(canonicalize_name(requirement.name), []))
    ]
    assert off == [], "run `make lock`"
