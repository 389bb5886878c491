"""The artefacts that people install: what is in them, and what an installation without extras brings and does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# What only an extra, or nobody, brings. None of it may be needed for `pulumi up`.
EXTRAS = ("ansible", "click", "fastapi", "rich", "uvicorn")


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and source distribution by the project's own back-end; the wheel out of the sdist, as in a release."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def _closure(extra: str | None) -> set[str]:
    """Distributions that installing the project with `extra` brings, by what is installed here."""
    from importlib.metadata import distribution

    found: set[str] = set()

    def add(name: str, extras: set[str]) -> None:
        for line in distribution(name).requires or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": wanted}) for wanted in extras | {""}):
                known = canonicalize_name(requirement.name)
                if known not in found or requirement.extras:
                    found.add(known)
                    add(known, set(requirement.extras))

    add("pulumi-lium", {extra} if extra else set())
    return found - {"pulumi-lium"}


def _environment(folder: Path, wheel: Path, extra: str | None) -> Path:
    """An environment that holds the wheel and, of all packages, those that it asks for; answers its Python.

    They are linked from the environment of the tests, so that no network is needed; pip checks that none is missing.
    """
    from importlib.metadata import distribution

    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    here = Path(sysconfig.get_path("purelib"))
    for name in _closure(extra):
        tops = {Path(file).parts[0] for file in distribution(name).files or [] if not str(file).startswith("..")}
        for top in tops - {"__pycache__"}:
            target = packages / top
            if not target.exists() and (here / top).exists():
                target.symlink_to(here / top)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            str(wheel),
        ],
        check=True,
        env={**os.environ, "PIP_FIND_LINKS": ""},
    )
    checked = _run(sys.executable, "-m", "pip", "--python", python, "check", cwd=folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return python


@pytest.fixture(scope="module")
def plain(artefacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel and no extra."""
    return _environment(tmp_path_factory.mktemp("plain"), artefacts["wheel"], None)


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd, env=environ)


def test_the_wheel_holds_the_package_alone(artefacts: dict[str, Path]) -> None:
    names = zipfile.ZipFile(artefacts["wheel"]).namelist()
    assert {name.split("/")[0] for name in names} == {"pulumi_lium", "pulumi_lium-0.1.0.dist-info"}
    assert {"pulumi_lium/py.typed", "pulumi_lium/emulator/builtin.yaml"} <= set(names)
    unwanted = ("test_", "conftest")
    assert not [name for name in names if Path(name).name.startswith(unwanted) or "__pycache__" in name]
    assert not [name for name in names if "tests" in Path(name).parts]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_module_of_the_tree(artefacts: dict[str, Path]) -> None:
    listed = subprocess.run(["git", "ls-files", "pulumi_lium"], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = set(listed.stdout.split()) - set(zipfile.ZipFile(artefacts["wheel"]).namelist())
    assert {name for name in missing if (ROOT / name).exists()} == set()


def test_the_source_distribution_holds_what_a_build_needs(artefacts: dict[str, Path]) -> None:
    with tarfile.open(artefacts["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "pulumi_lium/__init__.py"} <= names
    assert {name.split("/")[0] for name in names} <= {
        *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", "pulumi_lium"),
        ".gitignore",  # hatchling adds it to every source distribution
    }


def test_a_plain_installation_asks_for_no_more_than_pulumi_up_needs() -> None:
    assert _closure(None).isdisjoint({*EXTRAS, "ansible-core", "pytest", "lium-io"})
    assert _closure("emulator") >= {"fastapi", "uvicorn", "click", "rich"}


def test_a_plain_installation_imports(plain: Path, tmp_path: Path) -> None:
    done = _run(plain, "-c", "import pulumi_lium; print(pulumi_lium.__file__)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(plain.parent.parent)


@pytest.mark.parametrize("arguments", [["--help"], ["emulator", "--port", "0"], [], ["offers", "--json"]])
def test_commands_without_their_extra_say_how_to_get_it(plain: Path, tmp_path: Path, arguments: list[str]) -> None:
    done = _run(plain.parent / "pulumi-lium", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    if "--json" in arguments:
        assert json.loads(done.stdout)["error"]["hint"] == "pip install 'pulumi-lium[cli]'"
    else:
        assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert "pip install 'pulumi-lium[cli]'" in line


def test_the_emulator_without_its_extra_says_how_to_get_it(artefacts: dict[str, Path], tmp_path: Path) -> None:
    python = _environment(tmp_path / "cli", artefacts["wheel"], "cli")
    assert _run(python.parent / "pulumi-lium", "--help", cwd=tmp_path).returncode == 0
    done = _run(python.parent / "pulumi-lium", "emulator", "--port", "0", cwd=tmp_path)
    assert done.returncode != 0
    assert "pulumi-lium[emulator]" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_their_extra_the_commands_work(artefacts: dict[str, Path], tmp_path: Path) -> None:
    python = _environment(tmp_path / "emulator", artefacts["wheel"], "emulator")
    done = _run(python.parent / "pulumi-lium", "emulator", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--scenario" in done.stdout


def test_importing_the_package_imports_nothing_that_is_slow_and_not_needed(tmp_path: Path) -> None:
    code = "import json, sys, pulumi_lium; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = _run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)).isdisjoint({*EXTRAS, "lium", "pytest"})
