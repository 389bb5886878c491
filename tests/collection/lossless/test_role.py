"""The role with `lossless_manage: true` through Ansible, on a host that is a mount namespace over this machine.

Below it `/sys` and the folders that the role writes to are those of a `LiveHost`; its tools, `systemctl` among them,
are programs that ask and change that host.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.collection.lossless.live_host import LiveHost

pytestmark = pytest.mark.slow

TOOLS = ("dcb", "docker", "ethtool", "ip", "lldpcli", "systemctl")
FOLDERS = ("/sys", "/etc/systemd/system", "/usr/local/sbin", "/var/lib")

#: What each tool does: questions are answered, everything else changes the host.
_TOOL = """#!{python}
import pickle, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from ansible_collections.lium.cluster.plugins.module_utils._probe import ToolMissing
argv = [Path(sys.argv[0]).name, *sys.argv[1:]]
with open({state!r}, "rb") as stream:
    host = pickle.load(stream)
if argv[0] == "systemctl":
    code, text = host.command(argv)
elif " ".join(argv[:3]) in ("dcb pfc set", "dcb app replace", "dcb app del") or argv[:2] == ["ethtool", "-A"]:
    code, text = host.command(["sh", "-c", " ".join(argv)])
else:
    try:
        done = host.run(argv, 10.0, None)
        code, text = done.rc, done.stdout + done.stderr
    except ToolMissing as exc:
        code, text = 127, str(exc)
with open({state!r}, "wb") as stream:
    pickle.dump(host, stream)
sys.stdout.write(text)
sys.exit(code)
"""

_ROLE = {"ansible.builtin.import_role": {"name": "lium.cluster.lossless"}}
_CONFIGURE = {"ansible.builtin.import_role": {"name": "lium.cluster.lossless", "tasks_from": "configure"}}
_REMOVE = {"ansible.builtin.import_role": {"name": "lium.cluster.lossless", "tasks_from": "remove"}}
#: Name of a play -> its task, the variable with its answer, and whether it only predicts.
_PLAYS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "predicted": (_CONFIGURE, "lossless_configured", True),
    "written": (_ROLE, "lossless_configured", False),
    "again": (_CONFIGURE, "lossless_configured", False),
    "taken back": (_REMOVE, "lossless_removed", False),
}


def playbook(folder: Path) -> list[dict[str, Any]]:
    """A play each, which leaves the answer of the module and the state of the host in a file of its name."""
    plays = []
    for name, (role, answer, check) in _PLAYS.items():
        kept = {
            "ansible.builtin.shell": f"cat > '{folder}/{name}.json' && cp '{folder}/state' '{folder}/{name}.state'",
            "args": {"stdin": f"{{{{ {answer} | to_json }}}}"},
            "check_mode": False,
        }
        plays.append({"name": name, "hosts": "all", "gather_facts": False, "check_mode": check, "tasks": [role, kept]})
    return plays


def test_the_role_writes_once_and_takes_it_back(tmp_path: Path) -> None:
    assert shutil.which("unshare"), "package util-linux"
    root, state = tmp_path / "root", tmp_path / "state"
    host = LiveHost("ice", root)
    before = host.state()
    state.write_bytes(pickle.dumps(host))
    for name in TOOLS:
        program = root / "usr/local/sbin" / name
        program.write_text(_TOOL.format(python=sys.executable, root=str(ROOT), state=str(state)))
        program.chmod(0o755)
    (root / "var/lib").mkdir(parents=True)
    (tmp_path / "play.yml").write_text(json.dumps(playbook(tmp_path)))
    values = {"ansible_become": False, "lossless_become": False, "lossless_manage": True, "lossless_dscp": 0}
    (tmp_path / "values.json").write_text(json.dumps({**values, "ansible_python_interpreter": sys.executable}))
    mounts = [f"mount --bind '{root}{folder}' {folder}" for folder in FOLDERS]
    play = f"exec {ansible_tool('ansible-playbook')} -c local -i host, -e @values.json play.yml"
    # Processes of this machine are not the host's: a QEMU among them would make it one for confidential VMs.
    flags = ["--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        flags.append("--map-root-user")
    environment = ansible_env(ROOT, tmp_path / "home")
    done = subprocess.run(
        ["unshare", *flags, "sh", "-euc", "\n".join([*mounts, play])],
        cwd=tmp_path,
        env={**environment, "ANSIBLE_PIPELINING": "true", "PATH": f"/usr/local/sbin:{environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in _PLAYS}
    hosts = {name: pickle.loads((tmp_path / f"{name}.state").read_bytes()) for name in _PLAYS}
    changed = {name: answer["changed"] for name, answer in answers.items()}
    assert changed == {"predicted": True, "written": True, "again": False, "taken back": True}
    assert {name: answer["left"] for name, answer in answers.items()} == {name: [] for name in _PLAYS}
    assert answers["predicted"]["changes"] == answers["written"]["changes"]
    assert hosts["predicted"].ran == []
    assert hosts["predicted"].state() == hosts["taken back"].state() == before
    assert (hosts["written"].pfc, hosts["written"].entries, hosts["written"].pause) == ({3}, {0: 3, 48: 6}, "off")
    assert (hosts["written"].enabled, hosts["written"].active) == (True, True)
    assert hosts["again"].ran == hosts["written"].ran
    left = {str(path.relative_to(root)) for folder in FOLDERS[1:] for path in (root / folder.lstrip("/")).rglob("*")}
    assert left == {f"usr/local/sbin/{name}" for name in TOOLS}
