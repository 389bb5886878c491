#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_plan
short_description: Plan a RoCE verification, its reruns, or a counter proof
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Makes a plan for each host of the play in a folder on the control node, from what M(lium.cluster.roce_info) saw.
  - Hosts meet in their segment only. Hosts that may not be tested, and hosts that claim one address, are left out by
    name.
  - With O(pass_name=rerun) the plans are for what the sweep left open; there are none when nothing went wrong.
  - Use it once a play, with C(run_once=true). It never connects to a host.
options:
  pass_name:
    description: Part of the run that is planned.
    type: str
    choices: [sweep, rerun]
    default: sweep
  run_folder:
    description: Folder of the run, for O(pass_name=rerun).
    type: path
  look:
    description: Variable in which the play registered the result of M(lium.cluster.roce_info).
    type: str
    default: roce_verify_look
  lossless:
    description: Variable in which the play registered the result of M(lium.cluster.lossless_info), for O(mode=incast).
    type: str
    default: lossless_result
  mode:
    description:
      - C(platform) for the platform's own test, C(full) for every rail in both directions.
      - C(incast) for the counter proof, in which all others of a segment send to each port once.
    type: str
    choices: [platform, full, incast]
    default: platform
  port:
    description: TCP port of the tests.
    type: int
  iterations:
    description: Messages of one test, in the mode C(full).
    type: int
  duration_s:
    description: Seconds of one test, in the modes C(full) and C(incast).
    type: int
  qps:
    description: Queue pairs of one test, in the modes C(full) and C(incast).
    type: int
  tclass:
    description: Traffic class, in the mode C(full). In the mode C(incast) by default that of the hosts' own site.
    type: int
  image:
    description: Container image of the platform's probe, in the mode C(platform).
    type: str
  pair_timeout_s:
    description: Time limit of one test in seconds, on top of its duration.
    type: float
    default: 30
  listen_wait_s:
    description: How many seconds a server may take until it listens.
    type: float
    default: 10
  patience_s:
    description: How many seconds a host may be silent before the others go on without it.
    type: float
    default: 20
  start_wait_s:
    description: How many seconds agents wait for one that has not started yet.
    type: float
    default: 120
  retry:
    description: How often a client that came before its server is started again.
    type: int
    default: 1
  reruns:
    description: Whether any rerun is wanted.
    type: bool
    default: true
  budget_s:
    description: Time for the sweep in seconds. By default the number of rounds times the time limit of one test.
    type: float
  control_port:
    description: TCP port on the fabric over which the agents talk.
    type: int
    default: 18614
  results_path:
    description: File of results of earlier runs. What is proven in it and fresh is not measured again.
    type: path
  max_age_s:
    description: How old a proof may be, in seconds.
    type: float
    default: 21600
  prefix_length:
    description: Prefix length of a segment. The platform assumes 24, whatever the real one is.
    type: int
    default: 24
extends_documentation_fragment:
  - lium.cluster._attributes.control
"""

EXAMPLES = r"""
- name: Plan the sweep
  lium.cluster.roce_plan:
    results_path: lium-roce.json
  register: roce_verify_plan
  run_once: true
"""

RETURN = r"""
run_folder:
  description: Folder of the run on the control node.
  returned: success
  type: str
hosts:
  description: Hosts with a plan.
  returned: success
  type: list
  elements: str
rounds:
  description: Number of rounds.
  returned: success
  type: int
tests:
  description: Number of tests.
  returned: success
  type: int
pairs:
  description: Number of pairs with a test.
  returned: for a sweep
  type: int
kept:
  description: Number of tests that are proven and fresh.
  returned: for a sweep
  type: int
refused:
  description: Reason by host that is left out.
  returned: for a sweep
  type: dict
wait_s:
  description: How many seconds to wait for the agents at most.
  returned: success
  type: float
"""
