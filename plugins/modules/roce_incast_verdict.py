#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_incast_verdict
short_description: Judge what the counters around incasts prove
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Says of each port whether packets were lost while all other hosts of its segment sent to it, and where. The port is
    C(exercised_ok) when pause or ECN held the senders back at its line rate and no counter of loss moved,
    C(exercised_loss) when one did, C(not_exercised) when the load was not enough, and C(unknown) when there is nothing
    to read, as on Soft-RoCE.
  - A verdict of M(lium.cluster.lossless_info) becomes surer by it (C(exercised)), or C(lossy) whatever was set.
  - Use it once a play, with C(run_once=true). It never connects to a host.
options:
  run_folder:
    description: Folder of the run, as M(lium.cluster.roce_plan) made it with C(mode=incast).
    type: path
    required: true
  started:
    description: Variable in which the play registered the start by M(lium.cluster.roce_agent).
    type: str
    default: roce_verify_started
  collected:
    description: Variable in which the play registered the collection by M(lium.cluster.roce_agent).
    type: str
    default: roce_verify_collected
  lossless:
    description: Variable in which the play registered the result of M(lium.cluster.lossless_info).
    type: str
    default: lossless_result
  keep_run_folder:
    description: Whether the folder of the run stays.
    type: bool
    default: false
extends_documentation_fragment:
  - lium.cluster._attributes.control
"""

EXAMPLES = r"""
- name: Judge and show
  lium.cluster.roce_incast_verdict:
    run_folder: "{{ roce_verify_plan.run_folder }}"
  run_once: true
"""

RETURN = r"""
incasts:
  description: Each incast with its senders, rates, counters and verdict, as the JSON report has it.
  returned: success
  type: list
  elements: dict
hosts:
  description:
    - By host the record C(roce.loss_counters), and C(roce.lossless) where the load changes it, with the facts of
      M(lium.cluster.lossless_info) brought up to date.
  returned: success
  type: dict
"""
