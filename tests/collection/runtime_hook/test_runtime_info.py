"""The checks `runtime.*`: the hook where it belongs, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, OK, SKIPPED, UNKNOWN
from ansible_collections.lium.cluster.plugins.module_utils._runtime.checks import look_at_runtime

INFO = "docker info --format {{json .}}"
UNIT = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd -H fd:// \\\n  --containerd=/run/containerd/containerd.sock\n"


def info(default: str = "runc", **runtimes: str) -> str:
    known = {name.replace("_", "-"): {"path": path} for name, path in {"runc": "runc", **runtimes}.items()}
    return json.dumps({"ServerVersion": "20.10", "DefaultRuntime": default, "Runtimes": known})


@pytest.fixture
def statuses(make_probe):
    """Statuses by id for daemon.json, an answer of docker info, and further files."""

    def look(
        daemon_json: str | None, docker: Any = None, scope: str = "host", files: dict[str, str] | None = None
    ) -> dict[str, Any]:
        written = {"/etc/docker/daemon.json": daemon_json} if daemon_json is not None else {}
        commands = {"systemctl cat docker.service": UNIT, "docker ps --format {{.Names}}": "", "runc --version": ""}
        if docker is not None:
            commands[INFO] = docker
        probe = make_probe({**written, **(files or {})}, commands)
        return {record.id: record for record in look_at_runtime(probe, {"scope": scope}).records}

    return look


@pytest.mark.parametrize(
    ("daemon_json", "docker", "scope", "status"),
    [
        (None, info(), "host", OK),
        ("{}", info("nvidia", nvidia="nvidia-container-runtime"), "host", OK),
        ('{"default-runtime": "lium-rdma"}', info(), "host", MUST_FIX),
        # Taken by a reload since, and no longer in the file.
        ("{}", info("lium-rdma", lium_rdma="/usr/local/bin/lium-rdma-runc"), "host", MUST_FIX),
        ("{}", info("site", site="/usr/local/bin/lium-rdma-runc"), "host", MUST_FIX),
        ("{}", info("lium-rdma", lium_rdma="/usr/local/bin/lium-rdma-runc"), "pod", OK),
        ("{}", info(), "pod", MUST_FIX),
        ("{}", {"rc": 1, "stderr": "Cannot connect to the Docker daemon"}, "host", UNKNOWN),
        # A daemon that is down takes the file at its next start.
        ('{"default-runtime": "lium-rdma"}', {"rc": 1, "stderr": "Cannot connect"}, "host", MUST_FIX),
    ],
)
def test_default(statuses, daemon_json: str | None, docker: Any, scope: str, status: str) -> None:
    record = statuses(daemon_json, docker, scope)["runtime.default"]
    assert record.status == status, record
    assert record.blocks == (status == MUST_FIX)


@pytest.mark.parametrize(
    ("daemon_json", "status", "word"),
    [
        (None, OK, ""),
        ("", OK, ""),
        ('{"hosts": ["fd://"]}', MUST_FIX, "hosts"),
        ('{"containerd": "/x"}', MUST_FIX, "containerd"),
        ("<html>", MUST_FIX, "line 1, column 1"),
        ('{"debug": true,}', MUST_FIX, "line 1, column 1"),
        ('{\n  "debug": true // comment\n}', MUST_FIX, "line 2"),
    ],
)
def test_docker_would_start(statuses, daemon_json: str | None, status: str, word: str) -> None:
    record = statuses(daemon_json, info())["runtime.docker_start"]
    assert record.status == status
    assert word in record.observed


def test_the_hook_must_be_whole(statuses, tmp_path) -> None:
    wrapper = "/usr/local/bin/lium-rdma-runc"
    known = info(lium_rdma=wrapper)
    assert statuses(None, info())["runtime.hook"].status == SKIPPED
    assert statuses(None, info(), "pod")["runtime.hook"].status == MUST_FIX
    assert "does not exist" in statuses(None, known)["runtime.hook"].observed
    assert "may not be executed" in statuses(None, known, files={wrapper: "#!"})["runtime.hook"].observed
    (tmp_path / "host" / wrapper.lstrip("/")).chmod(0o755)
    assert statuses(None, known)["runtime.hook"].status == OK
    for behind, words in (("/nowhere/crun", "is not there"), (wrapper, "call itself")):
        files = {"/etc/lium/rdma-runc.conf": f"runtime={behind}\n"}
        record = statuses(None, known, files=files)["runtime.hook"]
        assert record.status == MUST_FIX
        assert words in record.observed


@pytest.mark.parametrize(("scope", "kept_out"), [("host", True), ("pod", False)])
def test_a_virtual_machine_keeps_out_of_a_host_and_not_of_a_pod(statuses, scope: str, kept_out: bool) -> None:
    seen = statuses("{}", info(), scope, {"/proc/7/comm": "qemu-system-x86"})
    assert ({record.status for record in seen.values()} == {SKIPPED}) is kept_out
