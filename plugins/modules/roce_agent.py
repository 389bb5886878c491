#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_agent
short_description: Start the agent of a RoCE verification on a host, or collect what it measured
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - With O(state=started) the host gets C(lium-roce-agent), one file for Python's standard library, and the host's plan,
    and the agent is started. From there it works alone.
  - With O(state=collected) the module waits for the agent's end and brings its records to the control node.
  - With O(state=absent) an agent that still runs is stopped, and its folder is removed.
  - Plans and records are files in O(run_folder) on the control node, so that no task's result grows with the hosts.
  - A host without a plan in O(run_folder) is left alone.
options:
  state:
    description: What to do.
    type: str
    choices: [started, collected, absent]
    required: true
  run_folder:
    description: Folder of the run on the control node, by M(lium.cluster.roce_plan). Needed unless O(state=absent).
    type: path
  pass_name:
    description: Part of the run, C(sweep) or C(rerun).
    type: str
    default: sweep
  wait_s:
    description: How many seconds O(state=collected) waits for the agent's end.
    type: float
    default: 600
  folder:
    description: Folder of the agent on the host.
    type: path
    default: /var/lib/lium-cluster/roce
  lock:
    description: Lock file on the host that keeps two verifications apart.
    type: path
    default: /run/lock/lium-roce.lock
extends_documentation_fragment:
  - lium.cluster._attributes.control
"""

EXAMPLES = r"""
- name: Start the agents
  lium.cluster.roce_agent:
    state: started
    run_folder: "{{ roce_verify_plan.run_folder }}"

- name: Collect
  lium.cluster.roce_agent:
    state: collected
    run_folder: "{{ roce_verify_plan.run_folder }}"
"""

RETURN = r"""
ended:
  description:
    - How the agent ended, one of C(done), C(budget), C(quarantined), C(rented), C(stopped), C(failed), C(killed),
      C(running).
  returned: when collected
  type: str
why:
  description: The reason, where there is one.
  returned: when collected
  type: str
count:
  description: Number of records.
  returned: when collected
  type: int
"""

import base64
import json
import sys
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._roce.remote import AgentError, RemoteAgent


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "collected", "absent"], "required": True},
            "run_folder": {"type": "path"},
            "pass_name": {"type": "str", "default": "sweep"},
            "wait_s": {"type": "float", "default": 600},
            "folder": {"type": "path", "default": "/var/lib/lium-cluster/roce"},
            "lock": {"type": "path", "default": "/run/lock/lium-roce.lock"},
            # Set by the action plug-in: the plan from the run folder, compressed and in base64; the agent's file in
            # base64; and the run whose records are collected.
            "_plan": {"type": "str"},
            "_program": {"type": "str"},
            "_run": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    agent = RemoteAgent(params["folder"], params["lock"])
    try:
        if params["state"] == "absent":
            module.exit_json(changed=agent.remove(really=not module.check_mode))
        if module.check_mode:
            module.exit_json(changed=params["state"] == "started", skipped=True, msg="tests do not run in check mode")
        if params["state"] == "started":
            plan = json.loads(zlib.decompress(base64.b64decode(params["_plan"])))
            program = base64.b64decode(params["_program"])
            module.exit_json(changed=agent.start(plan, program, sys.executable))
        collected = agent.collect(params["_run"], params["wait_s"])
        module.exit_json(changed=False, **collected)
    except AgentError as exc:
        module.fail_json(msg=str(exc), failure={"code": exc.code, "details": str(exc)})


if __name__ == "__main__":
    main()
