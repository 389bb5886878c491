"""One Python that has started already and runs the modules of all emulated hosts, each in a process of its own.

A module that starts costs its host half a second of CPU time, most of it for Python and Ansible's own imports. On a
rack every host spends that for itself at the same time; on one machine three modules of 300 hosts would take minutes,
and the rehearsal would show the machine's limits instead of the playbook's. The modules are the real ones and get the
arguments that Ansible sends; only their imports are there before them. ``python.c`` is the other end.
"""

from __future__ import annotations

import array
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

#: What the modules of the role import.
_MODULES = ("roce_info", "roce_agent")
_COLLECTION = "ansible_collections.lium.cluster.plugins.modules"
_MOST_ENVIRONMENT = 160 * 1024
_FILES = 4


def serve(path: Path, python: str) -> None:
    """Runs what comes in over the Unix socket ``path``; ``python`` is what the modules see as their interpreter."""
    for module in _MODULES:
        importlib.import_module(f"{_COLLECTION}.{module}")
    importlib.import_module("ansible.module_utils._internal._ansiballz._loader")
    sys.executable = python
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the children end
    gc.freeze()  # what is there now stays shared with the children
    listener.listen(1024)
    while True:
        wire, _ = listener.accept()
        if os.fork():
            wire.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os._exit(_run(wire))


def _run(wire: socket.socket) -> int:
    """One program, in this process from now on."""
    size = array.array("i").itemsize * _FILES
    environment, rights, _, _ = wire.recvmsg(_MOST_ENVIRONMENT, socket.CMSG_SPACE(size))
    files = array.array("i", rights[0][2])
    for own, given in enumerate(files[:3]):
        os.dup2(given, own)
    os.fchdir(files[3])
    for given in files:
        os.close(given)
    os.environ.clear()
    os.environ.update(part.split("=", 1) for part in os.fsdecode(environment).split("\0") if "=" in part)
    sys.argv = [""]
    code: Any = 0
    try:
        main: dict[str, Any] = vars(importlib.import_module("__main__"))
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), main)  # noqa: S102  that is what an interpreter is for
    except SystemExit as exc:
        code = exc.code or 0
    except BaseException:  # noqa: BLE001  as Python itself would end
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    number = code if isinstance(code, int) else 1
    wire.send(bytes([number & 255]))
    return number & 255


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
