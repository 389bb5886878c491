# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""A host as the checks see it: what several checks need is read once and kept.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._docker import GPU_CLASSES, Occupancy, occupancy
from ansible_collections.lium.cluster.plugins.module_utils._packages import parse_query, query_command
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values, load_json, parse_int
from ansible_collections.lium.cluster.plugins.module_utils._parsers.firewall import firewalld_zones, ufw_active
from ansible_collections.lium.cluster.plugins.module_utils._parsers.ibv import Verbs, parse_ibv_devinfo
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import Address, parse_ip_address
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, HostProbe, ToolMissing
from ansible_collections.lium.cluster.plugins.module_utils._rdma.tree import Tree, read_tree
from ansible_collections.lium.cluster.plugins.module_utils._rdma.view import PlatformView, predict

#: Names under which vendors' RDMA drivers stand in DKMS.
RDMA_DKMS = ("mlnx-ofed", "mlnx_ofed", "mlnx-ofa_kernel", "bnxt", "netxtreme", "irdma", "iser", "isert", "srp")

#: NVIDIA as PCI vendor.
NVIDIA = "0x10de"

#: What docker says of a plugin that it does not have: today, before 2023, and where it takes our flag for its own.
_NO_COMPOSE = ("unknown command: docker compose", "'compose' is not a docker command", "unknown flag: --all")


class DkmsModule(NamedTuple):
    """One line of ``dkms status``."""

    name: str
    kernel: str
    state: str


_DKMS_LINE = re.compile(r"(?P<name>[^,/:]+)[/,] ?[^,:]+(, (?P<kernel>[^,:]+)(, [^,:]+)?)?: (?P<state>[a-z-]+)")


def parse_dkms_status(text: str) -> list[DkmsModule]:
    """``mlnx-ofed-kernel/24.10, 6.8.0-60-generic, x86_64: installed`` as rows (host-contract rdma.stack_identity).

    A module that is only ``added`` has no kernel in its line; older versions write ``name, version`` for
    ``name/version``. What the tool remarks behind the state is left out.
    """
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _DKMS_LINE.match(line.strip())
        if match is None:
            raise ParseError("dkms status", "a line that is not understood", line)
        rows.append(DkmsModule(match["name"], match["kernel"] or "", match["state"]))
    return rows


class Host:
    """What one look at a host reads. Values come at their first use; a failed reading raises at each use."""

    def __init__(self, probe: HostProbe) -> None:
        self.probe = probe

    @cached_property
    def _os_release(self) -> dict[str, str]:
        return key_values(self.probe.read("/etc/os-release"))

    @property
    def os_id(self) -> str:
        return self._os_release.get("ID", "unknown")

    @property
    def os_version(self) -> str:
        return self._os_release.get("VERSION_ID", "unknown")

    @property
    def debian_like(self) -> bool:
        return "debian" in (self.os_id, *self._os_release.get("ID_LIKE", "").split())

    @cached_property
    def kernel(self) -> str:
        return self.probe.output("uname", "-r").strip()

    @cached_property
    def machine(self) -> str:
        return self.probe.output("uname", "-m").strip()

    @cached_property
    def dkms(self) -> list[DkmsModule]:
        """Drivers that DKMS builds for the RDMA stack. Empty without DKMS."""
        try:
            text = self.probe.output("dkms", "status")
        except ToolMissing:
            return []
        return [row for row in parse_dkms_status(text) if row.name.startswith(RDMA_DKMS)]

    @property
    def dkms_names(self) -> list[str]:
        return sorted({row.name for row in self.dkms})

    @cached_property
    def rdma(self) -> Tree:
        return read_tree(self.probe)

    @cached_property
    def view(self) -> PlatformView:
        return predict(self.rdma.ports)

    @cached_property
    def verbs(self) -> Verbs | None:
        """What user space sees; None where there is no device, or no tool to ask. Its exit code is 255 without one."""
        if not self.rdma.devices:
            return None
        try:
            done = self.probe.run("ibv_devinfo")
        except ToolMissing:
            return None
        return parse_ibv_devinfo(done.stdout, done.stderr)

    @cached_property
    def verbs_nodes(self) -> dict[str, str]:
        """Device node -> RDMA device, for example ``uverbs0`` -> ``mlx5_2``: the numbers need not follow the names."""
        folder = "/sys/class/infiniband_verbs"
        names = [name for name in self.probe.entries_or_none(folder) or [] if name.startswith("uverbs")]
        return {name: self.probe.read(f"{folder}/{name}/ibdev") for name in names}

    @cached_property
    def addresses(self) -> list[Address]:
        """IPv4 addresses of all netdevs."""
        return [
            row for row in parse_ip_address(self.probe.output("ip", "-j", "addr", "show")) if ":" not in row.address
        ]

    @cached_property
    def lspci(self) -> str:
        return self.probe.output("lspci", "-D", "-vvv", timeout=60)

    @cached_property
    def gpus_installed(self) -> list[str]:
        """PCI addresses of NVIDIA's GPUs, whether a driver sees them or not."""
        folder = "/sys/bus/pci/devices"
        return [
            address
            for address in self.probe.entries_or_none(folder) or []
            if self.probe.read_or_none(f"{folder}/{address}/vendor") == NVIDIA
            and (self.probe.read_or_none(f"{folder}/{address}/class") or "").startswith(GPU_CLASSES)
            and not self.probe.exists(f"{folder}/{address}/physfn")
        ]

    @cached_property
    def docker_info(self) -> dict[str, Any]:
        """``docker info`` as an object. Raises ToolMissing without Docker, CommandError when the daemon is down."""
        text = self.probe.output("docker", "info", "--format", "{{json .}}", timeout=30)
        answer = load_json("docker info", text)
        if not isinstance(answer, dict):
            raise ParseError("docker info", "not an object", text)
        if not answer.get("ServerVersion"):
            # Old clients exit 0 though the daemon is down and tell so in the object.
            errors = answer.get("ServerErrors")
            raise CommandError(
                ("docker", "info"), "; ".join(map(str, errors)) if isinstance(errors, list) else "no server"
            )
        return answer

    @cached_property
    def executor_env(self) -> str | None:
        """Text of the executor's ``.env``, found through its compose project; None where none is installed.

        Without Docker, or without its plugin compose, there is none. Raises CommandError where compose gives no answer.
        """
        try:
            done = self.probe.run("docker", "compose", "ls", "--all", "--format", "json")
        except ToolMissing:
            return None
        if done.rc != 0:
            if any(text in done.stderr for text in _NO_COMPOSE):
                return None
            raise CommandError(done.argv, done.first_error)
        projects = load_json("docker compose ls", done.stdout or "[]")
        if not isinstance(projects, list):
            raise ParseError("docker compose ls", "not a list", done.stdout)
        for project in projects:
            files = str(project.get("ConfigFiles", "")) if isinstance(project, dict) else ""
            for path in files.split(","):
                if "/neurons/executor/" in path:
                    return self.probe.read_or_none(path.rsplit("/", 1)[0] + "/.env") or ""
        return None

    @cached_property
    def iptables_rules(self) -> str:
        """Asking loads iptables' modules where it has no rules yet."""
        return self.probe.output("iptables", "-S")

    @cached_property
    def nft_ruleset(self) -> str:
        """JSON. Asking loads nftables where it has no rules yet."""
        return self.probe.output("nft", "-j", "list", "ruleset")

    @cached_property
    def firewall_tools(self) -> list[str]:
        """Those of ``ufw`` and ``firewalld`` that are active."""
        tools = []
        if self.probe.which("ufw") and ufw_active(self.probe.output("ufw", "status", "verbose")):
            tools.append("ufw")
        if self.firewalld_zones is not None:
            tools.append("firewalld")
        return tools

    @cached_property
    def firewalld_zones(self) -> dict[str, str] | None:
        """What firewalld has bound to a zone, netdevs and sources; all else is in its default zone. None without it.

        It answers only where it runs, and each question takes a third of a second: ``--state`` is not asked for.
        """
        try:
            done = self.probe.run("firewall-cmd", "--get-active-zones")
        except ToolMissing:
            return None
        return firewalld_zones(done.stdout) if done.rc == 0 else None

    @cached_property
    def firewalld_default_zone(self) -> str:
        return self.probe.output("firewall-cmd", "--get-default-zone").strip()

    @cached_property
    def occupancy(self) -> Occupancy:
        return occupancy(self.probe)

    def installed_packages(self, names: Sequence[str]) -> list[str]:
        """Those of these packages that are on the host; none where nobody can tell."""
        if not names:
            return []
        try:
            done = self.probe.run(*query_command(names, self.debian_like))
        except ToolMissing:
            return []
        return sorted(parse_query(done.stdout) & set(names))

    def netdev_mtu(self, netdev: str) -> int:
        return parse_int(f"mtu of {netdev}", self.probe.read(f"/sys/class/net/{netdev}/mtu"))

    @property
    def fabric_netdevs(self) -> list[str]:
        """Netdevs of the active RoCE ports, where the address of the port stands."""
        names = set()
        for view in self.view.roce_ports:
            gid = view.seen or view.hidden or view.port.rail_gid
            if gid and gid.netdev:
                names.add(gid.netdev)
            else:
                names.update(self.rdma.device(view.port.device).netdevs[:1])
        return sorted(names)
