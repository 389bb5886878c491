"""The Ansible inventory of a rack."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from tests.rack.host import Host

#: The collection's inventory group (design 4.4); below it one group a fabric.
GROUP, FABRIC = "lium_fabric", "rack"


def inventory(hosts: list[Host], key: Path) -> str:
    """The inventory file as YAML: works as root on this machine, from outside the rack's namespace."""
    variables: dict[str, Any] = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_pipelining": True,
        # No compression: it costs the emulated processors more than the wire saves.
        "ansible_ssh_args": "-o ControlMaster=auto -o ControlPersist=120",
        "ansible_ssh_timeout": 60,
    }
    members = {
        host.name: {
            "ansible_host": host.address,
            "ansible_ssh_common_args": shlex.join(host.ssh_options()),
        }
        for host in hosts
    }
    tree = {"all": {"children": {GROUP: {"children": {FABRIC: {"hosts": members, "vars": variables}}}}}}
    return "# Written by the rack of virtual hosts; it is rewritten whenever the rack starts.\n" + yaml.safe_dump(tree)
