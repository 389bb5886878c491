#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_verdict
short_description: Judge a RoCE verification, show it and save it
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Joins the records of all hosts, and says which hosts can be sold together, which part is guilty of what fails, and
    what to mend first to sell more.
  - Shows the matrix of pairs and saves the results as one JSON file, records in the platform's own form included.
  - Use it once a play, with C(run_once=true). It never connects to a host.
options:
  run_folder:
    description: Folder of the run, as M(lium.cluster.roce_plan) made it.
    type: path
    required: true
  results_path:
    description: File for the results. Not written in check mode.
    type: path
  started:
    description: Variable in which the play registered the start by M(lium.cluster.roce_agent).
    type: str
    default: roce_verify_started
  collected:
    description: Variable in which the play registered the collection by M(lium.cluster.roce_agent).
    type: str
    default: roce_verify_collected
  restarted:
    description: As O(started), of the tests that were repeated.
    type: str
    default: roce_verify_restarted
  recollected:
    description: As O(collected), of the tests that were repeated.
    type: str
    default: roce_verify_recollected
  executor_ids:
    description: Executor id on the platform by inventory name.
    type: dict
    default: {}
  keep_run_folder:
    description: Whether the folder of the run stays.
    type: bool
    default: false
extends_documentation_fragment:
  - lium.cluster._attributes.control
"""

EXAMPLES = r"""
- name: Judge, show and save
  lium.cluster.roce_verdict:
    run_folder: "{{ roce_verify_plan.run_folder }}"
    results_path: lium-roce.json
  run_once: true
"""

RETURN = r"""
fabrics:
  description: The verdict of each segment, with pairs, sellable set, guilty parts and order of repairs.
  returned: success
  type: list
  elements: dict
hosts:
  description: The record C(roce.pairs) of each host.
  returned: success
  type: dict
path:
  description: File of the results.
  returned: when O(results_path) is given
  type: str
"""
