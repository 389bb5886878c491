# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""All checks of one host in the order of the host contract.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Section, evaluate, skip_all
from ansible_collections.lium.cluster.plugins.module_utils._checks import (
    executor,
    network,
    pcie,
    platform,
    ports,
    rdma_stack,
)
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._facts import Reader, host_facts
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe
from ansible_collections.lium.cluster.plugins.module_utils._rdma.setup import rdma_setup

_PLATFORM, _STACK = "platform", "rdma stack"
RDMA_SECTIONS = (
    Section(_STACK, rdma_stack.CHECKS, needs=(_PLATFORM,)),
    Section("fabric ports", ports.CHECKS, needs=(_PLATFORM, _STACK)),
)
SECTIONS = (
    Section(_PLATFORM, platform.CHECKS),
    *RDMA_SECTIONS,
    Section("network", network.CHECKS, needs=(_PLATFORM, _STACK)),
    Section("pcie and memory", pcie.CHECKS, needs=(_PLATFORM,)),
    Section("docker and executor", executor.CHECKS, needs=(_PLATFORM,)),
)


def look(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Records and facts of one host; never raises for what a host shows."""
    return _look(probe, SECTIONS, {})


def look_at_rdma(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Sections B and C only, as the role rdma needs them. ``packages`` are those that it may install."""
    packages = options.get("packages") or ()
    return _look(probe, RDMA_SECTIONS, {"rdma_setup": lambda host: rdma_setup(host, packages)})


def _look(probe: HostProbe, sections: tuple[Section[Host], ...], extra: Mapping[str, Reader]) -> Look:
    confidential = confidential_vm_host(probe)
    if confidential:
        return Look(skip_all(sections, confidential), {"kept_out": confidential})
    host = Host(probe)
    return Look(evaluate(sections, host), host_facts(host, extra))
