"""Fixtures for the tests of the Ansible collection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, RecordedRunner

ROOT = Path(__file__).resolve().parents[2]

Play = Callable[..., "subprocess.CompletedProcess[str]"]


def ansible_env(collections: Path, home: Path) -> dict[str, str]:
    """The environment of an Ansible run that sees only one place for collections and no settings of the caller."""
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "ansible.cfg"
    settings.touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    return {
        **kept,
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_CONFIG": str(settings),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def ansible_tool(name: str) -> str:
    """A program of the environment that the tests run in."""
    return str(Path(sys.executable).with_name(name))


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a playbook of the collection from the checkout; answers the finished process."""

    def run(
        playbook: str, inventory: Path, *arguments: str, collections: Path = ROOT, cwd: Path = tmp_path
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ansible_tool("ansible-playbook"), "-i", str(inventory), playbook, *arguments],
            cwd=cwd,
            env=ansible_env(collections, tmp_path / "ansible-home"),
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def write_inventory(tmp_path: Path) -> Callable[[Mapping[str, Mapping[str, object]]], Path]:
    """Writes an inventory with the group lium_fabric; every host is reached by connection local unless it says else."""

    def write(hosts: Mapping[str, Mapping[str, object]]) -> Path:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {"lium_fabric": {"hosts": {name: {**local, **values} for name, values in hosts.items()}}}
        path = tmp_path / "inventory.json"
        path.write_text(json.dumps(inventory), encoding="utf-8")
        return path.rename(path.with_suffix(".yml"))

    return write


@pytest.fixture
def make_probe(tmp_path: Path) -> Callable[..., HostProbe]:
    """A probe on files and command answers: ``make_probe({"/proc/cmdline": "ro"}, {"uname -r": "6.8"})``."""

    def make(files: Mapping[str, str] = {}, commands: Mapping[str, object] = {}) -> HostProbe:
        root = tmp_path / "host"
        for path, text in files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        root.mkdir(exist_ok=True)
        answers = {
            line: answer if isinstance(answer, dict) else {"stdout": answer} for line, answer in commands.items()
        }
        return HostProbe(RecordedRunner(answers), str(root))

    return make
