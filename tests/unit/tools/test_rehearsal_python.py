"""The emulated hosts' Python: a program behaves as in a Python of its own, without the time that one takes to start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ProcessHandle
from tools.rehearsal.playbook import warm_python


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with warm_python(tmp_path_factory.mktemp("python")) as program:
        yield program


def run(python: Path, program: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments], input=program, env={"ONLY": "a=b"}, cwd=cwd, capture_output=True, text=True, timeout=60
    )


def test_a_program_has_its_own_files_folder_and_environment(python: Path, tmp_path: Path) -> None:
    told = "import os, sys; print(dict(os.environ), os.getcwd(), sys.argv); print('seen', file=sys.stderr)"
    done = run(python, told, cwd=tmp_path)
    assert done.stdout == f"{ {'ONLY': 'a=b'} } {tmp_path} ['']\n"
    assert (done.stderr, done.returncode) == ("seen\n", 0)


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os._exit(9)", 70)]
)
def test_it_ends_as_the_program_ends(python: Path, program: str, code: int) -> None:
    done = run(python, program)
    assert done.returncode == code
    assert ("ZeroDivisionError" in done.stderr) is (code == 1)


def test_programs_share_nothing(python: Path) -> None:
    assert run(python, "import json; json.mark = 1; import os; os.environ['LEFT'] = '1'").returncode == 0
    assert run(python, "import json, os; assert not hasattr(json, 'mark') and 'LEFT' not in os.environ").returncode == 0


def test_a_program_may_start_others(python: Path) -> None:
    program = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(1)']).returncode)"
    assert run(python, program).stdout == "1\n0\n"


def test_other_uses_go_to_the_real_one(python: Path) -> None:
    done = run(python, "", "-c", "import sys; print(sys.version_info.major)")
    assert (done.stdout, done.returncode) == ("3\n", 0)


def test_the_warm_one_ends_with_its_rehearsal(tmp_path: Path) -> None:
    with warm_python(tmp_path) as program:
        server = int(run(program, "import os; print(os.getppid())").stdout)
        handle = ProcessHandle(server)
        assert handle.alive()
    with handle:
        handle.wait(30)
    # The program itself still works: it starts the real one.
    assert run(program, "import sys; print(sys.version_info.major)").stdout == "3\n"
