#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_info
short_description: Look at the RDMA stack and ports of a host, and at what the platform will make of them
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Reads devices, ports, link layers, GIDs with their types, netdevs, addresses, MTU and NUMA nodes in one call.
  - Applies the platform's own rules to them, so that the records say before the platform does why a host will be seen
    as InfiniBand, as RoCE, or not at all.
  - Changes nothing on the host.
options:
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
- name: Look at the RDMA ports
  lium.cluster.rdma_info:
  register: rdma_result
"""

RETURN = r"""
records:
  description: The records of the RDMA stack and of the fabric ports, as M(lium.cluster.host_info) returns them.
  returned: success
  type: list
  elements: dict
status:
  description: The worst status of all records.
  returned: success
  type: str
facts:
  description:
    - Devices, ports with GIDs, rails, segments and the predicted values of C(NCCL_IB_HCA) and C(NCCL_IB_GID_INDEX).
    - In C(rdma_setup) what the role needs to know before it changes anything.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look_at_rdma
from ansible_collections.lium.cluster.plugins.module_utils._look import HOST_ROOT, look_result, unreadable
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError


def main() -> None:
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "default": []}, **HOST_ROOT},
        supports_check_mode=True,
    )
    try:
        result = look_result(look_at_rdma, module.params, os.environ)
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
