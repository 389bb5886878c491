# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Section B of the host contract: RDMA driver, packages, modules and device nodes.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import ipaddress
import stat

from ansible_collections.lium.cluster.plugins.module_utils._check import BoundCheck, Check
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, load_json
from ansible_collections.lium.cluster.plugins.module_utils._parsers.rdma_tool import parse_netns_mode
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, Missing, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

#: PCI driver of a card -> module of its RDMA half (host-contract rdma.modules).
RDMA_HALF = {
    "mlx4_core": "mlx4_ib",
    "mlx5_core": "mlx5_ib",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "ionic": "ionic_rdma",
    "qede": "qedr",
    "hns3": "hns_roce_hw_v2",
}
_SRIOV_FILE = "/etc/lium/rdma-fabric.json"
NEEDED_MODULES = ("ib_uverbs", "rdma_ucm")

STACK = Check(
    id="rdma.stack_identity",
    title="One RDMA stack",
    severity="blocker",
    expected="the inbox stack, or DOCA-OFED or MLNX_OFED built for the running kernel",
    why="a driver that is not built for this kernel leaves the host without RDMA, and such a pod stops itself",
    source="ofed_info -s, modinfo mlx5_core, dkms status",
)
MODULES = Check(
    id="rdma.modules",
    title="RDMA kernel modules",
    severity="blocker",
    expected="the RDMA half of every capable card, ib_uverbs and rdma_ucm loaded",
    why="without them a pod has no verbs device and stops itself",
    source="/sys/module, /sys/bus/pci/drivers",
)
PEERMEM = Check(
    id="rdma.peermem",
    title="GPUDirect RDMA",
    severity="degraded",
    expected="nvidia_peermem, or DMA-BUF with the open GPU driver",
    why="NCCL goes through host memory without it, and the job is slower than the offer promises",
    source="/sys/module/nvidia_peermem, /proc/kallsyms, modinfo -F license nvidia",
)
NAMING = Check(
    id="rdma.persistent_naming",
    title="Names of the RDMA devices",
    severity="info",
    expected="names of one style",
    why="the platform measures the first name in string order, so a renamed device moves the measured rail",
    source="/sys/class/infiniband",
)
NODES = Check(
    id="rdma.device_nodes",
    title="Device nodes for pods",
    severity="blocker",
    expected="one uverbs node for every RDMA device, and rdma_cm, all of mode 666",
    why="pods run under a user namespace and get these nodes by name; others of mode are closed to them",
    source="/dev/infiniband, /sys/class/infiniband_verbs",
)
NETNS = Check(
    id="rdma.netns_mode",
    title="RDMA devices are shared between network namespaces",
    severity="blocker",
    expected="netns shared, or exclusive with all that the platform's SR-IOV path needs",
    why="in exclusive mode a pod sees no RDMA device but a virtual function that it is given",
    source="rdma system show, /etc/lium/rdma-fabric.json",
)
SRIOV = Check(
    id="rdma.sriov",
    title="Virtual functions",
    severity="degraded",
    expected="no virtual function that is active and has an address",
    why="its address adds a segment or a second claim, and the platform then drops the host",
    source="/sys/class/infiniband/*/device/physfn",
)


def stack_identity(host: Host) -> Record:
    version = _ofed_version(host)
    wrong = [row for row in host.dkms if row.kernel == host.kernel and row.state != "installed"]
    built = {row.name for row in host.dkms if row.kernel == host.kernel and row.state == "installed"}
    unbuilt = [name for name in host.dkms_names if name not in built]
    if wrong or unbuilt:
        names = ", ".join(unbuilt)
        return STACK.must_fix(
            f"DKMS: {names} not installed for {host.kernel}",
            f"Install the headers of {host.kernel}, then run `dkms autoinstall -k {host.kernel}`",
        )
    problem = host.verbs.problem if host.verbs and host.rdma.devices else ""
    if problem:
        return STACK.warn(
            f"the kernel has {', '.join(device.name for device in host.rdma.devices)}; user space: {problem}",
            "Install the provider libraries of the same stack as the driver (inbox: "
            f"{'ibverbs-providers' if host.debian_like else 'libibverbs'}; the role rdma does it)",
        )
    if not version:
        if host.dkms:
            return STACK.ok(f"vendor driver by DKMS: {', '.join(host.dkms_names)}")
        if not capable_cards(host) and not host.rdma.devices:
            return STACK.skipped(f"no RDMA card has a driver ({host.rdma.absence})")
        return STACK.ok("inbox")
    try:
        path = host.probe.output("modinfo", "-F", "filename", "mlx5_ib").strip()
    except CommandError:
        path = ""
    if path and "/kernel/drivers/" in path:
        return STACK.warn(
            f"{version} in user space, inbox driver in the kernel ({path})",
            "Install the kernel part of the same release, or remove the vendor's packages (ofed_uninstall.sh --force)",
        )
    return STACK.ok(version)


def _ofed_version(host: Host) -> str:
    try:
        return host.probe.output("ofed_info", "-s").strip().rstrip(":")
    except ToolMissing:
        return ""


def capable_cards(host: Host) -> dict[str, list[str]]:
    """PCI addresses of cards that can do RDMA, by driver. A driver that is not loaded has no folder."""
    cards = {}
    for driver in RDMA_HALF:
        names = host.probe.entries_or_none(f"/sys/bus/pci/drivers/{driver}") or []
        addresses = [name for name in names if name.count(":") == 2]
        if addresses:
            cards[driver] = addresses
    return cards


def loaded(host: Host, module: str) -> bool:
    return host.probe.exists(f"/sys/module/{module}")


def modules(host: Host) -> Record:
    cards = capable_cards(host)
    needed = [RDMA_HALF[driver] for driver in cards] + list(NEEDED_MODULES)
    missing = [name for name in needed if not loaded(host, name)]
    observed = ", ".join(f"{name} {'missing' if name in missing else 'loaded'}" for name in needed)
    if missing:
        return MODULES.must_fix(
            observed,
            f"Run `modprobe -a {' '.join(missing)}` and list them in /etc/modules-load.d (the role rdma does both);"
            " on a minimal Ubuntu kernel first install linux-modules-extra of the running kernel",
        )
    if any(not port.ethernet for port in host.rdma.ports) and not loaded(host, "ib_umad"):
        return MODULES.warn(f"{observed}, ib_umad missing", "Run `modprobe ib_umad`; sminfo and ibstat need it")
    return MODULES.ok(observed)


def peermem(host: Host) -> Record:
    if loaded(host, "nvidia_peermem"):
        return PEERMEM.ok("nvidia_peermem loaded")
    if not loaded(host, "nvidia"):
        return PEERMEM.skipped("no NVIDIA driver loaded")
    # Lines read "address type name", with "[module]" behind it where it is not built in.
    symbols = (line.split() for line in host.probe.read("/proc/kallsyms").splitlines())
    dma_buf = any(words[1:3] in (["T", "ib_umem_dmabuf_get"], ["t", "ib_umem_dmabuf_get"]) for words in symbols)
    licence = host.probe.output("modinfo", "-F", "license", "nvidia").strip()
    if dma_buf and licence == "Dual MIT/GPL":
        return PEERMEM.ok("DMA-BUF with the open GPU driver")
    return PEERMEM.warn(
        f"nvidia_peermem not loaded; DMA-BUF in ib_core: {'yes' if dma_buf else 'no'}; GPU driver licence: {licence}",
        "Run `modprobe nvidia_peermem` and list it in /etc/modules-load.d; if it answers `Invalid argument`, build the"
        " GPU driver anew after the RDMA stack, or use the open GPU driver",
    )


def naming_style(name: str) -> str:
    styles = ("mlx5_", "bnxt_re", "irdma", "rocep", "ibp", "iwp", "rxe")
    return next((style for style in styles if name.startswith(style)), name)


def naming(host: Host) -> Record:
    names = [device.name for device in host.rdma.devices]
    if not names:
        return NAMING.skipped(host.rdma.absence)
    styles = sorted({naming_style(name) for name in names})
    if len(styles) > 1:
        return NAMING.warn(
            ", ".join(names),
            "Give all devices names of one style with /etc/udev/rules.d/60-rdma-persistent-naming.rules"
            " (NAME_KERNEL or NAME_PCI), on all hosts of the segment alike",
        )
    return NAMING.ok(", ".join(names))


def device_nodes(host: Host) -> Record:
    if not host.rdma.devices:
        return NODES.skipped(host.rdma.absence)
    nodes = host.probe.entries_or_none("/dev/infiniband") or []
    owners = host.verbs_nodes
    problems = []
    for device in host.rdma.devices:
        node = next((node for node, owner in owners.items() if owner == device.name), None)
        if node is None or node not in nodes:
            problems.append(f"no uverbs node for {device.name}")
        else:
            problems += _mode_problem(host, node)
    if "rdma_cm" not in nodes:
        problems.append("no rdma_cm")
    else:
        problems += _mode_problem(host, "rdma_cm")
    if problems:
        lacking = [
            name
            for name, text in (("ib_uverbs", "uverbs node"), ("rdma_ucm", "no rdma_cm"))
            if any(text in problem for problem in problems)
        ]
        fixes = [f"run `modprobe -a {' '.join(lacking)}`"] if lacking else []
        if any("mode" in problem for problem in problems):
            fixes.append("set mode 0666 by a udev rule (the role rdma brings one)")
        return NODES.must_fix("; ".join(problems), " and ".join(fixes).capitalize())
    return NODES.ok(", ".join(sorted({"rdma_cm", *owners})))


def _mode_problem(host: Host, node: str) -> list[str]:
    try:
        mode = stat.S_IMODE(host.probe.stat(f"/dev/infiniband/{node}").st_mode)
    except Missing:
        return [f"no {node}"]
    return [] if mode & 0o666 == 0o666 else [f"{node} has mode {mode:o}"]


def netns_mode(host: Host) -> Record:
    if not loaded(host, "ib_core"):  # asking would load it
        return NETNS.skipped("the kernel's RDMA core is not loaded")
    mode = parse_netns_mode(host.probe.run("rdma", "system", "show"))
    if mode == "shared":
        return NETNS.ok("shared")
    back = "Remove `options ib_core netns_mode=0` from /etc/modprobe.d and reboot when no rental runs"
    text = host.probe.read_or_none(_SRIOV_FILE)
    if text is None:
        return NETNS.must_fix("exclusive", back)
    # The platform's SR-IOV path: it reads three preconditions and makes none of them (host-contract rdma.netns_mode).
    lacking = _sriov_range_problem(text)
    free = [device.name for device in host.rdma.devices if device.virtual_function]  # one in use is a pod's own
    if not free:
        lacking = [*lacking, "no free virtual function"]
    if lacking:
        return NETNS.must_fix(
            f"exclusive, with {_SRIOV_FILE}: {'; '.join(lacking)}",
            f"For the platform's SR-IOV path give {_SRIOV_FILE} a container_ip_range such as 10.20.30.128/25 and the"
            f" card virtual functions (sriov_numvfs); else: {back[0].lower()}{back[1:]}",
        )
    return NETNS.ok(f"exclusive, with {_SRIOV_FILE} for the platform's SR-IOV path; free: {', '.join(free)}")


def _sriov_range_problem(text: str) -> list[str]:
    try:
        settings = load_json(_SRIOV_FILE, text)
    except ParseError:
        return ["not JSON"]
    found = settings.get("container_ip_range") if isinstance(settings, dict) else None
    try:
        ipaddress.ip_network(str(found), strict=False)
    except ValueError:
        return ["no container_ip_range" if found is None else f"container_ip_range {found!r} is no network"]
    return []


def sriov(host: Host) -> Record:
    if not host.rdma.devices:
        return SRIOV.skipped(host.rdma.absence)
    functions = [device for device in host.rdma.devices if device.virtual_function]
    live = [
        f"{port.name} ({', '.join(sorted({str(gid.usable_ipv4) for gid in port.gids if gid.usable_ipv4}))})"
        for device in functions
        for port in device.ports
        if port.active and any(gid.usable_ipv4 for gid in port.gids)
    ]
    if live:
        return SRIOV.warn(
            f"active with an address: {', '.join(live)}", "Take the address off the virtual function's netdev"
        )
    return SRIOV.ok(f"{len(functions)} virtual function(s), none active with an address")


CHECKS = (
    BoundCheck(STACK, stack_identity),
    BoundCheck(MODULES, modules),
    BoundCheck(PEERMEM, peermem),
    BoundCheck(NAMING, naming),
    BoundCheck(NODES, device_nodes),
    BoundCheck(NETNS, netns_mode),
    BoundCheck(SRIOV, sriov),
)
