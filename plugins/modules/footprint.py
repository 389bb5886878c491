#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: footprint
short_description: Make the changes of one role on a host, or take exactly these back
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Makes files, loaded kernel modules, kernel settings, modes of device nodes and netdevs as a role wants them, in one
    call, and notes before each change how to undo it, in C(/var/lib/lium-cluster/ROLE.json) on the host.
  - With O(state=absent) it undoes what stands in that file, newest first, and nothing else. What someone else changed
    since then is left as it is and named in RV(left), and so is, while a rental runs, what that one may live on.
options:
  role:
    description: Name of the role whose changes these are.
    type: str
    required: true
  state:
    description:
      - Whether the changes are wanted or taken back.
      - With V(noted) nothing is changed, and O(packages) and O(package_files), which are about to come, are noted.
    type: str
    choices: [present, absent, noted]
    default: present
  packages:
    description:
      - Packages that a task is about to install. Those that are not there yet are noted. Used with O(state=noted).
    type: list
    elements: str
    default: []
  package_files:
    description:
      - Files of packages that a task is about to fetch and to install, which go with the role. The name of a package
        is noted as soon as its file is there. Used with O(state=noted).
    type: list
    elements: path
    default: []
  files:
    description: Files that belong to the role alone.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: str
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      mode:
        description: Mode as an octal string.
        type: str
        default: "0644"
  modules:
    description: Kernel modules to load. Loading at boot takes a file in C(/etc/modules-load.d).
    type: list
    elements: str
    default: []
  modules_before:
    description:
      - Modules that were loaded before the packages of the role were installed. Those of the kernel's RDMA stack that
        came since are the role's as well. Without it none is.
    type: list
    elements: str
  sysctls:
    description: Kernel settings to set now. Setting them at boot takes a file in C(/etc/sysctl.d).
    type: dict
    default: {}
  modes:
    description: Modes of device nodes, by pattern of paths, as octal strings.
    type: dict
    default: {}
  links_up:
    description: Netdevs to set up now.
    type: list
    elements: str
    default: []
  firewall:
    description:
      - Ports to let through, by the tool that is active on the host. What it has for one already stays as it is.
    type: list
    elements: dict
    default: []
    suboptions:
      tool:
        description: The active tool.
        type: str
        choices: [ufw, firewalld]
        required: true
      port:
        description: The port.
        type: int
        required: true
      protocol:
        description: Its protocol.
        type: str
        choices: [udp, tcp]
        default: udp
      netdev:
        description: With ufw the netdev by which packets for the host itself come in, empty for a published port.
        type: str
        default: ""
      zone:
        description: Zone of firewalld, now and from its next start on.
        type: str
        default: ""
  installed_by:
    description: Results of the package tasks of the role. What these have added is noted, and returned as RV(packages).
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - lium.cluster._attributes.change
"""

EXAMPLES = r"""
- name: Load a module now and at boot
  lium.cluster.footprint:
    role: example
    modules: [ib_uverbs]
    files:
      - path: /etc/modules-load.d/lium-example.conf
        content: |
          ib_uverbs

- name: Take it back
  lium.cluster.footprint:
    role: example
    state: absent
"""

RETURN = r"""
changes:
  description: What was done, one line a change.
  returned: always
  type: list
  elements: str
left:
  description: What was not taken back, and why.
  returned: always
  type: list
  elements: str
package_manager:
  description: What removes packages on this host, C(apt) or C(dnf).
  returned: always
  type: str
packages:
  description: Packages that the role brought and that are still noted. With O(state=absent) none while a rental runs.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._docker import occupancy
from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import FirewallError, rules_of
from ansible_collections.lium.cluster.plugins.module_utils._footprint import (
    Footprint,
    FootprintError,
    ManagedFile,
    Wanted,
)
from ansible_collections.lium.cluster.plugins.module_utils._kmod import RDMA_CORE_MODULES, loaded_modules
from ansible_collections.lium.cluster.plugins.module_utils._ledger import LedgerError
from ansible_collections.lium.cluster.plugins.module_utils._packages import PackageError, added_packages
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, open_probe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "noted"], "default": "present"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "package_files": {"type": "list", "elements": "path", "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "str", "required": True},
                    "content": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0644"},
                },
            },
            "modules": {"type": "list", "elements": "str", "default": []},
            "modules_before": {"type": "list", "elements": "str"},
            "sysctls": {"type": "dict", "default": {}},
            "modes": {"type": "dict", "default": {}},
            "links_up": {"type": "list", "elements": "str", "default": []},
            "firewall": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "tool": {"type": "str", "choices": ["ufw", "firewalld"], "required": True},
                    "port": {"type": "int", "required": True},
                    "protocol": {"type": "str", "choices": ["udp", "tcp"], "default": "udp"},
                    "netdev": {"type": "str", "default": ""},
                    "zone": {"type": "str", "default": ""},
                },
            },
            "installed_by": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    options = module.params
    busy = ""
    try:
        footprint = Footprint(options["role"], dry=module.check_mode)
        if options["state"] == "absent":
            busy = occupancy(open_probe("/", {})).busy_for_drivers
            outcome = footprint.remove(busy)
        elif options["state"] == "noted":
            footprint.note_packages(options["packages"], options["package_files"])
            outcome = footprint.outcome
        else:
            outcome = footprint.apply(_wanted(options))
    except (FirewallError, FootprintError, LedgerError, PackageError, ProbeError, OSError, ValueError) as exc:
        module.fail_json(msg=str(exc), failure={"code": "footprint", "details": str(exc)})
    module.exit_json(
        changed=bool(outcome.changes),
        changes=outcome.changes,
        left=outcome.left,
        packages=[] if busy else footprint.packages,
        package_manager="apt" if footprint.apt else "dnf",
        diff=[
            {"before_header": name, "after_header": name, "before": outcome.before[name], "after": outcome.after[name]}
            for name in outcome.after
        ],
    )


def _wanted(options):
    return Wanted(
        files=[ManagedFile(row["path"], row["content"], int(row["mode"], 8)) for row in options["files"]],
        modules=options["modules"],
        loaded_since=_loaded_since(options["modules_before"]),
        sysctls={key: str(value) for key, value in options["sysctls"].items()},
        modes={pattern: int(str(mode), 8) for pattern, mode in options["modes"].items()},
        links_up=options["links_up"],
        firewall=[rule for row in options["firewall"] for rule in rules_of(row)],
        packages=added_packages(options["installed_by"]),
    )


def _loaded_since(before):
    return [] if before is None else sorted(loaded_modules() & RDMA_CORE_MODULES - set(before))


if __name__ == "__main__":
    main()
