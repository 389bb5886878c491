"""Completion of `pulumi-lium` in a shell: the scripts, and what they ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulumi_lium.commands import COMMANDS


def run(env: dict[str, str], *, without: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command line as a completion script calls it, in a process that cannot import the package `without`."""
    program = f"import sys; sys.modules[{without!r}] = None; " if without else "import sys; "
    program += "sys.argv = ['pulumi-lium']; from pulumi_lium.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def asked(shell: str, words: str) -> dict[str, str]:
    """The variables by which the script of a shell asks for what may follow `words`."""
    last = words.rpartition(" ")[2]
    place = last if shell == "fish" else str(words.count(" "))
    return {"_PULUMI_LIUM_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": place}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_and_gets_every_command(shell: str) -> None:
    script = run({"_PULUMI_LIUM_COMPLETE": f"{shell}_source"})
    assert (script.returncode, script.stderr) == (0, "")
    assert "_PULUMI_LIUM_COMPLETE" in script.stdout
    offered = run(asked(shell, "pulumi-lium "))
    assert (offered.returncode, offered.stderr) == (0, "")
    assert all(name in offered.stdout for name in COMMANDS)
    begun = run(asked(shell, "pulumi-lium of"))
    assert "offers" in begun.stdout
    assert "doctor" not in begun.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_options_are_completed_too(shell: str) -> None:
    offered = run(asked(shell, "pulumi-lium offers --ma"))
    assert "--max-price-per-hour" in offered.stdout
    assert "--machines" in offered.stdout
    assert "--nodes" not in offered.stdout


@pytest.mark.parametrize("words", ["pulumi-lium ", "pulumi-lium emulator --p", "pulumi-lium nothing --p"])
def test_a_missing_package_costs_nobody_the_completion(words: str) -> None:
    offered = run(asked("bash", words), without="uvicorn")
    assert (offered.returncode, offered.stderr) == (0, "")
    assert ("emulator" in offered.stdout) == (words == "pulumi-lium ")


def test_bash_completes_what_is_typed() -> None:
    installed = Path(sys.executable).parent
    script = (
        'eval "$(_PULUMI_LIUM_COMPLETE=bash_source pulumi-lium)"; complete -p pulumi-lium;'
        ' COMP_WORDS=(pulumi-lium te); COMP_CWORD=1; _pulumi_lium_completion pulumi-lium; echo "${COMPREPLY[*]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{installed}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    registered, completed = done.stdout.splitlines()
    assert "_pulumi_lium_completion" in registered
    assert completed == "teardown"
