"""The checkout's environment: made when something changed, whole or made again, and what stands in its way is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import environment
from tools.console import SetupError

ROOT = Path(__file__).resolve().parents[3]


class Checkout:
    """A little checkout; `ran` are the commands that the set-up ran there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.fails_at: str | None = None

    def run(self, command: list[str], hint: str) -> None:
        line = " ".join(command)
        self.ran.append(line)
        if self.fails_at and self.fails_at in line:
            raise SetupError(f"`{line}` failed: {hint}")
        if "-m venv" in line:
            python = self.root / ".venv" / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    made = Checkout(tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("click==8.1 \\\n    --hash=sha256:00\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    venv = tmp_path / ".venv"
    for name, path in {
        "ROOT": tmp_path,
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "LOCK": tmp_path / "requirements" / "dev.txt",
        "STAMP": venv / ".installed",
    }.items():
        monkeypatch.setattr(environment, name, path)
    monkeypatch.setattr(environment, "_run", made.run)
    return made


def test_it_is_made_from_the_lock_with_hashes_and_once(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    environment.install()
    venv, locked, own = checkout.ran
    assert "-m venv" in venv
    assert "--require-hashes -r" in locked
    assert "--no-deps" in own
    assert own.endswith(f"-e {checkout.root}")
    assert "installing up to 1 packages" in capsys.readouterr().out, "it says what it installs"
    environment.install()
    assert len(checkout.ran) == 3, "nothing to do the second time"


@pytest.mark.parametrize("file", ["requirements/dev.txt", "pyproject.toml"])
def test_it_is_renewed_when_what_it_is_made_from_changes(checkout: Checkout, file: str) -> None:
    environment.install()
    (checkout.root / file).write_text("# changed\n")
    environment.install()
    assert ["-m venv" in line for line in checkout.ran] == [True, False, False, False, False], "into the same folder"


def test_one_that_broke_off_is_not_taken_for_whole(checkout: Checkout) -> None:
    checkout.fails_at = "--require-hashes"
    with pytest.raises(SetupError):
        environment.install()
    checkout.fails_at = None
    before = len(checkout.ran)
    environment.install()
    assert len(checkout.ran) == before + 2


def test_a_renewal_that_broke_off_is_not_taken_for_whole_either(checkout: Checkout) -> None:
    environment.install()
    old = (checkout.root / "pyproject.toml").read_text()
    (checkout.root / "pyproject.toml").write_text("# changed\n")
    checkout.fails_at = "--require-hashes"
    with pytest.raises(SetupError):
        environment.install()
    checkout.fails_at = None
    (checkout.root / "pyproject.toml").write_text(old)
    before = len(checkout.ran)
    environment.install()
    assert len(checkout.ran) == before + 2, "the old stamp is gone: half of it was the new one"


def test_a_python_that_is_too_old_is_named_with_the_way_out(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SetupError, match=r"Python 3\.9\.18 is too old, 3\.10 or newer is needed: `make PYTHON="):
        environment.install()
    assert checkout.ran == []


def test_tools_are_made_outside_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.cache import cache_root

    for environ in ({"HOME": "/home/ana"}, {"HOME": "/home/ana", "XDG_CACHE_HOME": "/var/cache/ana"}):
        assert not cache_root(environ).is_relative_to(ROOT)
        assert cache_root(environ).name == "pulumi-lium"


@pytest.fixture
def fake_make(tmp_path: Path) -> Callable[[], list[str]]:
    """A `make` on PATH that notes how it was called."""
    log = tmp_path / "called"
    program = tmp_path / "bin" / "make"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$PWD $REQUIRE_ALL $*" >> {log}\n')
    program.chmod(0o755)
    return lambda: log.read_text().splitlines()


def test_ci_runs_the_test_command_of_the_readme_and_leaves_no_tier_out(
    tmp_path: Path, fake_make: Callable[[], list[str]]
) -> None:
    command = re.search(
        r"^make (\S+) +# everything this machine can run", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert command
    subprocess.run(
        [ROOT / ".ci" / "run"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        check=True,
    )
    assert fake_make() == [f"{ROOT} 1 {command[1]}"]
