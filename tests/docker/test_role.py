"""The role for real, in a mount namespace of its own: what it writes lands in a layer over the machine's folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool

pytestmark = pytest.mark.docker

FOLDERS = ("/etc", "/usr/local/bin", "/var/lib")
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: lium.cluster.runtime_hook
      vars: {lium_runtime_hook_install: true, runtime_hook_scope: pod}
"""
UNDO = PLAY.replace(
    "      vars: {lium_runtime_hook_install: true, runtime_hook_scope: pod}", "        tasks_from: remove"
)


@pytest.fixture
def layered(tmp_path: Path):
    """Runs shell lines where the folders are writable layers; answers the output. Nobody else sees the layers."""

    def run(lines: str) -> str:
        script = [f"mount -t tmpfs none {tmp_path}/layers"]
        for number, folder in enumerate(FOLDERS):
            upper, work = f"{tmp_path}/layers/{number}/upper", f"{tmp_path}/layers/{number}/work"
            script.append(f"mkdir -p {upper} {work}")
            script.append(f"mount -t overlay none -o lowerdir={folder},upperdir={upper},workdir={work} {folder}")
        (tmp_path / "layers").mkdir()
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-euxc", "\n".join([*script, lines])],
            cwd=tmp_path,
            env=ansible_env(ROOT, tmp_path / "ansible-home"),
            capture_output=True,
            text=True,
            timeout=290,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_twice_and_taken_back(tmp_path: Path, layered) -> None:
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "undo.yml").write_text(UNDO)
    play = f"{ansible_tool('ansible-playbook')} -i localhost, -e ansible_python_interpreter={sys.executable}"
    text = '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    out = layered(
        f"""
        mkdir -p /etc/docker
        echo '{text}' > /etc/docker/daemon.json
        find /etc /usr/local/bin /var/lib -xdev | sort > before
        {play} play.yml | grep changed=
        cp /etc/docker/daemon.json merged.json
        cp /etc/lium/rdma-runc.conf settings
        /usr/local/bin/lium-fabric-env --help > help
        /usr/local/bin/lium-nccl-log --help >> help
        {play} play.yml | grep changed=
        {play} undo.yml | grep changed=
        find /etc /usr/local/bin /var/lib -xdev | sort > after
        cp /etc/docker/daemon.json restored.json
        """
    )
    changed = [line.split("changed=")[1].split()[0] for line in out.splitlines()]
    assert changed == ["2", "0", "2"]
    merged = json.loads((tmp_path / "merged.json").read_text())
    assert merged["default-runtime"] == "lium-rdma"
    assert list(merged["runtimes"]) == ["nvidia", "lium-rdma"]
    assert "runtime=nvidia-container-runtime\n" in (tmp_path / "settings").read_text()
    assert (tmp_path / "restored.json").read_text() == f"{text}\n"
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
