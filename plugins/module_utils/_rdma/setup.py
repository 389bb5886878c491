# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the role rdma has to do on a host, worked out before it does anything.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._checks.network import rails_in_one_subnet
from ansible_collections.lium.cluster.plugins.module_utils._checks.rdma_stack import (
    NEEDED_MODULES,
    RDMA_HALF,
    capable_cards,
    loaded,
)
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import parse_int
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError
from ansible_collections.lium.cluster.plugins.module_utils._ssh_route import reload_refusal


def rdma_setup(host: Host, packages: Sequence[str] = ()) -> dict[str, Any]:
    """JSON types only: family of the system, which of ``packages`` are there, modules, netdevs to set up, kernel
    settings, and what forbids a reload."""
    modules = wanted_modules(host)
    return {
        "family": "debian" if host.debian_like else "redhat",
        "kernel": host.kernel,
        "packages_installed": host.installed_packages(packages),
        "modules": modules,
        "modules_not_installed": [name for name in modules if not loaded(host, name) and not _installed(host, name)],
        "modules_loaded": _loaded(host),
        "netdevs_down": netdevs_down(host),
        "sysctls": rail_sysctls(host),
        "reload_refusal": {driver: reload_refusal(host, driver, os.getpid()) for driver in capable_cards(host)},
    }


def wanted_modules(host: Host) -> list[str]:
    """The RDMA half of each card, what verbs need, and on InfiniBand ``ib_umad`` (host-contract rdma.modules)."""
    modules = [RDMA_HALF[driver] for driver in capable_cards(host)] + list(NEEDED_MODULES)
    if any(not port.ethernet for port in host.rdma.ports):
        modules.append("ib_umad")
    if loaded(host, "nvidia") and _installed(host, "nvidia_peermem"):
        modules.append("nvidia_peermem")
    return modules


def _loaded(host: Host) -> list[str]:
    return [line.split()[0] for line in (host.probe.read_or_none("/proc/modules") or "").splitlines() if line.strip()]


def _installed(host: Host, module: str) -> bool:
    try:
        return bool(host.probe.output("modinfo", "-F", "filename", module).strip())
    except CommandError:
        return False


def netdevs_down(host: Host) -> list[str]:
    """Netdevs of RDMA devices that nobody has set up. One that is up and has no link is a matter of the cable."""
    down = []
    for device in host.rdma.devices:
        if not any(port.ethernet and not port.active for port in device.ports):
            continue
        for netdev in device.netdevs:
            flags = host.probe.read_or_none(f"/sys/class/net/{netdev}/flags")
            if flags and not parse_int(f"flags of {netdev}", flags, 16) & 1:
                down.append(netdev)
    return sorted(set(down))


def rail_sysctls(host: Host) -> dict[str, str]:
    """Settings of net.arp_multirail for rails that share a subnet; none for a host with one rail."""
    settings = {}
    for rail in rails_in_one_subnet(host):
        name = rail.replace(".", "/")  # as sysctl spells a VLAN's netdev
        settings |= {
            f"net.ipv4.conf.{name}.arp_ignore": "1",
            f"net.ipv4.conf.{name}.arp_announce": "2",
            f"net.ipv4.conf.{name}.rp_filter": "2",
        }
    return settings
