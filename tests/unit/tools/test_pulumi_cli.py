"""Where the Pulumi CLI comes from. The binaries here are scripts; the real one is driven by the engine tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.console import SetupError
from tools.gotool import PULUMI, GoTool
from tools.pulumi import cli

HOST_FILES = {"language_host.py", "pulumi-language-python", "pulumi-resource-pulumi-python"}


def script(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def installer(version: str, code: int = 0) -> bytes:
    """A script that takes the official installer's options and leaves a `pulumi` of `version`."""
    return f"""#!/bin/sh
[ "$1 $2 $4 $5" = "--no-edit-path --install-root --version {PULUMI.version}" ] || exit 9
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho v{version}\\n' > "$3/bin/pulumi"
chmod +x "$3/bin/pulumi"
exit {code}
""".encode()


def no_installer() -> bytes | None:
    return None


def test_one_on_path_is_taken(tmp_path: Path) -> None:
    binary = script(tmp_path / "bin" / "pulumi", "v3.200.1")
    script(tmp_path / "bin" / "pulumi-language-python", "")
    found = cli.resolve({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)})
    assert (found.binary, found.version, found.origin) == (binary, "3.200.1", "on PATH")
    assert found.path("/usr/bin") == f"{tmp_path / 'bin'}:/usr/bin"


def test_one_on_path_without_a_language_host_gets_ours_behind_it(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "pulumi", "v3.200.1")
    found = cli.resolve({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)})
    last = Path(found.path("/usr/bin").split(os.pathsep)[-1])
    assert {path.name for path in last.iterdir() if path.is_file()} == HOST_FILES


def test_a_link_on_path_finds_the_language_host_where_it_leads(tmp_path: Path) -> None:
    real = script(tmp_path / "opt" / "pulumi", "v3.200.1")
    script(tmp_path / "opt" / "pulumi-language-python", "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulumi").symlink_to(real)
    assert not cli.resolve({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}).needs_host


@pytest.mark.parametrize(("says", "code"), [("v2.25.0", 0), ("what?", 0), ("v3.200.1", 1)])
def test_one_on_path_that_will_not_do_is_an_error_that_says_so(tmp_path: Path, says: str, code: int) -> None:
    binary = script(tmp_path / "bin" / "pulumi", says, code)
    with pytest.raises(SetupError, match="take it off PATH") as error:
        cli.resolve({"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)})
    assert str(binary) in str(error.value)


def test_the_official_installer_installs_into_the_cache(tmp_path: Path) -> None:
    found = cli.installed(tmp_path, lambda: installer(PULUMI.version))
    assert found is not None
    assert found.version == PULUMI.version
    assert found.binary.is_relative_to(tmp_path)
    again = cli.installed(tmp_path, no_installer)  # from the cache
    assert again == found


@pytest.mark.parametrize("fetch", [no_installer, lambda: installer(PULUMI.version, code=3), lambda: b"#!/bin/sh\n"])
def test_an_installer_that_fails_leaves_the_way_to_the_build(
    tmp_path: Path, fetch: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.installed(tmp_path, fetch) is None  # type: ignore[arg-type]
    assert "building it instead" in capsys.readouterr().out
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_an_installer_out_of_reach_is_no_error() -> None:
    assert cli.fetch_installer("http://127.0.0.1:9/install.sh", timeout=0.5) is None


def test_the_version_stands_in_go_mod_and_nowhere_else() -> None:
    tree = Path(cli.__file__).parents[2]
    holders = [
        path.relative_to(tree).as_posix()
        for folder in ("tools", "tests", ".ci")
        for path in (tree / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".mod", ".go", ".sh", ".yml", ".txt", "")
        if f"v{PULUMI.version}" in path.read_text(errors="ignore")
    ]
    assert holders == ["tools/pulumi/go.mod"]


def test_a_tool_is_built_again_when_what_it_is_made_from_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "go.mod").write_text(
        "module x\n\nrequire (\n\texample.org/tool v1.2.3\n\texample.org/z v9.0.0 // indirect\n)\n"
    )
    (folder / "go.sum").write_text("")
    (folder / "tools.go").write_text('package x\n\nimport _ "example.org/tool/cmd/demo"\n')
    monkeypatch.setattr("tools.gotool.TOOLS", tmp_path)
    tool = GoTool("demo")
    assert (tool.version, tool.command) == ("1.2.3", "example.org/tool/cmd/demo")
    before = tool.cached_name
    (folder / "go.sum").write_text("changed")
    assert tool.cached_name != before


def test_a_build_without_go_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="install Go"):
        PULUMI.build(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_build_that_fails_shows_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "bin" / "go", "undefined: something", code=1)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(SetupError, match="undefined: something"):
        PULUMI.build(tmp_path / "cache")
