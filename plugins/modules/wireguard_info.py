#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: wireguard_info
short_description: Look whether cluster pods can build their overlay on a host
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Checks the kernel's WireGuard, the UDP port of the overlay, networks that clash with it, the firewall on the path of
    a published port, stale connection tracking, and the MTU below the bridge of the rentals.
  - Changes nothing on the host. Whether the port is open between two hosts is seen by the playbook
    C(lium.cluster.verify_wireguard) only.
options:
  ports:
    description: UDP ports of the host that an overlay may be given.
    type: list
    elements: int
    default: [51820]
  range:
    description:
      - The executor's renting ports, as V(9000-9009), V(9001,9002) or pairs of its C(RENTING_PORT_MAPPINGS). Without it
        the executor's own setting is read.
    type: str
    default: ""
  mesh_interface:
    description: Name of the provider's own mesh, which is looked at as well.
    type: str
  packages:
    description: Packages that a role may install; RV(facts) says which of them are there.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - lium.cluster._attributes.check
seealso:
  - module: lium.cluster.host_info
"""

EXAMPLES = r"""
- name: Look at the overlay's needs
  lium.cluster.wireguard_info:
  register: wireguard_result
"""

RETURN = r"""
records:
  description: The records of the checks C(wg.*), as M(lium.cluster.host_info) returns them.
  returned: success
  type: list
  elements: dict
status:
  description: The worst status of all records.
  returned: success
  type: str
facts:
  description: What was read, for the role and for comparison between hosts.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._look import HOST_ROOT, look_result, unreadable
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import look_at_wireguard


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "int", "default": [51820]},
            "range": {"type": "str", "default": ""},
            "mesh_interface": {"type": "str"},
            "packages": {"type": "list", "elements": "str", "default": []},
            **HOST_ROOT,
        },
        supports_check_mode=True,
    )
    try:
        result = look_result(look_at_wireguard, module.params, os.environ)
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
