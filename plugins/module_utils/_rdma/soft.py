# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Soft-RoCE devices, for racks of virtual hosts. Real hosts have cards.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.lium.cluster.plugins.module_utils._kmod import explain_modprobe
from ansible_collections.lium.cluster.plugins.module_utils._parsers.rdma_tool import Link


class SoftRoceError(Exception):
    """The device cannot be made as asked for; the text says why and what to do."""


def needs_change(links: Sequence[Link], device: str, netdev: str) -> bool:
    """Whether the device has to be added. One of that name on another netdev is never moved."""
    for link in links:
        if link.device == device:
            if link.netdev == netdev:
                return False
            raise SoftRoceError(
                f"{device} stands on {link.netdev} already, not on {netdev}: remove it (`rdma link delete {device}`) or"
                " give this one another name"
            )
        if link.netdev == netdev:
            raise SoftRoceError(f"{netdev} carries {link.device} already; a netdev takes one soft device")
    return True


def explain_add(device: str, netdev: str, stderr: str) -> str:
    """What a failed ``rdma link add`` or ``modprobe rdma_rxe`` means."""
    if "Unknown link command" in stderr or "Unknown object" in stderr:
        return "iproute2 too old, needs `rdma link add`: install a newer iproute2"
    if "File exists" in stderr:
        return f"{device} is there already, or {netdev} carries another soft device: see `rdma link`"
    if "No such device" in stderr:
        return f"{netdev}: no such netdev on this host"
    if "modprobe" in stderr:
        return explain_modprobe("rdma_rxe", stderr)
    return f"{device} on {netdev}: {stderr.strip() or 'no message'}"
