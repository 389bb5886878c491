#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Look whether a host can be sold as a node of a cluster
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Runs the checks of platform, kernel, RDMA stack, fabric ports, links, PCIe, memory, Docker and executor in one call.
  - Changes nothing on the host.
  - A check that could not read what it needs answers C(UNKNOWN), never C(OK).
options: {}
extends_documentation_fragment:
  - lium.cluster._attributes.check
"""

EXAMPLES = r"""
- name: Look at the host
  lium.cluster.host_info:
  register: preflight_result

- name: Look at a recorded host
  lium.cluster.host_info:
    host_root: /srv/recorded/host-7
"""

RETURN = r"""
records:
  description: One record a check, in the order of the host contract.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Stable name of the check, for example C(os.supported).
      type: str
    title:
      description: The check in words.
      type: str
    status:
      description: One of C(OK), C(WARN), C(MUST_FIX), C(UNKNOWN), C(SKIPPED).
      type: str
    observed:
      description: What the host shows.
      type: str
    expected:
      description: What a good host shows.
      type: str
    remediation:
      description: What to do, and why it matters for a sale. Empty when nothing has to be done.
      type: str
    evidence_source:
      description: File or command that the verdict rests on.
      type: str
    severity:
      description: One of C(blocker), C(degraded), C(info).
      type: str
status:
  description: The worst status of all records.
  returned: success
  type: str
facts:
  description: What was read, for comparison between hosts.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look
from ansible_collections.lium.cluster.plugins.module_utils._look import HOST_ROOT, look_result, unreadable
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError


def main() -> None:
    module = AnsibleModule(argument_spec=dict(HOST_ROOT), supports_check_mode=True)
    try:
        result = look_result(look, module.params, os.environ)
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
