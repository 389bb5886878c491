# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the report needs of each host to compare the hosts of a fabric with each other. JSON types only.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, ProbeError

#: One part of the facts, read from a host.
Reader = Callable[[Host], Any]


def host_facts(host: Host, extra: Mapping[str, Reader] | None = None) -> dict[str, Any]:
    """The facts, with ``unreadable`` saying why a part is missing. A part that could not be read is left out."""
    facts: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    readers: dict[str, Reader] = {"rdma": _rdma, "addresses": _addresses, "gpus": _gpus, "occupancy": _occupancy}
    for name, read in {**readers, **(extra or {})}.items():
        try:
            facts[name] = read(host)
        except (ProbeError, ParseError) as exc:
            unreadable[name] = str(exc)
    if unreadable:
        facts["unreadable"] = unreadable
    return facts


def _rdma(host: Host) -> dict[str, Any]:
    view = host.view
    return {
        "absence": host.rdma.absence,
        "kind": view.kind,
        "ports": [
            {
                "device": port.device,
                "port": port.number,
                "state": port.state,
                "phys_state": port.phys_state,
                "link_layer": port.link_layer,
                "rate": port.rate,
                "sm_lid": port.sm_lid,
                "pkey": port.pkey,
                "gids": [
                    {"index": gid.index, "gid": gid.value, "type": gid.type, "netdev": gid.netdev} for gid in port.gids
                ],
            }
            for port in host.rdma.ports
        ],
        "devices": [
            {
                "name": device.name,
                "driver": device.driver,
                "firmware": device.firmware,
                "pci": device.pci,
                "numa_node": device.numa_node,
                "netdevs": list(device.netdevs),
            }
            for device in host.rdma.devices
        ],
        "rails": [
            {"device": rail.device, "port": rail.port, "gid_index": rail.gid_index, "address": rail.address}
            for rail in view.rails
        ],
        "segments": list(view.segments),
        "roce_addresses": list(view.addresses),
        "nccl_ib_hca": view.nccl_ib_hca,
        "nccl_ib_gid_index": view.nccl_ib_gid_index,
        "sm_guids": _sm_guids(host),
        "netdev_mtu": {netdev: host.netdev_mtu(netdev) for netdev in host.fabric_netdevs},
    }


def _sm_guids(host: Host) -> dict[str, str]:
    """Subnet manager LID -> GUID of its port, where ``sminfo`` is there and answers (host-contract 3.5)."""
    guids = {}
    for port in host.view.infiniband_ports:
        try:
            text = host.probe.output("sminfo", "-C", port.device, "-P", str(port.number))
        except CommandError:
            continue  # needs root and ib_umad; the LID alone then stands for the fabric
        match = re.search(r"sm guid (0x[0-9a-f]{1,16})", text)
        if match:
            guids[port.sm_lid] = match.group(1)
    return guids


def _addresses(host: Host) -> list[dict[str, Any]]:
    return [
        {"netdev": row.netdev, "address": row.address, "prefix_length": row.prefix_length, "scope": row.scope}
        for row in host.addresses
    ]


def _gpus(host: Host) -> dict[str, Any]:
    """Model and number of GPUs as the driver lists them, and how many are installed, seen by the driver or not."""
    folder = "/proc/driver/nvidia/gpus"
    models = []
    for gpu in host.probe.entries_or_none(folder) or []:
        text = host.probe.read(f"{folder}/{gpu}/information")
        models.append(
            next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Model:")), "unknown")
        )
    return {"count": len(models), "models": sorted(set(models)), "installed": len(host.gpus_installed)}


def _occupancy(host: Host) -> dict[str, Any]:
    return {
        "rented": host.occupancy.rented,
        "rentals": list(host.occupancy.rentals),
        "measuring": host.occupancy.measuring,
    }
