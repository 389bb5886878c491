"""Whether the run that locked a stack lives, told from real processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulumi_lium.recovery.stack import PulumiStack, StackLocked, _failure


@contextmanager
def program(folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this name, which ends when its standard input is closed."""
    path = folder / name
    path.symlink_to(shutil.which("cat") or "/bin/cat")
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process


def is_alive(pid: int, host: str = "") -> bool | None:
    said = (
        "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the"
        " lock file with `pulumi cancel`.\n  file:///state/.pulumi/locks/ci.json: created by"
        f" root@{host or socket.gethostname()} (pid {pid}) at 2026-11-30T12:00:00Z"
    )
    locked = _failure(("destroy",), 255, said)
    assert isinstance(locked, StackLocked)
    assert locked.lock is not None
    return locked.lock.alive


def test_a_running_pulumi_is_alive(tmp_path: Path) -> None:
    with program(tmp_path, "pulumi") as process:
        assert is_alive(process.pid) is True


def test_one_that_has_ended_is_dead_before_its_parent_has_heard_of_it(tmp_path: Path) -> None:
    """An init that reaps every few seconds only left a stack locked "by a run that is alive"."""
    with program(tmp_path, "pulumi") as process:
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.kill(process.pid, 0)  # its number is taken still
        assert is_alive(process.pid) is False


@pytest.mark.parametrize("name", ["cat", "a) Z (b"])
def test_another_program_under_its_number_is_not_the_run(tmp_path: Path, name: str) -> None:
    with program(tmp_path, name) as process:
        assert is_alive(process.pid) is False


def test_a_name_with_brackets_does_not_hide_the_state(tmp_path: Path) -> None:
    with program(tmp_path, "pulumi) Z (") as process:
        assert is_alive(process.pid) is True


def test_a_number_that_nobody_has_is_dead_and_one_of_another_machine_is_not_known(tmp_path: Path) -> None:
    with program(tmp_path, "pulumi") as process:
        pass
    assert is_alive(process.pid) is False
    assert is_alive(process.pid, host="another-machine") is None


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("dev", {"organization/web/dev"}),
        ("acme/dev", {"acme/web/dev"}),
        ("acme/shop/dev", {"acme/shop/dev"}),
    ],
)
def test_the_full_name_is_that_with_which_owners_begin(tmp_path: Path, name: str, full: set[str]) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: web\nruntime: python\n")
    stack = PulumiStack(tmp_path, name, {})
    assert stack.full_names == full
    assert all(stack.owns(f"{known}/train") for known in full)


def test_without_a_project_no_full_name_is_made_up(tmp_path: Path) -> None:
    assert PulumiStack(tmp_path, "dev", {}).full_names == frozenset()
