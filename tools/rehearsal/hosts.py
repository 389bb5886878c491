"""Emulated hosts: a recorded tree that roce_info reads, an inventory that reaches them all on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.rehearsal.fabric import Fabric

#: All hosts of a rehearsal stand in this network; it is local to the rehearsal's network namespace.
NETWORK = "10.77.0.0/16"
GID_INDEX = 3
_HOSTS_IN_24 = 250


def addresses(fabric: Fabric) -> dict[str, str]:
    """The fabric address of each host. Rails of a host share it: only one test at a time runs on a host."""
    return {
        host: f"10.77.{number // _HOSTS_IN_24}.{number % _HOSTS_IN_24 + 1}" for number, host in enumerate(fabric.hosts)
    }


def prefix_length(fabric: Fabric) -> int:
    """24, as the platform assumes, while the hosts fit into it."""
    return 24 if len(fabric.hosts) <= _HOSTS_IN_24 else 16


def write_tree(root: Path, address: str, fabric: Fabric) -> None:
    """What the kernel of the host would show of its rails, and what its commands would answer."""
    numbers = [int(part) for part in address.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:" + "{:02x}{:02x}:{:02x}{:02x}".format(*numbers)
    for rail in range(fabric.rails):
        device = root / "sys/class/infiniband" / f"mlx5_{rail}"
        port = device / "ports/1"
        files = {
            port / "state": "4: ACTIVE",
            port / "phys_state": "5: LinkUp",
            port / "link_layer": "Ethernet",
            port / "rate": f"{fabric.link_gbps:g} Gb/sec (4X NDR)",
            port / f"gids/{GID_INDEX}": gid,
            port / f"gid_attrs/types/{GID_INDEX}": "RoCE v2",
            port / f"gid_attrs/ndevs/{GID_INDEX}": f"rail{rail}",
            device / "device/current_link_speed": "32.0 GT/s PCIe",
            device / "device/current_link_width": "16",
        }
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        os.symlink("../../../../bus/pci/drivers/mlx5_core", device / "device/driver")
    row = {"ifname": "rail0", "addr_info": [{"family": "inet", "local": address, "prefixlen": prefix_length(fabric)}]}
    answers = {"ip -j addr show": {"rc": 0, "stdout": json.dumps([row]), "stderr": ""}}
    for rail in range(fabric.rails):
        answers[f"rdma resource show qp link mlx5_{rail}/1"] = {"rc": 0, "stdout": "", "stderr": ""}
    (root / "commands.json").write_text(json.dumps(answers))


def write_inventory(
    path: Path, folder: Path, fabric: Fabric, programs: Path, socket: Path, variables: Mapping[str, Any]
) -> None:
    """The inventory of the rehearsal; every host is reached by connection local and has a folder of its own."""
    hosts = {}
    for host, address in addresses(fabric).items():
        home = folder / host
        write_tree(home / "root", address, fabric)
        hosts[host] = {
            "roce_verify_host_root": str(home / "root"),
            "roce_verify_folder": str(home / "agent"),
            "roce_verify_lock": str(home / "lock"),
            "roce_verify_environment": {
                "PATH": str(programs),
                "LIUM_REHEARSAL_SOCKET": str(socket),
                "LIUM_REHEARSAL_HOST": host,
                "LIUM_REHEARSAL_ADDRESS": address,
            },
        }
    common = {
        "ansible_connection": "local",
        "roce_verify_become": False,
        "roce_verify_prefix_length": prefix_length(fabric),
        **variables,
    }
    path.write_text(json.dumps({"lium_fabric": {"hosts": hosts, "vars": common}}))
