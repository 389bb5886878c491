#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_info
short_description: Look whether the container runtime of a host or a pod is the right one
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Checks that Docker would start again with its settings, that the runtime C(lium-rdma) is the default in a pod
    and never on a host, and that it is complete where Docker knows it.
  - Changes nothing.
options:
  scope:
    description: Whether this is a provider's V(host) or the inside of a cluster V(pod).
    type: str
    choices: [host, pod]
    default: host
extends_documentation_fragment:
  - lium.cluster._attributes.check
seealso:
  - module: lium.cluster.runtime_hook
"""

EXAMPLES = r"""
- name: Look at the container runtime
  lium.cluster.runtime_info:
  register: runtime_hook_result
"""

RETURN = r"""
records:
  description: The records of the checks C(runtime.*), as M(lium.cluster.host_info) returns them.
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
from ansible_collections.lium.cluster.plugins.module_utils._runtime.checks import look_at_runtime


def main() -> None:
    module = AnsibleModule(
        argument_spec={"scope": {"type": "str", "choices": ["host", "pod"], "default": "host"}, **HOST_ROOT},
        supports_check_mode=True,
    )
    try:
        result = look_result(look_at_runtime, module.params, os.environ)
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
