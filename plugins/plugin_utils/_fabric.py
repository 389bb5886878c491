# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What only shows between hosts: two claims to one address, two MTUs in one segment, a split fabric.

Works on the facts that `host_info` and `rdma_info` return, so nothing more is asked of the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Check
from ansible_collections.lium.cluster.plugins.module_utils._checks.network import MTU
from ansible_collections.lium.cluster.plugins.module_utils._checks.ports import PREFIX, UNIQUE
from ansible_collections.lium.cluster.plugins.module_utils._checks.rdma_stack import NAMING, naming_style
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.plugin_utils._cabling import compare_cabling
from ansible_collections.lium.cluster.plugins.plugin_utils._lossless_fabric import compare_lossless

Facts = Mapping[str, Mapping[str, Any]]
Found = dict[str, list[Record]]

_SOURCE = "facts of all hosts of the play"

GROUP = Check(
    id="fabric.group",
    title="Hosts that the platform will take for one fabric",
    severity="info",
    expected="two or more hosts",
    why="a cluster needs at least two machines of one fabric",
    source=_SOURCE,
)
HETEROGENEOUS = Check(
    id="cluster.heterogeneous",
    title="One GPU model and count in the fabric",
    severity="degraded",
    expected="the same GPUs in every host",
    why="a cluster has one GPU model and one count per node, so other hosts make another, smaller offer",
    source=_SOURCE,
)
NOT_WHOLE = Check(
    id="cluster.not_whole",
    title="All GPUs of the host are seen",
    severity="blocker",
    expected="as many GPUs at the driver as on PCIe",
    why="the platform takes it for a part of a host, whose pods get no RDMA device",
    source="/proc/driver/nvidia/gpus, /sys/bus/pci/devices",
)
SAME_SM = Check(
    id="ib.different_fabric",
    title="One subnet manager",
    severity="blocker",
    expected="one subnet manager, by its GUID, for all hosts with one subnet manager LID",
    why="the platform groups by the subnet manager; hosts of two fabrics would be sold as one and never connect",
    source="sminfo",
)
PKEY = Check(
    id="ib.pkey",
    title="Full members of the partition",
    severity="blocker",
    expected="P_Key 0xffff",
    why="two limited members cannot talk to each other",
    source="/sys/class/infiniband/*/ports/*/pkeys/0",
)


def compare_hosts(facts: Facts) -> Found:
    """Records of the comparison, by host. A host whose facts could not be read is compared with nobody."""
    known = {host: values for host, values in facts.items() if "rdma" in values}
    found: Found = {host: [] for host in facts}
    comparisons: tuple[Callable[[Facts], Iterable[tuple[str, Record]]], ...] = (
        _groups,
        _duplicate_addresses,
        _split_prefixes,
        _mtus,
        _not_whole,
        _gpus,
        _names,
        _subnet_managers,
        _partition_keys,
        _lossless,
        _cabling,
    )
    for comparison in comparisons:
        for host, record in comparison(known):
            found[host].append(record)
    return found


def _segments(facts: Facts) -> dict[str, list[str]]:
    """Segment -> hosts that stand in it alone, which are the ones that the platform groups (P5)."""
    segments: dict[str, list[str]] = {}
    for host, values in facts.items():
        mine = values["rdma"].get("segments", [])
        if values["rdma"].get("kind") == "roce" and len(mine) == 1:
            segments.setdefault(mine[0], []).append(host)
    return segments


def _infiniband(facts: Facts) -> dict[str, list[str]]:
    """Subnet manager LID -> hosts that report it."""
    fabrics: dict[str, list[str]] = {}
    for host, values in facts.items():
        if values["rdma"].get("kind") == "infiniband":
            for lid in sorted({port["sm_lid"] for port in _infiniband_ports(values)}):
                fabrics.setdefault(lid, []).append(host)
    return fabrics


def _infiniband_ports(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ports = values["rdma"].get("ports", [])
    return [port for port in ports if port["link_layer"] == "InfiniBand" and port["state"].endswith(": ACTIVE")]


def groups_of(facts: Facts) -> dict[str, list[str]]:
    """Fabric -> hosts, as the platform will group them (P5, P9). A host without facts of its ports is in none."""
    known = {host: values for host, values in facts.items() if "rdma" in values}
    groups = {f"segment {name}": hosts for name, hosts in _segments(known).items()}
    return groups | {f"subnet manager {name}": hosts for name, hosts in _infiniband(known).items()}


def _groups(facts: Facts) -> Iterable[tuple[str, Record]]:
    for name, hosts in groups_of(facts).items():
        for host in hosts:
            if len(hosts) > 1:
                yield host, GROUP.ok(f"{name}: {', '.join(hosts)}")
            else:
                yield (
                    host,
                    GROUP.warn(
                        f"{name}: {host} alone", "Bring a second host into the same fabric, or look at both in one run"
                    ),
                )


def _duplicate_addresses(facts: Facts) -> Iterable[tuple[str, Record]]:
    claims: dict[str, list[str]] = {}
    for host, values in facts.items():
        for address in set(values["rdma"].get("roce_addresses", [])):
            claims.setdefault(address, []).append(host)
    for address, hosts in claims.items():
        if len(hosts) > 1:
            for host in hosts:
                yield (
                    host,
                    UNIQUE.must_fix(
                        f"roce.duplicate_address: {address} on {', '.join(hosts)}",
                        "Give each host an address of its own; the platform drops all of them",
                        source=_SOURCE,
                    ),
                )


def _split_prefixes(facts: Facts) -> Iterable[tuple[str, Record]]:
    networks: dict[str, dict[str, set[str]]] = {}
    for host, values in facts.items():
        fabric = set(values["rdma"].get("roce_addresses", []))
        for row in values.get("addresses", []):
            if row["address"] in fabric and row["prefix_length"] < 24:
                network = str(ipaddress.IPv4Network(f"{row['address']}/{row['prefix_length']}", strict=False))
                segment = str(ipaddress.IPv4Network(f"{row['address']}/24", strict=False))
                networks.setdefault(network, {}).setdefault(segment, set()).add(host)
    for network, segments in networks.items():
        if len(segments) > 1:
            parts = "; ".join(f"{segment}: {', '.join(sorted(hosts))}" for segment, hosts in sorted(segments.items()))
            for host in sorted(set().union(*segments.values())):
                yield (
                    host,
                    PREFIX.warn(
                        f"roce.prefix_split: the platform will split {network} into {len(segments)} ({parts})",
                        "Give all hosts of the fabric addresses of one /24",
                        source=_SOURCE,
                    ),
                )


def _mtus(facts: Facts) -> Iterable[tuple[str, Record]]:
    for segment, hosts in _segments(facts).items():
        mtus = {host: sorted(set(facts[host]["rdma"].get("netdev_mtu", {}).values())) for host in hosts}
        if len({value for values in mtus.values() for value in values}) > 1:
            parts = ", ".join(f"{host} {'/'.join(map(str, values))}" for host, values in mtus.items())
            for host in hosts:
                yield (
                    host,
                    MTU.must_fix(
                        f"two MTUs in {segment}: {parts}",
                        "Set one MTU (9000, at least 4200) on every host and the switch, when no rental runs",
                        source=_SOURCE,
                    ),
                )


def _not_whole(facts: Facts) -> Iterable[tuple[str, Record]]:
    for host, values in facts.items():
        gpus = values.get("gpus", {})
        seen, installed = gpus.get("count", 0), gpus.get("installed", 0)
        if seen < installed:
            yield (
                host,
                NOT_WHOLE.must_fix(
                    f"{seen} of {installed} GPUs",
                    "Install NVIDIA's driver where it sees none; else look for NVRM in `dmesg` (Xid 79 is a GPU that"
                    " fell off the bus) and reseat or replace it",
                ),
            )


def _gpus(facts: Facts) -> Iterable[tuple[str, Record]]:
    for name, hosts in {**_segments(facts), **_infiniband(facts)}.items():
        kinds = {host: _gpu_text(facts[host]) for host in hosts}
        if len(hosts) > 1 and len(set(kinds.values())) > 1:
            parts = ", ".join(f"{host}: {kind}" for host, kind in kinds.items())
            for host in hosts:
                yield (
                    host,
                    HETEROGENEOUS.warn(
                        f"{name}: {parts}", "Expect one offer for each kind; put hosts of one kind into one fabric"
                    ),
                )


def _gpu_text(values: Mapping[str, Any]) -> str:
    gpus = values.get("gpus", {})
    return f"{gpus.get('count', 0)} x {'/'.join(gpus.get('models', [])) or 'no GPU'}"


def _names(facts: Facts) -> Iterable[tuple[str, Record]]:
    """One style in a fabric; cards of another driver have names of their own."""
    for fabric, hosts in {**_segments(facts), **_infiniband(facts)}.items():
        styles: dict[str, dict[str, set[str]]] = {}
        for host in hosts:
            for device in facts[host]["rdma"].get("devices", []):
                by_style = styles.setdefault(str(device["driver"]), {})
                by_style.setdefault(naming_style(device["name"]), set()).add(host)
        for driver, by_style in styles.items():
            if len(by_style) > 1:
                parts = "; ".join(f"{style}*: {', '.join(sorted(names))}" for style, names in sorted(by_style.items()))
                for host in sorted(set().union(*by_style.values())):
                    yield (
                        host,
                        NAMING.warn(
                            f"{fabric}: {driver} is named in {len(by_style)} ways ({parts})",
                            "Give the devices names of one style on all hosts of the fabric, with"
                            " /etc/udev/rules.d/60-rdma-persistent-naming.rules (NAME_KERNEL or NAME_PCI)",
                            source=_SOURCE,
                        ),
                    )


def _subnet_managers(facts: Facts) -> Iterable[tuple[str, Record]]:
    for lid, hosts in _infiniband(facts).items():
        guids: dict[str, list[str]] = {}
        for host in hosts:
            guid = facts[host]["rdma"].get("sm_guids", {}).get(lid)
            if guid:
                guids.setdefault(guid, []).append(host)
        if len(guids) > 1:
            parts = "; ".join(f"{guid}: {', '.join(names)}" for guid, names in guids.items())
            for names in guids.values():
                for host in names:
                    yield (
                        host,
                        SAME_SM.must_fix(
                            f"subnet manager LID {lid} stands for {len(guids)} fabrics ({parts})",
                            "Sell the fabrics under separate accounts, or give their subnet managers different LIDs",
                        ),
                    )


def _partition_keys(facts: Facts) -> Iterable[tuple[str, Record]]:
    for hosts in _infiniband(facts).values():
        limited = [host for host in hosts if any(port["pkey"] == "0x7fff" for port in _infiniband_ports(facts[host]))]
        if len(limited) > 1:
            for host in limited:
                yield (
                    host,
                    PKEY.must_fix(
                        f"limited members: {', '.join(limited)}",
                        "Make the hosts full members in the subnet manager's partitions",
                    ),
                )


def _lossless(facts: Facts) -> Iterable[tuple[str, Record]]:
    return compare_lossless(_segments(facts), facts)


def _cabling(facts: Facts) -> Iterable[tuple[str, Record]]:
    return compare_cabling(_segments(facts), facts)
