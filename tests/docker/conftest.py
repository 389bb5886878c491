"""A real dockerd and runc, with the wrapper runtime between them and device nodes that the test has made."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docker.daemon import Daemon, busybox_image
from tests.support.role_files import ROLES

NODES = {"uverbs0": (231, 192), "uverbs1": (505, 7), "rdma_cm": (10, 58), "umad0": (231, 0), "issm0": (231, 64)}


class Site:
    """One host: its daemon, the wrapper with its settings, and its device folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = folder / "infiniband"
        self.variables = folder / "cluster.env"
        self.wrapper = folder / "lium-rdma-runc"
        self.settings = folder / "etc" / "rdma-runc.conf"
        self.wrapper.write_bytes((ROLES / "runtime_hook" / "files" / "lium_rdma_runc.py").read_bytes())
        self.wrapper.chmod(0o755)
        self.variables.write_text("NCCL_IB_HCA==mlx5_0:1\nNCCL_IB_GID_INDEX=3\n")
        self.settings.parent.mkdir()
        self.daemon = Daemon(folder, {**os.environ, "LIUM_RDMA_RUNC_SETTINGS": str(self.settings)})
        self.make_nodes()
        self.write_settings("runc")

    def make_nodes(self) -> None:
        self.devices.mkdir()
        for name, numbers in NODES.items():
            os.mknod(self.devices / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
            os.chmod(self.devices / name, 0o666)

    def write_settings(self, *runtime: str) -> None:
        lines = [f"runtime={word}\n" for word in runtime]
        self.settings.write_text(f"device_folder={self.devices}\nenv_file={self.variables}\n" + "".join(lines))

    def write_daemon_json(self, **settings: Any) -> str:
        text = json.dumps(settings, indent=2) + "\n"
        self.daemon.config.write_text(text)
        return text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A host with the wrapper as its default runtime, as in a pod."""
    yield from _site(tmp_path_factory.mktemp("docker"), hooked=True)


@pytest.fixture
def bare_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A host of the test's own whose Docker knows nothing of the wrapper yet."""
    yield from _site(tmp_path_factory.mktemp("bare"), hooked=False)


def _site(folder: Path, *, hooked: bool) -> Iterator[Site]:
    made = Site(folder)
    if hooked:
        made.write_daemon_json(
            **{"runtimes": {"lium-rdma": {"path": str(made.wrapper)}}, "default-runtime": "lium-rdma"}
        )
    else:
        made.write_daemon_json(**{"log-driver": "json-file"})
    try:
        made.daemon.start()
        busybox_image(made.daemon, shutil.which("busybox") or "busybox")
        yield made
    finally:
        made.daemon.stop()
