"""Debian packages: what this machine needs to run a rack, what its hosts start with, what roles may install there."""

from __future__ import annotations

import os
import subprocess

from tests.rack.errors import RackError
from tools import system

#: What this machine needs to run a rack. None of it goes into a host.
OWN_PACKAGES: tuple[str, ...] = (
    "apt-utils",
    "busybox-static",
    "cpio",
    "e2fsprogs",
    "iproute2",
    "kmod",
    "mmdebstrap",
    "nftables",
    "openssh-client",
    "qemu-system-x86",
    "qemu-utils",
)

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
    ("iptables-persistent",),
    ("curl", "jq", "gnupg", "acl", "busybox-static"),
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


def why_not() -> str | None:
    """What keeps this machine from running a rack, or None; missing packages are installed first, saying so."""
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return f"virtual hosts need Linux on x86_64; this is {os.uname().sysname} on {os.uname().machine}"
    if os.geteuid() != 0:
        return "virtual hosts need root, for network namespaces and tap devices; run this as root or under sudo"
    if not os.path.exists("/dev/net/tun"):
        return "virtual hosts need /dev/net/tun; load the module tun, or start this container with that device"
    return system.ensure(OWN_PACKAGES)


def ensure() -> None:
    """Raise `RackError` with the answer of `why_not`, if there is one."""
    obstacle = why_not()
    if obstacle is not None:
        raise RackError(obstacle)


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
