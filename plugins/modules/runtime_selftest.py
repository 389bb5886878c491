#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_selftest
short_description: Try the runtime lium-rdma with two small containers
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Starts a container on C(lium-rdma), which must have the RDMA devices and unlimited locked memory, and one on runc,
    which must have no such device. Both are gone afterwards.
  - Pulls no image. On a host with a rental nothing is started, and the record says so.
options:
  image:
    description: An image that the daemon has, with C(sh) and C(ls) in it.
    type: str
    required: true
  scope:
    description: On a V(host) the runtime is named. In a V(pod) it has to be the default.
    type: str
    choices: [host, pod]
    default: host
  docker_host:
    description: Address of the daemon, as in the variable C(DOCKER_HOST). Docker's own default without it.
    type: str
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: none
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
seealso:
  - module: lium.cluster.runtime_info
"""

EXAMPLES = r"""
- name: Try the runtime
  lium.cluster.runtime_selftest:
    image: busybox:1.36
  register: runtime_selftest_result
"""

RETURN = r"""
records:
  description: The record C(runtime.selftest), as M(lium.cluster.host_info) returns its records.
  returned: success
  type: list
  elements: dict
status:
  description: The status of that record.
  returned: success
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._look import unreadable
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._runtime.selftest import selftest


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "scope": {"type": "str", "choices": ["host", "pod"], "default": "host"},
            "docker_host": {"type": "str"},
        },
    )
    environ = dict(os.environ)
    if module.params["docker_host"]:
        environ["DOCKER_HOST"] = module.params["docker_host"]
    try:
        record = selftest(open_probe("/", environ), module.params["image"], module.params["scope"])
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(changed=False, records=[record.as_dict()], status=record.status)


if __name__ == "__main__":
    main()
