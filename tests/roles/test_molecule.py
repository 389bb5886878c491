"""`molecule test` of a role, on a rack of its own (extensions/molecule)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(1800)]

SCENARIOS = sorted(path.parent.name for path in (ROOT / "extensions" / "molecule").glob("*/molecule.yml"))


def test_every_role_has_a_scenario_whose_rack_can_be_named(tmp_path: Path) -> None:
    assert sorted(path.name for path in (ROOT / "roles").iterdir()) == SCENARIOS
    for scenario in SCENARIOS:
        done = subprocess.run(
            [ansible_tool("ansible-playbook"), str(ROOT / "extensions/molecule/playbooks/destroy.yml")],
            cwd=tmp_path,
            env={
                **ansible_env(ROOT, tmp_path / "ansible"),
                "MOLECULE_SCENARIO_NAME": f"{scenario}_x",  # never the rack of a run that goes on beside this one
                "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path),
                "MOLECULE_PROJECT_DIRECTORY": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_scenario(tmp_path: Path) -> None:
    env = ansible_env(ROOT, tmp_path / "ansible")
    del env["ANSIBLE_CONFIG"]  # molecule writes its own
    done = subprocess.run(
        [ansible_tool("molecule"), "test", "-s", "preflight"],
        cwd=ROOT,
        env={**env, "HOSTS": "1", "PATH": f"{Path(ansible_tool('molecule')).parent}:{env['PATH']}"},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    screen = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    for step in ("create", "converge", "idempotence", "destroy"):
        assert f"{step}: Executed: Successful" in screen
