# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section A of the host contract: platform and kernel.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._checks.rdma_stack import capable_cards
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import Missing, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: Overlay mounts with mapped ids, which Sysbox needs for GPUs (host-contract os.supported).
MINIMUM_KERNEL = (5, 19)
SUPPORTED = {("ubuntu", "22.04"), ("ubuntu", "24.04"), ("debian", "12")}
RHEL_LIKE = {"rhel", "rocky", "almalinux", "centos"}

_EFI_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MOK_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")

OS_SUPPORTED = Check(
    id="os.supported",
    title="Operating system and kernel",
    severity="blocker",
    expected="x86_64, kernel 5.19 or newer, on Ubuntu 22.04 or 24.04, Debian 12, or RHEL/Rocky 9",
    why="GPU pods run under Sysbox, which needs mounts of kernel 5.19; the platform accepts no other machine",
    source="/etc/os-release, uname -r, uname -m",
)
HEADERS = Check(
    id="kernel.headers_match",
    title="Headers of the running kernel",
    severity="degraded",
    expected="/lib/modules/<running kernel>/build, where a driver is built by DKMS",
    why="without them the next driver build fails and the host comes up without RDMA",
    source="/lib/modules/<kernel>/build, dkms status",
)
SECURE_BOOT = Check(
    id="boot.secure_boot",
    title="Secure Boot and the signature of the RDMA driver",
    severity="blocker",
    expected="Secure Boot off, or the inbox driver, or the DKMS key enrolled",
    why="the kernel refuses an unsigned driver, so the fabric is gone after the next boot and the pod stops itself",
    source="mokutil --sb-state",
)
IOMMU = Check(
    id="kernel.cmdline_iommu",
    title="IOMMU mode",
    severity="degraded",
    expected="no IOMMU, or the groups of all RDMA cards and GPUs of type identity (iommu=pt)",
    why="a translating IOMMU costs GPUDirect RDMA its bandwidth",
    source="/sys/bus/pci/devices/*/iommu_group/type",
)
NTP = Check(
    id="time.ntp",
    title="Clock synchronised",
    severity="blocker",
    expected="NTPSynchronized=yes",
    why="the executor refuses signed requests that are more than 300 s off",
    source="timedatectl show -p NTPSynchronized --value",
)


def kernel_version(release: str) -> tuple[int, int]:
    """``6.8.0-60-generic`` -> ``(6, 8)``."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if match is None:
        raise ParseError("uname -r", "no kernel version", release)
    return int(match.group(1)), int(match.group(2))


def os_supported(host: Host) -> Record:
    system, version = host.os_id, host.os_version
    observed = f"{system} {version}, kernel {host.kernel}, {host.machine}"
    if host.machine != "x86_64":
        return OS_SUPPORTED.must_fix(observed, "Use an x86_64 machine; no other architecture can be sold")
    recent = kernel_version(host.kernel) >= MINIMUM_KERNEL
    if system in RHEL_LIKE and version.split(".")[0] == "9":
        if recent:
            return OS_SUPPORTED.ok(observed)
        return OS_SUPPORTED.warn(
            observed, "Have the executor's support for this kernel confirmed; by its number Sysbox does not run on it"
        )
    if (system, version) not in SUPPORTED:
        return OS_SUPPORTED.must_fix(observed, "Install Ubuntu 22.04 (the executor's choice) or another listed system")
    if not recent:
        return OS_SUPPORTED.must_fix(
            observed, "Install a newer kernel and reboot (on Ubuntu 22.04 the package linux-generic-hwe-22.04)"
        )
    return OS_SUPPORTED.ok(observed)


def headers_match(host: Host) -> Record:
    if not host.dkms:
        return HEADERS.skipped("no driver here is built by DKMS")
    path = f"/lib/modules/{host.kernel}/build"
    if host.probe.exists(path):
        return HEADERS.ok(f"{path} present")
    package = f"linux-headers-{host.kernel}" if host.debian_like else f"kernel-devel-{host.kernel}"
    return HEADERS.must_fix(f"{path} missing; DKMS builds {', '.join(host.dkms_names)}", f"Install {package}")


def secure_boot_enabled(host: Host) -> bool:
    """From ``mokutil``, else from the firmware's variable. A BIOS boot has neither and counts as off."""
    try:
        done = host.probe.run("mokutil", "--sb-state")
    except ToolMissing:
        try:
            return host.probe.read_bytes(_EFI_SECURE_BOOT)[-1:] == b"\x01"
        except Missing:
            if host.probe.exists("/sys/firmware/efi/efivars"):
                raise
            return False
    text = done.stdout + done.stderr
    if "SecureBoot enabled" in text:
        return True
    if "SecureBoot disabled" in text or "EFI variables are not supported" in text:
        return False
    raise ParseError("mokutil --sb-state", "neither enabled nor disabled", text)


def secure_boot(host: Host) -> Record:
    if not secure_boot_enabled(host):
        return SECURE_BOOT.ok("off")
    if not host.dkms:
        return SECURE_BOOT.ok("on, with drivers that the distribution signed")
    for key in _MOK_KEYS:
        if host.probe.exists(key):
            done = host.probe.run("mokutil", "--test-key", key)
            if "is already enrolled" in done.stdout + done.stderr:
                return SECURE_BOOT.ok(f"on; {key} is enrolled")
    return SECURE_BOOT.must_fix(
        f"on, and the driver is built by DKMS ({', '.join(host.dkms_names)}) with a key that is not enrolled",
        f"Run `mokutil --import {_MOK_KEYS[0] if host.debian_like else _MOK_KEYS[1]}`, reboot and confirm at the"
        " console (MokManager); or turn Secure Boot off in the firmware; or use the inbox driver",
    )


def iommu(host: Host) -> Record:
    groups = host.probe.entries_or_none("/sys/kernel/iommu_groups") or []
    if not groups and not host.probe.entries_or_none("/sys/class/iommu"):
        return IOMMU.ok("no IOMMU in use")
    # What else is in the host may be translated: its traffic is none of GPUDirect's.
    cards = {device.pci for device in host.rdma.devices if device.pci} | set(host.gpus_installed)
    cards.update(address for addresses in capable_cards(host).values() for address in addresses)
    links = {card: host.probe.link_target(f"/sys/bus/pci/devices/{card}/iommu_group") for card in sorted(cards)}
    grouped = {card: group for card, group in links.items() if group}
    if not grouped:
        return IOMMU.ok("IOMMU on; no RDMA card and no GPU is in a group of it")
    kinds: dict[str, list[str]] = {}
    for card, group in grouped.items():
        kind = host.probe.read_or_none(f"/sys/kernel/iommu_groups/{group}/type") or "unknown"
        kinds.setdefault(kind, []).append(card)
    observed = "; ".join(f"{kind}: {', '.join(members)}" for kind, members in sorted(kinds.items()))
    if "unknown" in kinds:
        return IOMMU.unknown(observed)
    if any(kind.startswith("DMA") for kind in kinds):
        return IOMMU.warn(
            observed,
            "Append iommu=pt to GRUB_CMDLINE_LINUX_DEFAULT in a file below /etc/default/grub.d, run update-grub and"
            " reboot when no rental runs. Leave a host for confidential VMs as it is",
        )
    return IOMMU.ok(observed)


def ntp(host: Host) -> Record:
    value = host.probe.output("timedatectl", "show", "-p", "NTPSynchronized", "--value").strip()
    if value == "yes":
        return NTP.ok("synchronised")
    if value == "no":
        return NTP.must_fix("not synchronised", "Enable systemd-timesyncd or chrony and let it reach a time server")
    raise ParseError(NTP.source, "neither yes nor no", value)


CHECKS = (
    BoundCheck(OS_SUPPORTED, os_supported),
    BoundCheck(HEADERS, headers_match),
    BoundCheck(SECURE_BOOT, secure_boot),
    BoundCheck(IOMMU, iommu),
    BoundCheck(NTP, ntp),
)
