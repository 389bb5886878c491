#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: lossless_info
short_description: Look whether the RoCE rails of a host lose no packets, as far as the host can tell
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Follows a RoCE packet along the chain DSCP, priority, PFC, ECN, CNP, buffers on every rail, and names the first link
    that is broken, with the commands that mend it on the host and the text for the operator of the switch.
  - Reads C(mlnx_qos), C(dcb), files of the kernel, the tools of Broadcom and Intel, LLDP and C(ethtool), in their order
    of trust. What none of them tells is C(UNKNOWN), never C(OK).
  - Ports of InfiniBand are not looked at, they have flow control of their own.
  - Changes nothing on the host. With cards of Broadcom it makes a folder in configfs, which is how their settings show,
    and takes it away again.
options:
  priority:
    description:
      - The priority that must be lossless. Without it the host's own choice counts where it is whole, that is when the
        class that the driver forces leads to a priority with PFC; then what the switch announces for RoCE; else V(3).
    type: int
  dscp:
    description: The DSCP of RoCE. Without it as with O(priority); else V(26).
    type: int
  cnp_dscp:
    description: The DSCP of congestion notifications, V(48) without it.
    type: int
  cnp_priority:
    description: The priority of congestion notifications. Without it V(6), and on cards of Broadcom V(7) as well.
    type: int
  pfc_priorities:
    description: All priorities that may be lossless, two at most. Without it that of RoCE alone.
    type: list
    elements: int
  mode:
    description: Whether the site wants no loss at all, or runs RoCE with ECN alone.
    type: str
    choices: [lossless, ecn_only]
    default: lossless
  cable_length:
    description:
      - Length of the longest cable in metres, which the buffers must be set for. Where the card's own setting cannot be
        read, C(roce.buffers) is C(UNKNOWN).
    type: int
extends_documentation_fragment:
  - lium.cluster._attributes.check
seealso:
  - module: lium.cluster.rdma_info
"""

EXAMPLES = r"""
- name: Look whether the rails are lossless
  lium.cluster.lossless_info:
  register: lossless_result

- name: The same on a site with values of its own
  lium.cluster.lossless_info:
    priority: 5
    dscp: 59
"""

RETURN = r"""
records:
  description:
    - C(roce.lossless) with the verdict, and a record for each of C(roce.pfc), C(roce.trust), C(roce.dscp_map),
      C(roce.effective_dscp), C(roce.ecn), C(roce.cnp), C(roce.pause), C(roce.buffers), C(roce.ets),
      C(roce.dcbx_owner) and C(roce.dcbx_peer), as M(lium.cluster.host_info) returns them.
  returned: success
  type: list
  elements: dict
status:
  description: The worst status of all records.
  returned: success
  type: str
facts:
  description:
    - In C(lossless) the verdict (C(lossless), C(lossy), C(unknown), and C(not_applicable) for a host that has ports of
      InfiniBand or iWARP alone) with its confidence (C(host_only), C(host_and_peer), C(exercised)), the same of each
      rail with the broken link, the switch that its netdev hears over LLDP, and the pause frames that the card has
      counted on the priority of RoCE (null where it shows no such counter), and the commands for switches by system.
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._look import HOST_ROOT, look_result, unreadable
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import POLICY_OPTIONS, PolicyError
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError


def main() -> None:
    module = AnsibleModule(argument_spec={**POLICY_OPTIONS, **HOST_ROOT}, supports_check_mode=True)
    try:
        result = look_result(look_at_lossless, module.params, os.environ)
    except PolicyError as exc:
        module.fail_json(msg=str(exc), failure={"code": "wrong_option", "details": str(exc)})
    except ProbeError as exc:
        module.fail_json(**unreadable(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
