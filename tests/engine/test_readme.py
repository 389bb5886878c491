"""The README is followed to the letter: its program, and the commands of its first steps."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pulumi_lium.pytest_plugin import _OPTIONS
from tests.engine.conftest import base_env
from tests.support.clusters import PUBLIC_KEY, bills, market, orders
from tools.emulator import ControlPlane, Emulator
from tools.pulumi.cli import Cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def _section(title: str) -> str:
    return README.split(f"## {title}", 1)[1].split("\n## ", 1)[0]


def _blocks(language: str, section: str = "") -> list[str]:
    text = _section(section) if section else README
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def sandbox(tmp_path: Path, pulumi_cli: Cli) -> tuple[Path, dict[str, str]]:
    """A folder that stands for the checkout, an empty home, and the variables that a newcomer has."""
    home = tmp_path / "home"
    home.mkdir()
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("tools", ".venv", "Makefile", "pyproject.toml", "requirements", "pulumi_lium"):
        (checkout / name).symlink_to(ROOT / name)
    # The CLI takes the home folder from the list of users, not from HOME: it would keep this run's selections there.
    own = {"HOME": str(home), "PULUMI_HOME": str(home / ".pulumi")}
    env = {"PATH": pulumi_cli.path(os.environ["PATH"]), "LANG": "C.UTF-8", **own}
    return checkout, env


def test_the_first_steps_work_as_written(sandbox: tuple[Path, dict[str, str]], port: int, tmp_path: Path) -> None:
    checkout, env = sandbox
    first, second = _blocks("sh", "Your own program")
    program, *_ = _blocks("python")
    text = tmp_path / "program.py"
    text.write_text(program)
    # The newcomer's editor, and a market in which four H100 machines are free.
    second = second.replace("# put the program above into __main__.py", f"cp {text} __main__.py")
    script = "\n".join(["set -euo pipefail", "trap 'kill $(jobs -p)' EXIT", first, second, "read -r _"])
    script = script.replace("make setup", "true").replace("8321", str(port))
    script = script.replace("pulumi-lium emulator", f"pulumi-lium emulator --port {port}")
    script = script.replace(
        "pulumi-lium offers", "until grep -q http emulator.log; do sleep 0.1; done; pulumi-lium offers", 1
    )
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=checkout,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if line.startswith("If you want to remove the stack completely"):
                break
        printed = "".join(output)
        assert process.poll() is None, f"a step failed:\n{printed}"
        assert "10.42.0.4 slots=8" in printed, printed
        assert "10.42.0.1" in printed
        assert "4 × 8 H100" in printed, "the preview says what would be ordered"
        assert (checkout / "my-cluster" / ".pulumi").is_dir(), "the state is where the README says"
        bills(ControlPlane(f"http://127.0.0.1:{port}/api"), 0)


@pytest.mark.parametrize("what", ["program", "tests"])
def test_a_cluster_for_a_program_or_for_tests_works_as_written(
    emulator: Emulator, lium_env: dict[str, str], pulumi_cli: Cli, tmp_path: Path, what: str
) -> None:
    emulator.reset(market())
    program, tests = _blocks("python", "A cluster for a program")
    (options,) = _blocks("ini", "A cluster for a program")
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in (("program.py", program), ("pytest.ini", options), ("test_cluster.py", tests)):
        (folder / name).write_text(text)
    (folder / "key.pub").write_text(PUBLIC_KEY)
    arguments = ["program.py"] if what == "program" else ["-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**base_env(pulumi_cli), **lium_env, "HOME": str(tmp_path), "PULUMI_HOME": str(tmp_path / ".pulumi")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("10.42.0.2 slots=8\n" if what == "program" else "1 passed") in done.stdout
    assert len(orders(emulator)) == 1
    bills(emulator, 0)


def test_the_readme_names_every_option_of_the_fixture() -> None:
    assert set(re.findall(r"`lium_(?!cluster)(\w+)`", _section("A cluster for a program"))) == set(_OPTIONS)


def test_every_command_of_the_readme_exists() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("pulumi-lium"), "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    named = set(re.findall(r"`pulumi-lium (\w+)`", README))
    assert named == {line.split()[0] for line in done.stdout.split("Commands:")[1].splitlines() if line.strip()}


def test_every_playbook_of_the_readme_exists_and_none_is_left_out() -> None:
    named = set(re.findall(r"`lium\.cluster\.(\w+)` \|", README))
    assert named == {path.stem for path in (ROOT / "playbooks").glob("*.yml") if not path.name.startswith("_")}


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
