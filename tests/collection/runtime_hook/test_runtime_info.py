"""The checks `runtime.*`: the hook where it belongs, and nowhere else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import MUST_FIX, OK, SKIPPED, UNKNOWN
from ansible_collections.lium.cluster.plugins.module_utils._runtime.checks import look_at_runtime

from tests.collection.recorded_host import RecordedHost, healthy_host

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
        # The file alone starts no container.
        ('{"default-runtime": "lium-rdma"}', info(), "pod", MUST_FIX),
        ('{"default-runtime": "lium-rdma"}', {"rc": 1, "stderr": "Cannot connect"}, "pod", UNKNOWN),
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


WRAPPER = "/usr/local/bin/lium-rdma-runc"
DAEMON_JSON = "/etc/docker/daemon.json"


def hooked(host: RecordedHost) -> None:
    """The runtime as `runtime_hook_install` leaves it on a host."""
    settings = json.loads(host.files[DAEMON_JSON])
    settings["runtimes"]["lium-rdma"] = {"path": WRAPPER}
    host.files[DAEMON_JSON] = json.dumps(settings)
    host.answer(INFO, info(lium_rdma=WRAPPER))
    host.files[WRAPPER] = "#!/usr/bin/python3"
    host.modes[WRAPPER] = 0o755
    host.files["/etc/lium/rdma-runc.conf"] = "runtime=runc"
    host.answer("runc --version", "runc version 1.1.5\n")


def key_set_twice(host: RecordedHost) -> None:
    host.files[DAEMON_JSON] = '{"hosts": ["fd://"]}'
    host.answer("systemctl cat docker.service", UNIT)


def comma_at_the_end(host: RecordedHost) -> None:
    host.files[DAEMON_JSON] = '{"debug": true,}'


def default_in_the_file(host: RecordedHost) -> None:
    host.files[DAEMON_JSON] = json.dumps({"default-runtime": "site", "runtimes": {"site": {"path": WRAPPER}}})


def default_in_docker_alone(host: RecordedHost) -> None:
    hooked(host)
    host.answer(INFO, info("lium-rdma", lium_rdma=WRAPPER))


def not_read_by_docker(host: RecordedHost) -> None:
    """What an install leaves that is killed before Docker reads the file."""
    hooked(host)
    host.answer(INFO, info())


def no_program(host: RecordedHost) -> None:
    hooked(host)
    host.remove(WRAPPER)


def program_without_its_mode(host: RecordedHost) -> None:
    hooked(host)
    host.modes[WRAPPER] = 0o644


def nothing_behind(host: RecordedHost) -> None:
    hooked(host)
    host.files["/etc/lium/rdma-runc.conf"] = "runtime=/usr/bin/crun"


def itself_behind(host: RecordedHost) -> None:
    hooked(host)
    host.files["/etc/lium/rdma-runc.conf"] = f"runtime={WRAPPER}"


BACK = f"Set default-runtime in {DAEMON_JSON} back to what it was (runc, or nvidia) and reload Docker"
AGAIN = "Run the role runtime_hook again"
SEEDED = [
    (key_set_twice, "runtime.docker_start", "set in both: hosts", f"Take hosts out of {DAEMON_JSON}"),
    (comma_at_the_end, "runtime.docker_start", "line 1, column", f"Correct {DAEMON_JSON}"),
    (default_in_the_file, "runtime.default", f"site ({DAEMON_JSON})", BACK),
    (default_in_docker_alone, "runtime.default", "lium-rdma (docker info)", BACK),
    (not_read_by_docker, "runtime.hook", "which Docker has not read", AGAIN),
    (no_program, "runtime.hook", f"{WRAPPER} does not exist", AGAIN),
    (program_without_its_mode, "runtime.hook", "may not be executed", AGAIN),
    (nothing_behind, "runtime.hook", "/usr/bin/crun, the runtime behind lium-rdma, is not there", "Install it"),
    (itself_behind, "runtime.hook", "call itself", AGAIN),
]


def look_at(host: RecordedHost, folder: Path) -> dict[str, Any]:
    found = look_at_runtime(open_probe(str(host.write(folder)), {}), {"scope": "host"})
    return {record.id: record for record in found.records}


@pytest.mark.parametrize(("breaks", "record_id", "seen", "fix"), SEEDED, ids=[row[0].__name__ for row in SEEDED])
def test_a_seeded_fault_is_found_with_its_fix(
    breaks: Callable[[RecordedHost], None], record_id: str, seen: str, fix: str, tmp_path: Path
) -> None:
    host = healthy_host(random.Random(1), kind="roce")
    breaks(host)
    records = look_at(host, tmp_path / "host")
    record = records[record_id]
    assert (record.status, seen in record.observed, fix in record.remediation) == (MUST_FIX, True, True), record
    assert [row.id for row in records.values() if row.status not in (OK, SKIPPED)] == [record_id]


def test_nothing_is_found_on_a_host_with_the_runtime(tmp_path: Path) -> None:
    host = healthy_host(random.Random(1), kind="roce")
    hooked(host)
    assert {row.status for row in look_at(host, tmp_path / "host").values()} <= {OK, SKIPPED}
