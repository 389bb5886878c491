# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Kernel modules: which are loaded, in which order they can go, and what a failed `modprobe` means.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def loaded_modules(root: str = "/") -> set[str]:
    """Modules that are loaded now, those that are built in left out."""
    try:
        with open(os.path.join(root, "proc/modules"), encoding="ascii", errors="replace") as stream:
            return {line.split()[0] for line in stream if line.strip()}
    except FileNotFoundError:
        return set()  # a kernel without loadable modules


def holders(module: str, root: str = "/") -> tuple[int, set[str]]:
    """How often a module is in use, and by which other modules. A module that is not loaded is used by nobody."""
    folder = os.path.join(root, "sys/module", module)
    try:
        with open(os.path.join(folder, "refcnt"), encoding="ascii") as stream:
            count = int(stream.read().strip() or 0)
        return count, set(os.listdir(os.path.join(folder, "holders")))
    except FileNotFoundError:
        return 0, set()


def unload_order(modules: Iterable[str], root: str = "/") -> list[str]:
    """The modules that can go, users before used. One that something else uses is not among them."""
    left = {module: holders(module, root) for module in modules}
    order: list[str] = []
    while True:
        free = [module for module, (count, users) in left.items() if users <= set(order) and count <= len(users)]
        if not free:
            return order
        for module in free:
            order.append(module)
            del left[module]


#: Modules that udev loads when rdma-core is installed (host-contract rdma.modules).
RDMA_CORE_MODULES = frozenset(
    {"ib_cm", "ib_core", "ib_ipoib", "ib_iser", "ib_srp", "ib_umad", "ib_uverbs", "iw_cm"}
    | {"rdma_cm", "rdma_ucm", "rpcrdma", "sunrpc"}
)


def explain_modprobe(module: str, text: str) -> str:
    """What a failed ``modprobe`` means and what to do: once, without trying again (host-contract 8)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    container = "In a container the host has to load it"
    if "not found in directory" in text:
        kernel = text.split("/lib/modules/")[-1].split()[0].rstrip(".,'\"") if "/lib/modules/" in text else ""
        fix = f"install the extra modules of kernel {kernel} (Ubuntu: linux-modules-extra-{kernel}), or a newer kernel"
        if "cloud" in kernel:
            fix = f"kernel {kernel} is of the cloud flavour and lacks it: install the distribution's full kernel"
        return f"module {module} is not there; {fix}. {container}. ({line})"
    if "Key was rejected" in text:
        fix = "enrol its key with mokutil --import and reboot"
        return f"module {module} is unsigned and Secure Boot is on: {fix}. ({line})"
    if "Operation not permitted" in text:
        return f"module {module} may not be loaded here. {container}. ({line})"
    return f"module {module} could not be loaded: {line}"
