"""The wrapper runtime `lium-rdma-runc`: which calls it edits, what it edits, and what it hands on."""

from __future__ import annotations

import copy
import json
import os
import resource
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.role_files import ROLES, load

wrapper = load("runtime_hook", "lium_rdma_runc")
PROGRAM = ROLES / "runtime_hook" / "files" / "lium_rdma_runc.py"
UNLIMITED = {"type": "RLIMIT_MEMLOCK", "hard": 2**64 - 1, "soft": 2**64 - 1}
NODE = {"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192, "fileMode": 438, "uid": 0, "gid": 0}


def spec(**process: Any) -> dict[str, Any]:
    """A config.json as Docker writes it, in short."""
    return {
        "process": {"env": ["PATH=/usr/bin"], "capabilities": {"bounding": ["CAP_CHOWN"]}, **process},
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
    }


def edited(before: dict[str, Any], nodes: Any = (NODE,), variables: Any = (), memlock: bool = True) -> dict[str, Any]:
    """The spec after an edit; a second edit must change nothing."""
    after = copy.deepcopy(before)
    for _ in range(2):
        wrapper.edit(after, copy.deepcopy(list(nodes)), list(variables), memlock, lambda path: path == "/the/pods")
        first = copy.deepcopy(after)
    assert after == first
    return after


@pytest.mark.parametrize(
    ("line", "bundle"),
    [
        ("create --bundle /b id", "/b"),
        ("create -b /b id", "/b"),
        ("create --bundle=/b id", "/b"),
        ("create -b=/b --pid-file /p id", "/b"),
        ("--root /r --log /l --log-format json --systemd-cgroup create --bundle /b id", "/b"),
        ("--log=/create create --bundle /b id", "/b"),
        ("--root create state id", None),
        ("run -b /b id", "/b"),
        ("create id", "."),
        ("create", "."),
        ("state id", None),
        ("kill create 9", None),
        ("exec --bundle /b id", None),
        ("--version", None),
        ("--root", None),
        ("", None),
    ],
)
def test_which_calls_are_edited(line: str, bundle: str | None) -> None:
    assert wrapper.edited_bundle(line.split()) == bundle


def test_the_example_of_the_contract() -> None:
    before = spec(
        env=["PATH=/usr/bin", "NCCL_IB_GID_INDEX=5"],
        rlimits=[{"type": "RLIMIT_NOFILE", "hard": 1048576, "soft": 1048576}],
    )
    variables = ["NCCL_SOCKET_IFNAME==wg0", "NCCL_IB_GID_INDEX=3"]
    after = edited(before, variables=variables)
    assert after["process"]["env"] == ["PATH=/usr/bin", "NCCL_IB_GID_INDEX=5", "NCCL_SOCKET_IFNAME==wg0"]
    assert after["process"]["capabilities"] == {"bounding": ["CAP_CHOWN", "CAP_IPC_LOCK"]}
    assert after["process"]["rlimits"] == [before["process"]["rlimits"][0], UNLIMITED]
    assert after["linux"]["devices"] == [NODE]
    assert after["linux"]["resources"]["devices"] == [
        {"allow": False, "access": "rwm"},
        {"allow": True, "type": "c", "major": 231, "minor": 192, "access": "rwm"},
    ]


@pytest.mark.parametrize(
    ("namespaces", "given"),
    [
        ([{"type": "pid"}], True),
        ([{"type": "network"}], False),
        ([{"type": "network", "path": "/other"}], False),
        ([{"type": "network", "path": "/the/pods"}], True),
        (None, True),
    ],
)
def test_variables_only_with_the_pods_own_network(namespaces: Any, given: bool) -> None:
    before = spec()
    before["linux"]["namespaces"] = namespaces
    assert ("NCCL_IB_HCA==a:1" in edited(before, variables=["NCCL_IB_HCA==a:1"])["process"]["env"]) == given


def test_an_empty_value_of_the_user_wins() -> None:
    after = edited(spec(env=["NCCL_IB_HCA="]), variables=["NCCL_IB_HCA==mlx5_0:1"])
    assert after["process"]["env"] == ["NCCL_IB_HCA="]


def test_what_the_user_has_listed_is_left() -> None:
    own = {"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192, "fileMode": 384}
    read_only = {"allow": True, "type": "c", "major": 231, "minor": 192, "access": "r"}
    before = spec()
    before["linux"]["devices"] = [own]
    before["linux"]["resources"]["devices"].append(read_only)
    after = edited(before)
    assert after["linux"]["devices"] == [own]
    assert after["linux"]["resources"]["devices"] == before["linux"]["resources"]["devices"]


def test_without_devices_the_rest_is_applied() -> None:
    after = edited(spec(), nodes=())
    assert after["linux"]["devices"] == []
    assert after["process"]["rlimits"] == [UNLIMITED]


def test_a_limit_that_may_not_be_lifted_is_left() -> None:
    low = {"type": "RLIMIT_MEMLOCK", "hard": 8192, "soft": 8192}
    assert edited(spec(rlimits=[low]), memlock=False)["process"]["rlimits"] == [low]


def test_capabilities() -> None:
    buckets = {"bounding": [], "effective": ["CAP_IPC_LOCK"], "ambient": [], "permitted": None}
    after = edited(spec(capabilities=buckets))["process"]["capabilities"]
    assert after == {
        "bounding": ["CAP_IPC_LOCK"],
        "effective": ["CAP_IPC_LOCK"],
        "ambient": [],  # not inheritable, so the kernel would refuse it
        "permitted": None,
    }
    without = spec()
    del without["process"]["capabilities"]
    assert "capabilities" not in edited(without)["process"]


def test_nodes_are_read_with_their_numbers(tmp_path: Path) -> None:
    for name, major, minor, mode in (
        ("uverbs0", 231, 192, 0o666),
        ("uverbs10", 505, 7, 0o660),
        ("rdma_cm", 10, 58, 0o666),
        ("umad0", 231, 0, 0o600),
        ("issm0", 231, 64, 0o600),
        ("ucm0", 231, 224, 0o666),
    ):
        os.mknod(tmp_path / name, stat.S_IFCHR | mode, os.makedev(major, minor))
        os.chmod(tmp_path / name, mode)
    (tmp_path / "uverbs3").touch()  # no device
    (tmp_path / "by-path").mkdir()
    rows = wrapper.rdma_nodes(str(tmp_path))
    assert [(row["path"], row["major"], row["minor"], row["fileMode"]) for row in rows] == [
        ("/dev/infiniband/rdma_cm", 10, 58, 0o666),
        ("/dev/infiniband/uverbs0", 231, 192, 0o666),
        ("/dev/infiniband/uverbs10", 505, 7, 0o660),
    ]
    assert wrapper.rdma_nodes(str(tmp_path / "missing")) == []


def test_the_file_of_variables(tmp_path: Path) -> None:
    path = tmp_path / "cluster.env"
    path.write_text("# made by the pod\n\nNCCL_IB_HCA==mlx5_0:1\n#X=1\nnot a variable\n=nothing\nEMPTY=\n")
    assert wrapper.read_env(str(path)) == ["NCCL_IB_HCA==mlx5_0:1", "EMPTY="]
    assert wrapper.read_env(str(tmp_path / "missing")) == []


class Runtime:
    """The wrapper before a stand-in runtime that writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle = folder / "bundle"
        self.bundle.mkdir()
        self.behind = folder / "behind"
        self.behind.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/argv\nexit 7\n')
        self.behind.chmod(0o755)
        self.program = folder / "lium-rdma-runc"
        self.program.write_bytes(PROGRAM.read_bytes())
        self.program.chmod(0o755)
        (folder / "infiniband").mkdir()
        os.mknod(folder / "infiniband" / "uverbs0", stat.S_IFCHR | 0o666, os.makedev(231, 192))
        self.write_settings(runtime=[str(self.behind), "--site"])

    def write_settings(self, **settings: Any) -> None:
        words = settings.pop("runtime")
        values = {"device_folder": str(self.folder / "infiniband"), "env_file": "/nowhere", **settings}
        lines = [f"runtime={word}\n" for word in words] + [f"{key}={value}\n" for key, value in values.items()]
        (self.folder / "settings").write_text("# settings\n" + "".join(lines))

    def call(self, *argv: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *argv],
            env={"PATH": os.environ["PATH"], "LIUM_RDMA_RUNC_SETTINGS": f"{self.folder}/settings", **variables},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def handed_on(self) -> list[str]:
        return (self.folder / "argv").read_text().splitlines()

    @property
    def config(self) -> Path:
        return self.bundle / "config.json"


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path)


def test_create_edits_and_hands_on(runtime: Runtime) -> None:
    runtime.config.write_text(json.dumps(spec()))
    runtime.config.chmod(0o640)
    done = runtime.call("--log", "/l", "create", "--bundle", str(runtime.bundle), "id")
    assert done.returncode == 7, done.stderr
    assert runtime.handed_on == ["--site", "--log", "/l", "create", "--bundle", str(runtime.bundle), "id"]
    after = json.loads(runtime.config.read_text())
    assert [row["path"] for row in after["linux"]["devices"]] == ["/dev/infiniband/uverbs0"]
    assert stat.S_IMODE(runtime.config.stat().st_mode) == 0o640
    assert os.listdir(runtime.bundle) == ["config.json"]

    written = runtime.config.stat().st_mtime_ns
    assert runtime.call("create", "id", cwd=runtime.bundle).returncode == 7
    assert runtime.config.stat().st_mtime_ns == written


def test_other_verbs_do_not_touch_the_bundle(runtime: Runtime) -> None:
    runtime.config.write_text("not even JSON")
    done = runtime.call("delete", "--bundle", str(runtime.bundle), "id")
    assert (done.returncode, done.stderr) == (7, "")
    assert runtime.config.read_text() == "not even JSON"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"process": 1}', '{"linux": []}', "[" * 100_000, '{"process": {"env": [1]}}']
)
def test_a_broken_config_starts_as_it_is(runtime: Runtime, text: str) -> None:
    runtime.config.write_text(text)
    done = runtime.call("create", "-b", str(runtime.bundle), "id")
    assert done.returncode == 7
    assert "config.json is left as it is" in done.stderr
    assert runtime.config.read_text() == text
    assert os.listdir(runtime.bundle) == ["config.json"]


def test_a_missing_bundle_is_for_the_runtime_to_refuse(runtime: Runtime) -> None:
    assert runtime.call("create", "-b", "/nowhere", "id").returncode == 7


@pytest.mark.parametrize(
    "content", [None, b"", b"runtime=\n", b"#runtime=/nowhere\n", b"\xff\xfe", b"device_folder=/x"]
)
def test_without_usable_settings_runc_stands_behind(runtime: Runtime, content: bytes | None) -> None:
    settings = runtime.folder / "settings"
    settings.unlink()
    if content is not None:
        settings.write_bytes(content)
    runc = runtime.folder / "runc"
    runc.write_text(f"#!/bin/sh\necho runc > {runtime.folder}/argv\n")
    runc.chmod(0o755)
    done = runtime.call("state", "id", PATH=f"{runtime.folder}:{os.environ['PATH']}")
    assert runtime.handed_on == ["runc"]
    assert ("the defaults are taken" in done.stderr) == (content == b"\xff\xfe")


def test_it_never_calls_itself(runtime: Runtime) -> None:
    runc = runtime.folder / "runc"
    runc.write_text(f"#!/bin/sh\necho runc > {runtime.folder}/argv\n")
    runc.chmod(0o755)
    around = runtime.folder / "around"
    around.write_text(f'#!/bin/sh\nexec {runtime.program} "$@"\n')
    around.chmod(0o755)
    for target in (runtime.program, around):
        runtime.write_settings(runtime=[str(target)])
        done = runtime.call("state", "id", PATH=f"{runtime.folder}:{os.environ['PATH']}")
        assert (done.returncode, runtime.handed_on) == (0, ["runc"])
        assert "leads back to this program" in done.stderr


def test_a_missing_runtime_behind_is_told_where_docker_looks(runtime: Runtime) -> None:
    runtime.write_settings(runtime=["/nowhere/crun"])
    log = runtime.folder / "log.json"
    done = runtime.call("--log", str(log), "state", "id")
    assert done.returncode == 127
    assert "cannot run /nowhere/crun" in json.loads(log.read_text())["msg"]


def test_start_up_cost(runtime: Runtime) -> None:
    """Processor time, the least of several calls: what other programs of the machine do is no part of it."""
    runtime.config.write_text(json.dumps(spec()))

    def cost(*command: str) -> float:
        spent = []
        for _ in range(15):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, env={**os.environ, "LIUM_RDMA_RUNC_SETTINGS": f"{runtime.folder}/settings"})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(spent) * 1000

    bare = cost(str(runtime.behind), "state", "id")
    passed_on = cost(str(runtime.program), "state", "id") - bare
    created = cost(str(runtime.program), "create", "-b", str(runtime.bundle), "id") - bare
    print(f"over the bare runtime: {passed_on:.1f} ms passed on, {created:.1f} ms for create")
    assert passed_on <= 30
    assert created <= 30
