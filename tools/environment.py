"""The checkout's Python environment: `.venv`, from a lock file with hashes.

`python3 -m tools.environment` makes or renews it; nothing is done when the lock, the project's own metadata and the
interpreter are those of the last time. `python3 -m tools.environment lock` renews the lock from `pyproject.toml`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.cache import digest
from tools.console import SetupError, say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements" / "dev.txt"
STAMP = VENV / ".installed"
OLDEST_PYTHON = (3, 10)


def environ() -> dict[str, str]:
    """The caller's variables, with this environment active.

    Ansible gets a home in the checkout: an older copy of our collection in the user's own would shadow the tree.
    """
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV), "ANSIBLE_HOME": str(ROOT / ".ansible")}


def install() -> None:
    """Makes or renews `.venv`. SetupError says what is missing."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"Python {found} is too old, 3.10 or newer is needed: `make PYTHON=python3.12 …` names one")
    wanted = digest([LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), sys.version.encode()])
    if _is_up_to_date(wanted):
        return
    with LOCK.open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)  # two runs of make at once
        if not _is_up_to_date(wanted):
            _renew(wanted)


def _is_up_to_date(wanted: str) -> bool:
    return STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists()


def _renew(wanted: str) -> None:
    began = time.monotonic()
    STAMP.unlink(missing_ok=True)  # killed half-way, it is not taken for whole
    if not _usable():
        say(f"environment: making {VENV.relative_to(ROOT)} with Python {sys.version.split()[0]}")
        _run([sys.executable, "-m", "venv", "--clear", str(VENV)], "is the package python3-venv installed?")
    count = sum(line[:1].isalnum() for line in LOCK.read_text().splitlines())
    say(f"environment: installing up to {count} packages of {LOCK.relative_to(ROOT)} into {VENV.relative_to(ROOT)}")
    _install(["--require-hashes", "-r", str(LOCK)])
    _install(["--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    STAMP.write_text(wanted)
    say(f"environment: ready in {time.monotonic() - began:.0f} s")


def lock() -> None:
    """Renews the lock for every supported Python; no address of a package index goes into it."""
    say(f"lock: resolving pyproject.toml into {LOCK.relative_to(ROOT)}")
    options = ["--universal", "--python-version", "3.10", "--generate-hashes", "--no-emit-index-url", "--no-header"]
    command = [*_uv(), "pip", "compile", "--upgrade", "--quiet", *options, "--extra", "dev"]
    _run([*command, "pyproject.toml", "-o", str(LOCK.relative_to(ROOT))], "see the lines above")


def _usable() -> bool:
    """Whether `.venv` runs on this interpreter's version."""
    if not PYTHON.exists():
        return False
    code = "import sys; print(sys.version)"
    done = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == sys.version.strip()


def _uv() -> list[str]:
    inside = VENV / "bin" / "uv"
    found = str(inside) if inside.exists() else shutil.which("uv")
    if found is None:
        raise SetupError("uv is not installed: run `make setup` first")
    return [found]


def _install(arguments: list[str]) -> None:
    if shutil.which("uv"):
        _run(["uv", "pip", "install", "--quiet", "--python", str(PYTHON), *arguments], "see the lines above")
    else:
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _run([*pip, *arguments], "see the lines above")


def _run(command: list[str], hint: str) -> None:
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` failed with exit code {done.returncode}: {hint}")


def main(arguments: list[str]) -> int:
    try:
        lock() if arguments == ["lock"] else install()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
