# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What the modules of the collection have in common in their documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes, and the option through which a check reads a recorded host."""

    # Modules that only look.
    CHECK = r"""
options:
  host_root:
    description:
      - Folder that stands for C(/) of the host.
      - With any other folder than C(/) the module looks at a recorded host, that is its files below this folder,
        and the answers of its commands in the file C(commands.json) in it. No command is run then.
    type: path
    default: /
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

    # Modules that change a host, and say in check mode what they would.
    CHANGE = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: full
  idempotent:
    description: A second run under the same conditions changes nothing.
    support: full
  action_group:
    description: Use C(group/lium.cluster.cluster) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - lium.cluster.cluster
"""

    # Modules that gather and judge on the control node, or prepare what it judges; the hosts keep nothing of them.
    CONTROL = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: none
"""
