"""A Docker daemon of the test's own, with its own folders, socket and process id, and images made from files."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCKER = "/usr/bin/docker"  # the one that belongs to the dockerd of the same package
COMPOSE = "/usr/bin/docker-compose"


class Daemon:
    """`dockerd` with everything below `folder`. It is ended by its own process id, and nothing else is."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.config = folder / "daemon.json"
        self.pid_file = folder / "docker.pid"
        self.host = f"unix://{folder}/docker.sock"
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, limit_s: float = 90) -> None:
        """Starts it and waits until it answers."""
        command = ["dockerd", "--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"]
        command += [f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec", f"--host={self.host}"]
        command += [f"--pidfile={self.pid_file}", f"--config-file={self.config}"]
        with open(self.folder / "dockerd.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environ)
        deadline = time.monotonic() + limit_s
        while self.docker("version", check=False).returncode != 0:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.2)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)
            self._process = None
        # Docker leaves the network namespace of `--network host` mounted.
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", mount], check=True)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return (self.folder / "dockerd.log").read_text(errors="replace")[-4000:]

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [DOCKER, "--host", self.host, *arguments],
            env={**self._environ, "DOCKER_CONFIG": str(self.folder / "client")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}{self.log}"
        return done

    def run(self, *arguments: str) -> str:
        """Output of a container that must end well."""
        return self.docker("run", "--rm", *arguments).stdout

    def compose(self, file: Path, service: str) -> str:
        """Output of a service's container, which must end well."""
        done = subprocess.run(
            [COMPOSE, "--file", str(file), "run", "--rm", "-T", service],
            env={**self._environ, "DOCKER_HOST": self.host, "DOCKER_CONFIG": str(self.folder / "client")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{service}: {done.stderr}{self.log}"
        return done.stdout

    @property
    def info(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.docker("info", "--format", "{{json .}}").stdout)
        return answer


def busybox_files(busybox: str) -> bytes:
    """The files of an image with the static busybox of the machine and nothing else, for `docker import`."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder in ("bin", "tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "ls", "cat", "env", "sleep", "mknod"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return content.getvalue()


def busybox_image(daemon: Daemon, busybox: str) -> str:
    """The image of these files."""
    path = daemon.folder / "busybox.tar"
    path.write_bytes(busybox_files(busybox))
    daemon.docker("import", str(path), "lium-test")
    return "lium-test"
