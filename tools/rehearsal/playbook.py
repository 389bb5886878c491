"""The playbook verify_roce as the rehearsal runs it: its hosts share a warm Python, and a signal ends all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.rehearsal import build_python

ROOT = Path(__file__).resolve().parents[2]
#: Agents run under the system's Python where there is one: it starts faster than that of an environment.
_SYSTEM_PYTHON = "/usr/bin/python3"
#: How long Ansible may take to end after a signal.
_END_S = 10.0
_READY_S = 30.0


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """The path of the emulated hosts' Python, while the one behind it runs."""
    python = _SYSTEM_PYTHON if os.access(_SYSTEM_PYTHON, os.X_OK) else sys.executable
    home = folder / "python"
    home.mkdir()
    socket = home / "socket"
    program = build_python(home, socket, python)
    command = [sys.executable, "-m", "tools.rehearsal.interpreter", str(socket), python]
    server = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        deadline = time.monotonic() + _READY_S
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the emulated hosts' Python did not start (tools/rehearsal/interpreter.py)")
            time.sleep(0.02)
        yield program
    finally:
        server.kill()
        server.wait()


def run_playbook(folder: Path, forks: int) -> int:
    """Runs the playbook over ``inventory.json`` in a folder; answers its exit code. A signal ends it first."""
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT),
        "TMPDIR": str(folder),  # where the run folder is made
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "ansible/local"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "ansible/remote"),
        "ANSIBLE_FORKS": str(forks),
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
        "ANSIBLE_DISPLAY_OK_HOSTS": "false",
        "LC_ALL": "C.UTF-8",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [str(program), "-i", str(folder / "inventory.json"), "lium.cluster.verify_roce"]
    process = subprocess.Popen(command, cwd=folder, env=environ)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
