# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section D of the host contract: MTU, ARP with several rails, pause frames.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._checks.ports import fabric_prefixes, network_of
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ethtool_pause
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import INFINIBAND, NONE, ROCE
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: RoCE path MTU in bytes, largest first; each packet also carries headers (host-contract net.mtu).
_PATH_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 104

MTU = Check(
    id="net.mtu",
    title="MTU of the fabric",
    severity="degraded",
    expected="active MTU 4096 (netdev MTU 4200 or more), the same on all hosts of the segment",
    why="a small MTU costs about 5 % of the bandwidth; two different ones make jobs hang",
    source="/sys/class/net/*/mtu, ibv_devinfo",
)
ARP = Check(
    id="net.arp_multirail",
    title="ARP answers of several rails in one subnet",
    severity="degraded",
    expected="arp_ignore 1 or 2, arp_announce 2, rp_filter 0 or 2 on every rail",
    why="otherwise a peer learns one rail's hardware address for another rail's IP and the pair fails at random",
    source="/proc/sys/net/ipv4/conf",
)
PAUSE = Check(
    id="net.global_pause",
    title="Link-level pause frames",
    severity="degraded",
    expected="RX off and TX off, as PFC and global pause exclude each other",
    why="global pause stops all traffic of the port and takes bandwidth from every job",
    source="ethtool -a",
)


def active_mtu(netdev_mtu: int) -> int:
    """The path MTU that the kernel derives from a netdev's: 1500 gives 1024, 4200 and more give 4096."""
    return next((mtu for mtu in _PATH_MTUS if mtu + _ROCE_HEADERS <= netdev_mtu), 256)


def mtu(host: Host) -> Record:
    if host.view.kind == NONE:
        return MTU.skipped("no active RDMA port")
    if host.view.kind == INFINIBAND:
        wanted = {port.name for port in host.view.infiniband_ports}
        seen = {f"{port.device}:{port.number}": port.active_mtu for port in (host.verbs.ports if host.verbs else ())}
        mtus = {name: seen[name] for name in sorted(wanted) if seen.get(name)}
        if not mtus:
            return MTU.skipped("active MTU of InfiniBand ports is shown by ibv_devinfo only")
        observed = ", ".join(f"{name} active MTU {value}" for name, value in mtus.items())
        if min(value for value in mtus.values() if value) < 4096:
            return MTU.warn(observed, "Set the MTU of the partition to 4096 at the subnet manager")
        return MTU.ok(observed)
    netdevs = {name: host.netdev_mtu(name) for name in host.fabric_netdevs}
    if not netdevs:
        return MTU.unknown("the RoCE ports name no netdev")
    observed = ", ".join(f"{name} {value} (active MTU {active_mtu(value)})" for name, value in netdevs.items())
    if len(set(netdevs.values())) > 1:
        return MTU.must_fix(observed, "Give all rails one MTU, the same as on the other hosts and the switch")
    if active_mtu(min(netdevs.values())) < 4096:
        return MTU.warn(
            observed,
            f"Set MTU 9000 (at least 4200) on {', '.join(netdevs)} and on the switch, in the host's own network"
            " set-up, when no rental runs",
        )
    return MTU.ok(observed)


def rails_in_one_subnet(host: Host) -> list[str]:
    """Netdevs with a fabric address that share their subnet with another one."""
    prefixes = fabric_prefixes(host)
    subnets: dict[str, set[str]] = {}
    for row in host.addresses:
        if row.address in prefixes:
            subnets.setdefault(network_of(row.address, row.prefix_length), set()).add(row.netdev)
    return sorted({netdev for netdevs in subnets.values() if len(netdevs) > 1 for netdev in netdevs})


def arp_multirail(host: Host) -> Record:
    if host.view.kind != ROCE:
        return ARP.skipped(f"no RoCE host (fabric kind {host.view.kind})")
    rails = rails_in_one_subnet(host)
    if not rails:
        return ARP.ok("no two rails in one subnet")
    wrong = []
    for rail in rails:
        # The kernel takes the larger of "all" and the netdev's own value.
        values = {
            key: max(_sysctl(host, "all", key), _sysctl(host, rail, key))
            for key in ("arp_ignore", "arp_announce", "rp_filter")
        }
        good = values["arp_ignore"] in (1, 2) and values["arp_announce"] == 2 and values["rp_filter"] in (0, 2)
        if not good:
            wrong.append(f"{rail}: " + " ".join(f"{key}={value}" for key, value in values.items()))
    if wrong:
        return ARP.warn(
            "; ".join(wrong),
            f"Set net.ipv4.conf.RAIL.arp_ignore=1, arp_announce=2 and rp_filter=2 for {', '.join(rails)} (the role rdma"
            " does), and a source route table for each rail",
        )
    return ARP.ok(", ".join(rails))


def _sysctl(host: Host, netdev: str, key: str) -> int:
    # A VLAN netdev "eth0.100" is one folder below conf; only the sysctl tool spells it otherwise.
    path = f"/proc/sys/net/ipv4/conf/{netdev}/{key}"
    return parse_int(path, host.probe.read(path))


def global_pause(host: Host) -> Record:
    if host.view.kind != ROCE:
        return PAUSE.skipped(f"no RoCE host (fabric kind {host.view.kind})")
    on, seen = [], []
    for netdev in host.fabric_netdevs:
        pause = parse_ethtool_pause(host.probe.run("ethtool", "-a", netdev))
        if pause.supported:
            seen.append(f"{netdev} RX {'on' if pause.rx else 'off'} TX {'on' if pause.tx else 'off'}")
            if pause.rx or pause.tx:
                on.append(netdev)
    if not seen:
        return PAUSE.skipped("the driver has no pause frames")
    if on:
        commands = "; ".join(f"ethtool -A {netdev} autoneg off rx off tx off" for netdev in on)
        return PAUSE.warn(", ".join(seen), f"When no rental runs: {commands}; keep it in the host's network set-up")
    return PAUSE.ok(", ".join(seen))


CHECKS = (BoundCheck(MTU, mtu), BoundCheck(ARP, arp_multirail), BoundCheck(PAUSE, global_pause))
