# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Where a probe's WireGuard interfaces live: in a container that publishes the port as a pod does, or on the host.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

CONTAINER = "lium_wg_probe"
IMAGE = "lium-wg-probe:local"
RENTAL_NETWORK = "lium-rentals"
#: Names of the probe's own interfaces: receivers are numbered, the sender is one.
SENDER, RECEIVER = "lium-wgs", "lium-wgr"


class SetupError(Exception):
    """The probe cannot be set up on this host; the text says why."""


class Place(NamedTuple):
    """``pid`` is a process of the container, or None for the host's own namespace."""

    path: str
    pid: int | None

    def command(self, *argv: str) -> list[str]:
        return list(argv) if self.pid is None else ["nsenter", f"--net=/proc/{self.pid}/ns/net", *argv]


def run(argv: Sequence[str], stdin: str | None = None, timeout: float = 300.0) -> str:
    """Output of a command that must succeed; SetupError tells its complaint. Keys go by stdin only."""
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError as exc:
        raise SetupError(f"{argv[0]} is not installed") from exc
    except subprocess.TimeoutExpired as exc:
        raise SetupError(f"{' '.join(argv)}: no answer within {timeout:g} s") from exc
    if done.returncode != 0:
        raise SetupError(f"{' '.join(argv)}: {_complaint(done.stderr, done.stdout) or f'exit code {done.returncode}'}")
    return done.stdout


def _complaint(stderr: str, stdout: str) -> str:
    """The line that says what is wrong: Docker says it between a container's id and a word on its help."""
    lines = [line.strip() for line in f"{stderr}\n{stdout}".splitlines() if line.strip()]
    last = [line.strip() for line in (stderr or stdout).splitlines() if line.strip()][-1:]
    return next((line for line in lines if "error" in line.lower()), "".join(last))


def try_run(*argv: str) -> bool:
    """Whether a command succeeded, for clean-up, where what is not there is as good as removed."""
    try:
        run(argv)
    except SetupError:
        return False
    return True


def open_place(docker: bool, publish: Sequence[tuple[int, int]], lifetime: int) -> Place:
    """Starts the container that publishes host ports as a pod would, or answers with the host itself.

    The container holds nothing but a `sleep`: it ends by itself after ``lifetime`` seconds whatever happens, and the
    interfaces that are put into it end with it. Its image is an empty one over the host's own /usr, so that no
    registry is needed.
    """
    if not docker:
        return Place("host", None)
    if not try_run("docker", "image", "inspect", IMAGE):
        _import_image()
    network = RENTAL_NETWORK if try_run("docker", "network", "inspect", RENTAL_NETWORK) else "bridge"
    ports = [word for host, container in publish for word in ("--publish", f"{host}:{container}/udp")]
    options = ["--detach", "--rm", "--name", CONTAINER, "--runtime", "runc", "--network", network, *ports]
    run(["docker", "run", *options, "--volume", "/usr:/usr:ro", IMAGE, "/usr/bin/sleep", str(lifetime)])
    pid = int(run(["docker", "inspect", "--format", "{{.State.Pid}}", CONTAINER]).strip() or 0)
    if pid <= 0:
        raise SetupError("the probe's container ended at once")
    return Place("docker-publish", pid)


def _import_image() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("usr", "proc", "sys", "dev", "etc", "run", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name in ("bin", "sbin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
    done = subprocess.run(
        ["docker", "import", "-", IMAGE], input=buffer.getvalue(), capture_output=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"docker import: {done.stderr.decode(errors='replace').strip()}")


def close_place(docker: bool) -> None:
    """Takes everything away that a probe may have left on this host, also one that was killed."""
    if docker:
        try_run("docker", "rm", "--force", CONTAINER)
        try_run("docker", "image", "rm", "--force", IMAGE)
    for name in os.listdir("/sys/class/net"):
        if name == SENDER or name.startswith(RECEIVER):
            try_run("ip", "link", "delete", name)


def add_interface(place: Place, name: str, address: str, listen_port: int | None) -> str:
    """Makes a WireGuard interface with a key of its own, made here and never written down. Answers its public key."""
    key = run(["wg", "genkey"])
    run(place.command("ip", "link", "add", name, "type", "wireguard"))
    port = ["listen-port", str(listen_port)] if listen_port else []
    run(place.command("wg", "set", name, "private-key", "/dev/stdin", *port), stdin=key)
    run(place.command("ip", "address", "add", f"{address}/32", "dev", name))
    run(place.command("ip", "link", "set", name, "up"))
    return run(["wg", "pubkey"], stdin=key).strip()


def add_peer(place: Place, name: str, key: str, allowed: str, endpoint: str | None) -> None:
    """Adds a peer and the route to it. Without an endpoint the interface can only wait for the peer to call."""
    where = ["endpoint", endpoint] if endpoint else []
    run(place.command("wg", "set", name, "peer", key, "allowed-ips", f"{allowed}/32", *where))
    run(place.command("ip", "route", "replace", f"{allowed}/32", "dev", name))


def remove_peer(place: Place, name: str, key: str) -> None:
    try_run(*place.command("wg", "set", name, "peer", key, "remove"))
