"""Debian packages: what this machine needs to run a rack, what its hosts start with, what roles may install there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

from tests.rack.errors import RackError

Say = Callable[[str], None]

#: Program -> Debian package that brings it. All of them run on this machine, never in a host.
TOOLS: dict[str, str] = {
    "apt-ftparchive": "apt-utils",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "ip": "iproute2",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
}

#: What a bare host has: a Debian server with SSH, and the Python that Ansible needs.
HOST_PACKAGES: tuple[str, ...] = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iputils-ping",
    "kmod",
    "linux-image-amd64",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "sudo",
    "systemd-sysv",
    "udev",
)

#: What a host can install from the package source in its image. One group at a time is resolved, because members of
#: different groups may exclude each other (two time daemons, say). The matrix is host-contract 1.B.
ROLE_PACKAGES: tuple[tuple[str, ...], ...] = (
    ("rdma-core", "ibverbs-providers", "ibverbs-utils", "librdmacm1", "rdmacm-utils", "infiniband-diags", "perftest"),
    ("mstflint", "opensm", "ethtool", "pciutils", "numactl", "mokutil"),
    ("wireguard-tools", "conntrack", "iputils-arping", "socat", "tcpdump", "iperf3", "netcat-openbsd"),
    ("nftables", "iptables"),
    ("ufw",),
    ("firewalld",),
    ("lldpad",),
    ("lldpd",),
    ("docker.io",),
    ("chrony",),
    ("systemd-timesyncd",),
    ("curl", "jq", "gnupg", "acl"),
)

#: What the `full` hosts have installed already: a host as `onboard` leaves it, for tests that start from there.
FULL_PACKAGES: tuple[str, ...] = (
    "conntrack",
    "docker.io",
    "ethtool",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "iptables",
    "lldpd",
    "nftables",
    "numactl",
    "pciutils",
    "perftest",
    "rdma-core",
    "rdmacm-utils",
    "wireguard-tools",
)


def missing_tools() -> dict[str, str]:
    """The entries of `TOOLS` that this machine lacks."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return {tool: package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None}


def why_not() -> str | None:
    """What keeps this machine from running a rack, or None. Changes nothing; root can install missing packages."""
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return f"virtual hosts need Linux on x86_64; this is {os.uname().sysname} on {os.uname().machine}"
    if os.geteuid() != 0:
        return "virtual hosts need root (network namespaces, tap devices); run as root or under sudo"
    if not os.path.exists("/dev/net/tun"):
        return "virtual hosts need /dev/net/tun; load the module tun, or start this container with that device"
    missing = missing_tools()
    if missing and shutil.which("apt-get") is None:
        return f"virtual hosts need {', '.join(sorted(missing))}, and there is no apt-get here to install them with"
    return None


def ensure_tools(say: Say) -> None:
    """Install what `TOOLS` names and this machine lacks, saying so; raise `RackError` where that is not possible."""
    obstacle = why_not()
    if obstacle is not None:
        raise RackError(obstacle)
    missing = missing_tools()
    if not missing:
        return
    packages = sorted(set(missing.values()))
    say(f"installing {' '.join(packages)} with apt-get (for {', '.join(sorted(missing))})")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *arguments], env=environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RackError(f"apt-get {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-2000:].strip()}")
    still = missing_tools()
    if still:
        raise RackError(f"after installing {' '.join(packages)} these programs are still missing: {', '.join(still)}")


def package_sources() -> list[str]:
    """The `deb` lines for the hosts' Debian, read from this machine's own apt configuration.

    Raises `RackError` where that names no Debian archive (host images are Debian; other distributions differ too much).
    """
    listing = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    lines: list[str] = []
    for row in listing.stdout.splitlines():
        origin, uri, release, component = row.split("|")
        line = f"deb {uri} {release} {component}"
        if origin == "Debian" and component == "main" and line not in lines:
            lines.append(line)
    if not lines:
        raise RackError(
            "host images are made from Debian packages, and this machine's apt configuration names no Debian archive; "
            "add one (component main) and run apt-get update"
        )
    return lines


def suite(sources: list[str]) -> str:
    """The release that host images are made of, such as `bookworm`: the shortest release name among the sources."""
    return min((line.split()[2] for line in sources), key=len)
