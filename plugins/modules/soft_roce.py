#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: soft_roce
short_description: Add or remove a Soft-RoCE device
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Makes an RDMA device out of an Ethernet netdev by the kernel's C(rdma_rxe), to try the collection without cards.
  - The device is gone after a reboot. Hosts to be sold have cards and need none of this.
options:
  name:
    description: Name of the RDMA device.
    type: str
    default: rxe0
  netdev:
    description: Netdev to put it on. Needed with O(state=present).
    type: str
  state:
    description: Whether the device is wanted.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: none
  idempotent:
    description: A second run under the same conditions changes nothing.
    support: full
  action_group:
    description: Use C(group/lium.cluster.cluster) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - lium.cluster.cluster
"""

EXAMPLES = r"""
- name: Try RDMA on an ordinary netdev
  lium.cluster.soft_roce:
    netdev: eth0
"""

RETURN = r""" # """

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.rdma_tool import parse_rdma_link
from ansible_collections.lium.cluster.plugins.module_utils._probe import CommandError, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._rdma.soft import SoftRoceError, explain_add, needs_change


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "rxe0"},
            "netdev": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["netdev"])],
        supports_check_mode=True,
    )
    options = module.params
    try:
        changed = _converge(options["name"], options["netdev"], options["state"] == "present", module.check_mode)
    except (SoftRoceError, CommandError, ParseError) as exc:
        module.fail_json(msg=str(exc), failure={"code": "soft_roce", "details": str(exc)})
    module.exit_json(changed=changed)


def _converge(name, netdev, wanted, check_mode):
    host = open_probe("/", os.environ)
    links = parse_rdma_link(host.output("rdma", "link", "show")) if host.exists("/sys/module/ib_core") else []
    if not wanted:
        changed = any(link.device == name for link in links)
        if changed and not check_mode:
            host.output("rdma", "link", "delete", name)
        return changed
    if not needs_change(links, name, netdev):
        return False
    if not host.exists(f"/sys/class/net/{netdev}"):
        raise SoftRoceError(explain_add(name, netdev, "error: No such device"))
    if not check_mode:
        for argv in (("modprobe", "rdma_rxe"), ("rdma", "link", "add", name, "type", "rxe", "netdev", netdev)):
            done = host.run(*argv)
            if done.rc != 0:
                raise SoftRoceError(explain_add(name, netdev, done.stderr))
    return True


if __name__ == "__main__":
    main()
