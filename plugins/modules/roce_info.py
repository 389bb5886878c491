#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_info
short_description: Look whether RDMA tests may run on a host, and over which rails
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Finds the RoCE rails of a host in the platform's order, with what each can carry.
  - Says whatever forbids a test on them, that is a rental, a measurement of the platform, addresses that hide the host,
    or another program on the device.
  - Changes nothing on the host.
options:
  allow_busy:
    description: Whether tests may run beside other programs that use the RDMA devices.
    type: bool
    default: false
extends_documentation_fragment:
  - lium.cluster._attributes.check
"""

EXAMPLES = r"""
- name: Look at the rails
  lium.cluster.roce_info:
  register: roce_verify_look
"""

RETURN = r"""
records:
  description: Records C(roce.testable) and C(roce.test_uplink).
  returned: success
  type: list
  elements: dict
status:
  description: The worst status of the records.
  returned: success
  type: str
facts:
  description: Under C(roce) the rails, and why no test may run (empty when one may).
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._look import HOST_ROOT, look_result, unreadable
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError
from ansible_collections.lium.cluster.plugins.module_utils._roce.testable import look


def main() -> None:
    module = AnsibleModule(
        argument_spec={"allow_busy": {"type": "bool", "default": False}, **HOST_ROOT}, supports_check_mode=True
    )
    try:
        result = look_result(look, module.params, os.environ)
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
