"""The collection as a whole: what it ships, what it declares, and that it runs where nothing else of the tree is."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.collection.conftest import ROOT, ansible_env, ansible_tool

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))


def load(path: Path) -> object:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_link_is_the_repository() -> None:
    link = ROOT / "ansible_collections" / "lium" / "cluster"
    assert link.is_symlink()
    assert link.readlink() == Path("../..")
    assert link.resolve() == ROOT


def test_action_group_names_every_module() -> None:
    assert load(ROOT / "meta" / "runtime.yml")["action_groups"]["cluster"] == MODULES


@pytest.mark.parametrize("role", ROLES)
def test_every_role_variable_has_a_default_and_a_description(role: str) -> None:
    folder = ROOT / "roles" / role
    options = load(folder / "meta" / "argument_specs.yml")["argument_specs"]["main"].get("options", {})
    defaults = load(folder / "defaults" / "main.yml") or {}
    with_default = {name for name, option in options.items() if "default" in option}
    assert set(defaults) == with_default, "defaults/main.yml and the defaults in meta/argument_specs.yml name the same"
    for name, option in options.items():
        assert name.startswith((f"{role}_", "lium_")), name
        assert option["description"]
        assert option["type"]
        if "default" in option and "{{" not in str(defaults[name]):
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("role", ROLES)
def test_role_skeleton(role: str) -> None:
    folder = ROOT / "roles" / role
    for name in ("tasks/main.yml", "defaults/main.yml", "meta/main.yml", "meta/argument_specs.yml", "README.md"):
        assert (folder / name).is_file(), name
    assert (ROOT / "extensions" / "molecule" / role / "molecule.yml").is_file(), (
        "`molecule test -s ROLE` runs each role"
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [ansible_tool("ansible-galaxy"), "collection", "build", str(ROOT), "--output-path", str(folder)],
        check=True,
        capture_output=True,
        env=ansible_env(folder, folder / "home"),
        timeout=120,
    )
    (archive,) = folder.glob("lium-cluster-*.tar.gz")
    return archive


def test_the_archive_holds_the_collection_and_nothing_else(built: Path) -> None:
    with tarfile.open(built) as archive:
        members = archive.getmembers()
    names = {member.name for member in members if member.isfile()}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    allowed = re.compile(
        r"(MANIFEST\.json|FILES\.json|README\.md|LICENSE|CHANGELOG\.md|meta/runtime\.yml"
        r"|(changelogs|docs|plugins|roles|playbooks)/.+)"
    )
    assert [name for name in names if not allowed.fullmatch(name)] == []
    assert [name for name in names if "__pycache__" in name or name.endswith(".pyc")] == []
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "plugins", "roles", "playbooks"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    missing = [name for name in tracked if name not in names and (ROOT / name).exists()]
    assert missing == [], "files of the collection that the allow list in galaxy.yml leaves out"


def test_the_built_collection_runs_from_an_empty_place(built: Path, tmp_path: Path, write_inventory, play) -> None:
    place = tmp_path / "empty"
    subprocess.run(
        [ansible_tool("ansible-galaxy"), "collection", "install", str(built), "-p", str(place), "--offline"],
        check=True,
        capture_output=True,
        env=ansible_env(place, tmp_path / "home"),
        timeout=120,
    )
    inventory = write_inventory({"here": {"preflight_become": False}})
    done = play("lium.cluster.audit", inventory, "-e", f"lium_report_path={tmp_path}/report.json", collections=place)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    jsonschema.validate(report, json.loads((ROOT / "docs/schema/report.schema.json").read_text(encoding="utf-8")))
    (host,) = report["hosts"]
    assert host["name"] == "here"
    assert "os.supported" in {record["id"] for record in host["records"]}, done.stdout + done.stderr
    assert done.returncode == (2 if host["status"] == "MUST_FIX" else 0)
    assert "What to do next" in done.stdout or "Nothing to do." in done.stdout


def bare_uses(text: str, name: str) -> list[str]:
    """Lines in which a variable decides something as the text that it may be."""
    used = re.compile(rf"\b{name}\b(?!\s*\|\s*bool)(?!:)(?! is off)")
    handed_on = re.compile(rf'"{{{{ {name} }}}}"')
    lines = (line.partition("# ")[0] for line in text.splitlines())
    return [line.strip() for line in lines if used.search(handed_on.sub("", line))]


@pytest.mark.parametrize("role", ROLES)
def test_no_switch_is_on_because_it_says_false(role: str) -> None:
    """`-e NAME=false` is the text "false", which is true in an expression until `bool` has read it."""
    folder = ROOT / "roles" / role
    options = load(folder / "meta" / "argument_specs.yml")["argument_specs"]["main"].get("options", {})
    for name in (name for name, option in options.items() if option["type"] == "bool"):
        for part in ("tasks", "handlers", "vars"):
            for path in sorted((folder / part).glob("*.yml")):
                bare = [line for line in bare_uses(path.read_text(encoding="utf-8"), name) if line != f"role: {name}"]
                assert bare == [], f"{path.name}: {name}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("when: switch", True),
        ('"{{ a if switch else b }}"', True),
        ("when: not switch or other", True),
        ("when: switch | bool", False),
        ('become: "{{ switch }}"', False),
        ("# switch", False),
    ],
)
def test_a_bare_switch_is_found(line: str, found: bool) -> None:
    assert bool(bare_uses(line, "switch")) is found


def test_no_list_is_ordered_anew_in_each_run() -> None:
    """Ansible's filters of sets go by the hash of a text, which differs from run to run: a file that is written in that
    order is "changed" in the next one."""
    sets = re.compile(r"\|\s*(ansible\.builtin\.)?(difference|intersect|symmetric_difference|union)\b")
    assert sets.search("{{ a | difference(b) }}")
    for folder in ("roles", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*.yml")):
            used = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if sets.search(line)]
            assert used == [], path.relative_to(ROOT)
