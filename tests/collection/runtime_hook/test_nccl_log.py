"""`lium-nccl-log`: IB or sockets, with the line and the likely cause."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.role_files import ROLES, load

log = load("runtime_hook", "lium_nccl_log")


def rank(host: str, text: str) -> str:
    return f"{host}:88:90 [0] NCCL INFO {text}\n"


GOOD = rank("pod1", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB wg0:10.42.0.1<0>") + rank("pod1", "Using network IB")


@pytest.mark.parametrize(
    ("text", "transport", "line"),
    [
        (GOOD, "IB", "Using network IB"),
        # Newer versions bring sockets up as well; what a rank took counts, not what came up.
        (rank("pod1", "NET/Socket : Using [0]wg0:10.42.0.1<0>") + GOOD, "IB", "Using network IB"),
        (GOOD + rank("pod2", "Using network Socket"), "Socket", "pod2:88:90 [0] NCCL INFO Using network Socket"),
        (GOOD + rank("pod1", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"), "IB", "via NET/IB/0/GDRDMA"),
        (GOOD + rank("pod1", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"), "Socket", "via NET/Socket/0"),
        (rank("pod1", "Initialized NET plugin IB") + rank("pod1", "Assigned NET plugin IB to comm"), "IB", "plugin IB"),
        (rank("pod1", "NET/Socket : Using [0]eth0:172.17.0.2<0>"), "Socket", "eth0"),
        (rank("pod1", "Using network AWS Libfabric"), "unknown", "AWS"),
        ("", "unknown", ""),
        ("step 1 loss 0.5\n", "unknown", ""),
        (rank("pod1", "Bootstrap : Using wg0:10.42.0.1<0>"), "unknown", ""),
    ],
)
def test_transport(text: str, transport: str, line: str) -> None:
    reading = log.read_log(text)
    assert reading.transport == transport
    assert line in reading.line
    assert reading.well == (transport == "IB")
    assert reading.well or (reading.cause and reading.fix)
    if reading.number:
        assert text.splitlines()[reading.number - 1].strip() == reading.line


SOCKET = rank("pod1", "Using network Socket")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (rank("pod1", "NCCL_IB_DISABLE set by environment to 1.") + SOCKET, "NCCL_IB_DISABLE"),
        (rank("pod1", "NCCL_IB_DISABLE set by environment to 0.") + SOCKET, "does not say why"),
        (rank("pod1", "NCCL_NET set by environment to Socket") + SOCKET, "NCCL_NET"),
        (rank("pod1", "Failed to open libibverbs.so[.1]") + SOCKET, "no libibverbs"),
        (rank("pod1", "NET/IB : No device found.") + SOCKET, "NCCL_IB_HCA selects none"),
        (GOOD + "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n", "locked memory"),
        (GOOD + "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out\n", "GID"),
        (GOOD + "NCCL WARN NET/IB : Got completion from peer 10.42.0.2<4> with status=12 opcode=0\n", "switch"),
        ("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n", "locked memory"),
    ],
)
def test_cause(text: str, cause: str) -> None:
    reading = log.read_log(text)
    assert cause in reading.cause
    assert not reading.well


def test_the_program(tmp_path: Path) -> None:
    def run(argument: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        program = ROLES / "runtime_hook" / "files" / "lium_nccl_log.py"
        return subprocess.run(
            [sys.executable, str(program), argument], input=stdin, capture_output=True, text=True, timeout=60
        )

    (tmp_path / "job.log").write_text(GOOD)
    done = run(str(tmp_path / "job.log"))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "IB")
    done = run("-", SOCKET)
    assert done.returncode == 1
    assert "line 1: pod1:88:90 [0] NCCL INFO Using network Socket" in done.stdout
    assert "likely cause: " in done.stdout
    assert run("-", "").returncode == 3
    missing = run(str(tmp_path / "no.log"))
    assert missing.returncode == 2
    assert "No such file" in missing.stderr
