# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section E of the host contract: PCIe, NUMA, CPU and memory.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
import re

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.pci import parse_lspci
from ansible_collections.lium.cluster.plugins.module_utils._probe import Missing, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: Usable Gb/s of one lane by transfer rate in GT/s (inferred in host-contract pcie.link: Gen4 x16 is about 200).
_LANE_GBPS = {2.5: 1.7, 5.0: 3.4, 8.0: 6.6, 16.0: 13.1, 32.0: 25.0, 64.0: 50.0}
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
LIMITS_FILES = ("/etc/security/limits.conf", "/etc/security/limits.d")

LINK = Check(
    id="pcie.link",
    title="PCIe link of the RDMA cards",
    severity="degraded",
    expected="current speed and width equal to the card's maximum",
    why="a narrow link caps the bandwidth of every pair this host is in",
    source="/sys/bus/pci/devices/*/current_link_speed, current_link_width",
)
ACS = Check(
    id="pcie.acs",
    title="Peer-to-peer traffic stays below the root complex",
    severity="degraded",
    expected="ReqRedir- and CmpltRedir- on the bridges above the RDMA cards",
    why="redirected GPUDirect traffic takes the detour through the root complex and loses bandwidth",
    source="lspci -D -vvv",
)
ATS = Check(
    id="pcie.ats",
    title="Address translation service of the RDMA cards",
    severity="info",
    expected="off on bare metal, on in virtual machines",
    why="it matters only where a guest's cards go through an IOMMU",
    source="lspci -D -vvv",
)
ORDERING = Check(
    id="pcie.relaxed_ordering",
    title="Relaxed ordering of the RDMA cards",
    severity="info",
    expected="RlxdOrd+",
    why="strict ordering slows large transfers on some systems",
    source="lspci -D -vvv",
)
NUMA = Check(
    id="numa.affinity",
    title="NUMA node of the RDMA cards",
    severity="info",
    expected="a node for each card",
    why="tests bound to the wrong node measure less than the card can do",
    source="/sys/class/infiniband/*/device/numa_node",
)
GOVERNOR = Check(
    id="cpu.governor",
    title="CPU frequency governor",
    severity="info",
    expected="any; performance measures best",
    why="perftest warns about changing clocks and runs on with -F",
    source="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
)
MEMLOCK = Check(
    id="limits.memlock",
    title="Limit of locked memory",
    severity="degraded",
    expected="unlimited for root and users, infinity for docker and containerd",
    why="registering memory for RDMA pins pages; with a limit the tests of this host fail with `Couldn't allocate MR`",
    source="ulimit -l, /etc/security/limits.d, systemctl show -p LimitMEMLOCK",
)
HUGEPAGES = Check(
    id="mem.hugepages",
    title="Reserved huge pages",
    severity="info",
    expected="HugePages_Total 0",
    why="reserved pages are memory that cannot be sold",
    source="/proc/meminfo",
)


def _cards(host: Host) -> dict[str, str]:
    """RDMA device -> PCI address, for devices that have one."""
    return {
        device.name: device.pci for device in host.rdma.devices if device.pci and _PCI_ADDRESS.fullmatch(device.pci)
    }


def _speed(text: str) -> float:
    match = re.match(r"(\d{1,3}(\.\d)?) GT/s", text)
    if match is None:
        raise ParseError("current_link_speed", "no transfer rate", text)
    return float(match.group(1))


def link(host: Host) -> Record:
    cards = _cards(host)
    if not cards:
        return LINK.skipped("no RDMA device on PCIe")
    seen, slow = [], []
    for name, address in cards.items():
        folder = f"/sys/bus/pci/devices/{address}"
        try:
            speed, best_speed = (_speed(host.probe.read(f"{folder}/{key}_link_speed")) for key in ("current", "max"))
            width, best_width = (
                parse_int("link_width", host.probe.read(f"{folder}/{key}_link_width")) for key in ("current", "max")
            )
        except Missing:
            continue  # a virtual function shows no link of its own
        seen.append(f"{name} {speed:g} GT/s x{width}")
        if speed < best_speed or width < best_width:
            cap = f", caps at about {_LANE_GBPS[speed] * width:.0f} Gb/s" if speed in _LANE_GBPS else ""
            slow.append(f"{name} {speed:g} GT/s x{width} of {best_speed:g} GT/s x{best_width}{cap}")
    if slow:
        return LINK.warn("; ".join(slow), "Seat the card in a slot of full width and generation, or reseat it")
    return LINK.ok(", ".join(seen)) if seen else LINK.skipped("no RDMA device shows a PCIe link")


def _bridges_above(host: Host, address: str) -> list[str]:
    """The bridges between a card and the root, from the kernel's path to the card."""
    path = host.probe.real_path(f"/sys/bus/pci/devices/{address}")
    return [part for part in path.split(os.sep) if _PCI_ADDRESS.fullmatch(part) and part != address]


def acs(host: Host) -> Record:
    cards = _cards(host)
    if not cards:
        return ACS.skipped("no RDMA device on PCIe")
    if any(_PCI_ADDRESS.fullmatch(name) for name in host.probe.entries_or_none("/sys/bus/pci/drivers/vfio-pci") or []):
        return ACS.skipped("devices are passed to virtual machines, which need their own ACS values")
    functions = parse_lspci(host.lspci)
    above = sorted({bridge for address in cards.values() for bridge in _bridges_above(host, address)})
    redirecting = [name for name in above if name in functions and functions[name].redirects]
    if redirecting:
        return ACS.warn(
            f"redirect on {', '.join(redirecting)}",
            "Run `setpci -s BRIDGE ECAP_ACS+0x6.w=0000` for each at boot (a oneshot unit), or turn ACS off in the"
            " firmware. Leave it where virtual machines or ConnectX-8 data direct are in use",
        )
    return ACS.ok(f"{len(above)} bridge(s) above the cards, none redirects")


def ats(host: Host) -> Record:
    cards = _cards(host)
    if not cards:
        return ATS.skipped("no RDMA device on PCIe")
    functions = parse_lspci(host.lspci)
    states = {name: functions[address].ats for name, address in cards.items() if address in functions}
    words = {name: "none" if flags is None else "on" if "Enable+" in flags else "off" for name, flags in states.items()}
    return ATS.ok(", ".join(f"{name} {word}" for name, word in words.items()) or "not shown")


def relaxed_ordering(host: Host) -> Record:
    cards = _cards(host)
    if not cards:
        return ORDERING.skipped("no RDMA device on PCIe")
    functions = parse_lspci(host.lspci)
    words = {
        name: "on" if "RlxdOrd+" in functions[address].control else "off"
        for name, address in cards.items()
        if address in functions
    }
    return ORDERING.ok(", ".join(f"{name} {word}" for name, word in words.items()) or "not shown")


def numa(host: Host) -> Record:
    cards = {device.name: device.numa_node for device in host.rdma.devices if device.pci}
    if not cards:
        return NUMA.skipped("no RDMA device on PCIe")
    return NUMA.ok(", ".join(f"{name} {'unknown' if node in (None, -1) else node}" for name, node in cards.items()))


def governor(host: Host) -> Record:
    value = host.probe.read_or_none("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return GOVERNOR.ok(value or "no frequency scaling")


def memlock(host: Host) -> Record:
    shell = host.probe.output("sh", "-c", "ulimit -l").strip()
    configured = _configured_memlock(host)
    problems = []
    if shell != "unlimited" and not configured:
        problems.append(f"shell {shell} KiB")
    services = _service_memlock(host)
    problems += [f"{unit} {value}" for unit, value in services.items() if value != "infinity"]
    note = "" if shell == "unlimited" or not configured else f" (this session, opened earlier: {shell} KiB)"
    if problems:
        return MEMLOCK.warn(
            ", ".join(problems),
            "Write `* soft memlock unlimited`, `* hard memlock unlimited` and the same two lines for root to"
            " /etc/security/limits.d/90-lium-rdma.conf (the role rdma does); for a service add LimitMEMLOCK=infinity",
        )
    return MEMLOCK.ok(f"unlimited{note}")


def _configured_memlock(host: Host) -> bool:
    """Whether new sessions of root get no limit: ``*`` does not stand for root in these files."""
    main, folder = LIMITS_FILES
    names = [f"{folder}/{name}" for name in host.probe.entries_or_none(folder) or [] if name.endswith(".conf")]
    found = set()
    for path in [main, *names]:
        for line in (host.probe.read_or_none(path) or "").splitlines():
            words = line.split("#")[0].split()
            if len(words) == 4 and words[2] == "memlock" and words[0] == "root":
                kinds = ("soft", "hard") if words[1] == "-" else (words[1],)
                for kind in kinds:
                    (found.add if words[3] in ("unlimited", "-1", "infinity") else found.discard)(kind)
    return found == {"soft", "hard"}


def _service_memlock(host: Host) -> dict[str, str]:
    """LimitMEMLOCK of the container services that are there; a system without systemd has none."""
    values = {}
    for unit in ("docker", "containerd"):
        try:
            done = host.probe.run("systemctl", "show", unit, "-p", "LoadState", "-p", "LimitMEMLOCK")
        except ToolMissing:
            return {}
        pairs = key_values(done.stdout)
        if pairs.get("LoadState") == "loaded":
            values[unit] = pairs.get("LimitMEMLOCK", "unknown")
    return values


def hugepages(host: Host) -> Record:
    total = key_values(host.probe.read("/proc/meminfo"), ":").get("HugePages_Total", "0")
    return HUGEPAGES.ok(f"HugePages_Total {total}")


CHECKS = (
    BoundCheck(LINK, link),
    BoundCheck(ACS, acs),
    BoundCheck(ATS, ats),
    BoundCheck(ORDERING, relaxed_ordering),
    BoundCheck(NUMA, numa),
    BoundCheck(GOVERNOR, governor),
    BoundCheck(MEMLOCK, memlock),
    BoundCheck(HUGEPAGES, hugepages),
)
