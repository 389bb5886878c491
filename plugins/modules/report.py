#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Show and save what the checks of all hosts of a play found
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Shows a table of hosts and areas, and below it what to do next, and saves the records of all hosts as one JSON file
    on the control node.
  - Fails when a record says C(MUST_FIX), so that a run in a pipeline stops. A host that could not be reached is such
    a record.
  - Use it once a play, with C(run_once=true). It never connects to a host.
options:
  results:
    description:
      - Names of the variables in which the play registered the results of check modules. Of two records with one id
        the one in the later variable wins.
    type: list
    elements: str
    required: true
  path:
    description: File for the JSON report, as C(docs/schema/report.schema.json) has it. Not written in check mode.
    type: path
  page:
    description: File for the report as one HTML page with nothing outside it. Not written in check mode.
    type: path
  roce_results:
    description:
      - Results of the playbook C(lium.cluster.verify_roce). Where the file exists, the page has the matrix of pairs,
        and only hosts whose every pair is proven count as sellable.
    type: path
  incasts:
    description: Incasts of the counter proof, as M(lium.cluster.roce_incast_verdict) returns them, for the JSON report.
    type: list
    elements: dict
    default: []
  playbook:
    description: Name of the playbook, for the report.
    type: str
    default: audit
  fail_on_must_fix:
    description: Whether a record with status C(MUST_FIX) fails the task.
    type: bool
    default: true
  before_changes:
    description:
      - Whether the hosts are as they were before the play, which check mode leaves them although the play would change
        them. The screen then says so, and only a host that could not be looked at, or on which a role failed, fails the
        task; other faults may be those that the real run mends.
    type: bool
    default: false
extends_documentation_fragment:
  - lium.cluster._attributes.control
"""

EXAMPLES = r"""
- name: Show and save what was found
  lium.cluster.report:
    results:
      - preflight_result
    path: lium-report.json
  run_once: true
"""

RETURN = r"""
status:
  description: The worst status of all hosts.
  returned: always
  type: str
counts:
  description: How many records have which status.
  returned: always
  type: dict
path:
  description: File of the report.
  returned: when O(path) is given
  type: str
page:
  description: File of the page.
  returned: when O(page) is given
  type: str
"""
