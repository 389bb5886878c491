"""`pulumi-lium`: help, and one clear line where packages are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(*arguments: str, without: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process in which the package `without` cannot be imported."""
    program = f"import sys; sys.modules[{without!r}] = None; " if without else "import sys; "
    program += f"sys.argv = {['pulumi-lium', *arguments]!r}; from pulumi_lium.cli import main; main()"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_the_commands_and_loads_none() -> None:
    done = run("--help", without="uvicorn")
    assert done.returncode == 0, done.stderr
    assert "emulator" in done.stdout


def test_the_version_is_the_packages() -> None:
    done = run("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pulumi-lium, version ")


@pytest.mark.parametrize(
    ("without", "extra", "arguments"),
    [("click", "cli", ["--help"]), ("uvicorn", "emulator", ["emulator"]), ("yaml", "emulator", ["emulator"])],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(
    without: str, extra: str, arguments: list[str]
) -> None:
    done = run(*arguments, without=without)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"pip install 'pulumi-lium[{extra}]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_unknown_command_is_wrong_use() -> None:
    done = run("emulate")
    assert done.returncode == 2
    assert "emulate" in done.stderr
