"""The oldest ansible-core that meta/runtime.yml allows really runs the collection; the newest is the one under test."""

from __future__ import annotations

import fcntl
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
import yaml

from tests.collection.conftest import ROOT, ansible_env
from tests.collection.recorded_host import healthy_host


def oldest() -> str:
    required = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    match = re.match(r">=(\d+\.\d+)", required)
    assert match is not None
    return match[1]


@pytest.fixture(scope="module")
def environment() -> Path:
    """A virtual environment with that version, made once and kept with the other caches of the project."""
    folder = Path(platformdirs.user_cache_dir("pulumi-lium")) / f"ansible-core-{oldest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            uv = [sys.executable, "-m", "uv"]
            subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
            package = f"ansible-core=={oldest()}.*"
            subprocess.run(
                [*uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), package],
                check=True,
                timeout=240,
            )
            (folder / "complete").touch()
    return folder


def test_the_oldest_core_runs_the_checks(environment: Path, tmp_path: Path) -> None:
    root = healthy_host(random.Random(1), 30, "roce").write(tmp_path / "host")
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "connection": "local",
            "tasks": [
                {"import_role": {"name": "lium.cluster.preflight"}},
                {"import_role": {"name": "lium.cluster.wireguard", "tasks_from": "verify"}},
                {
                    "lium.cluster.report": {
                        "results": ["preflight_result", "wireguard_result"],
                        "path": str(tmp_path / "report.json"),
                    },
                    "run_once": True,
                },
            ],
            "vars": {
                "ansible_python_interpreter": str(environment / "bin/python"),
                "preflight_become": False,
                "preflight_host_root": str(root),
                "wireguard_become": False,
                "wireguard_host_root": str(root),
            },
        }
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    done = subprocess.run(
        [str(environment / "bin/ansible-playbook"), "-i", "h1,", str(tmp_path / "play.yml")],
        env=ansible_env(ROOT, tmp_path / "home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    found = {
        row["id"]: row["status"] for row in report["hosts"][0]["records"] if row["status"] not in ("OK", "SKIPPED")
    }
    alone_and_not_probed = {"fabric.group": "WARN", "wg.range_udp_unverified": "WARN"}
    assert found == alone_and_not_probed, "nothing else is found on a healthy host"
