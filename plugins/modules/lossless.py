#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: lossless
short_description: Make the RoCE rails of a host lossless, or take exactly that back
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Sets PFC, trust mode, DSCP map, forced traffic class, ECN, CNP and pause of the physical netdevs below the RoCE
    rails, where they differ from what is wanted, and reads all of it again. What does not read as written is taken
    back.
  - The settings are volatile. The unit C(lium-lossless.service) makes them, now and at each boot.
  - Never writes while a rental runs or the platform measures, never to the netdev that carries the Ansible connection
    or the default route, and nothing that could not be read before. What it leaves stands in RV(left).
  - With O(state=absent) it sets back what it has set, unless someone else has changed it since.
options:
  state:
    description: Whether the set-up is wanted or taken back.
    type: str
    choices: [present, absent]
    default: present
  priority:
    description: As of M(lium.cluster.lossless_info).
    type: int
  dscp:
    description: As of M(lium.cluster.lossless_info).
    type: int
  cnp_dscp:
    description: As of M(lium.cluster.lossless_info).
    type: int
  cnp_priority:
    description: As of M(lium.cluster.lossless_info).
    type: int
  pfc_priorities:
    description: As of M(lium.cluster.lossless_info).
    type: list
    elements: int
  mode:
    description: As of M(lium.cluster.lossless_info). With V(ecn_only) PFC is left as it is.
    type: str
    choices: [lossless, ecn_only]
    default: lossless
  cable_length:
    description: As of M(lium.cluster.lossless_info). Buffers are reported only.
    type: int
extends_documentation_fragment:
  - lium.cluster._attributes.change
seealso:
  - module: lium.cluster.lossless_info
"""

EXAMPLES = r"""
- name: Make the rails lossless
  lium.cluster.lossless:

- name: Take it back
  lium.cluster.lossless:
    state: absent
"""

RETURN = r"""
changes:
  description: What was done, or would be, one line a change.
  returned: success
  type: list
  elements: str
left:
  description: What was not done, and why.
  returned: success
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._footprint import FootprintError
from ansible_collections.lium.cluster.plugins.module_utils._ledger import LedgerError
from ansible_collections.lium.cluster.plugins.module_utils._lossless.manage import ManageError, Manager
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import POLICY_OPTIONS, Policy, PolicyError
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, open_probe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            **POLICY_OPTIONS,
        },
        supports_check_mode=True,
    )
    manager = Manager(open_probe("/", os.environ), os.getpid(), dry=module.check_mode)
    try:
        if module.params["state"] == "present":
            outcome = manager.present(Policy.from_options(module.params))
        else:
            outcome = manager.absent()
    except (ManageError, PolicyError, FootprintError, LedgerError, ProbeError, ParseError, OSError) as exc:
        module.fail_json(msg=str(exc), failure={"code": "lossless", "details": str(exc)})
    module.exit_json(
        changed=bool(outcome.changes),
        changes=outcome.changes,
        left=outcome.left,
        diff=[
            {"before_header": name, "after_header": name, "before": outcome.before[name], "after": outcome.after[name]}
            for name in outcome.after
        ],
    )


if __name__ == "__main__":
    main()
