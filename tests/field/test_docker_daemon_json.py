"""Field cases on Docker's daemon.json: the inputs stand in cases/, the right outcome in each expected.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, SubprocessRunner
from ansible_collections.lium.cluster.plugins.module_utils._runtime.daemon_json import (
    DaemonJsonError,
    flag_conflicts,
    install,
    load,
    remove,
)
from ansible_collections.lium.cluster.plugins.module_utils._runtime.hook import Hook, HookError, Places

CASES = Path(__file__).parent / "cases"


def case(name: str, file: str) -> str:
    return (CASES / name / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("scope", ["host", "pod"])
def test_b77_everything_else_is_kept(scope: str) -> None:
    text = case("B77", "daemon.json")
    before = json.loads(text)
    merged = install(text, scope)
    after = json.loads(merged.text)
    assert list(after)[: len(before)] == list(before)
    assert after["runtimes"].pop("lium-rdma") == {"path": "/usr/local/bin/lium-rdma-runc"}
    added = {"default-runtime", "default-ulimits"} if scope == "pod" else set()
    assert {key: value for key, value in after.items() if key not in added} == before
    assert set(after) - set(before) == added
    assert install(merged.text, scope, merged.undo) == merged
    assert remove(merged.text, merged.undo) == text


@pytest.mark.parametrize("file", ["empty.json", "blank.json", "bom.json"])
def test_b78_an_empty_file_is_an_empty_object(file: str) -> None:
    merged = install(case("B78", file), "host")
    assert json.loads(merged.text) == {"runtimes": {"lium-rdma": {"path": "/usr/local/bin/lium-rdma-runc"}}}
    assert json.loads(remove(merged.text, merged.undo) or "no text") == {}


@pytest.mark.parametrize(("file", "shown"), [("html.json", "<!DOCTYPE html>"), ("list.json", "a list")])
def test_b78_what_is_no_object_is_refused_with_its_place(file: str, shown: str) -> None:
    with pytest.raises(DaemonJsonError, match="line 1, column 1") as caught:
        install(case("B78", file), "host")
    assert shown in str(caught.value)


def test_b80_a_key_that_is_a_flag_as_well() -> None:
    settings = load(case("B80", "daemon.json"))
    assert flag_conflicts(settings, case("B80", "docker.service.txt")) == ["hosts"]
    assert "as a flag and in the configuration file: hosts" in case("B80", "dockerd.stderr")


def test_b82_the_default_before_us_stands_behind_us() -> None:
    text = case("B82", "daemon.json")
    first = install(text, "pod")
    assert first.chain == ["/usr/local/bin/crun"]
    assert json.loads(first.text)["default-runtime"] == "lium-rdma"
    second = install(first.text, "pod", first.undo)
    assert second == first
    assert remove(second.text, second.undo) == text


@pytest.mark.parametrize("how", ["the unit", "dockerd itself"])
def test_b80_is_refused_before_docker_reads_it(tmp_path: Path, how: str) -> None:
    """Docker does not run here, so what the unit says counts; a dockerd that refuses the file counts as well."""
    etc = tmp_path / "docker"
    etc.mkdir()
    text = case("B80", "daemon.json")
    (etc / "daemon.json").write_text(text)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in (
        ("systemctl", f"cat {CASES}/B80/docker.service.txt" if how == "the unit" else "exit 1"),
        ("dockerd", f"cat {CASES}/B80/dockerd.stderr >&2; exit 1"),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    runner = SubprocessRunner({})
    runner._PATH = f"{tools}:{runner._PATH}"  # the stand-ins of this test before the machine's programs
    runner._env["PATH"] = runner._PATH

    def start() -> None:
        pytest.fail("Docker is not to be touched")

    places = Places(*(str(etc / name) for name in ("daemon.json", "docker.pid", "rdma-runc.conf", "undo")))
    with pytest.raises(HookError, match="hosts"):
        Hook(HostProbe(runner), places, start=start).install("host")
    assert (etc / "daemon.json").read_text() == text
    assert [path.name for path in etc.iterdir()] == ["daemon.json"]
