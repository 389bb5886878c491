#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: runtime_hook
short_description: Make the runtime lium-rdma known to a Docker daemon, or take it out again
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Merges one runtime into C(daemon.json), keeps everything else in it, and lets Docker read it by a reload. Docker is
    never restarted, and the old file is put back when Docker does not take the new one.
  - What was the default runtime before stands behind ours, and is the default again after O(state=absent).
  - Works on the daemon of C(docker.service) with the settings in C(/etc/docker/daemon.json). One that dies all the same
    is started with the old file by systemd; in a pod without systemd the error says that it has to be started.
  - Refuses on a host with a rental, on a file that is not JSON, and on keys that dockerd's command line sets as well.
options:
  state:
    description: Whether the runtime is wanted or taken out.
    type: str
    choices: [present, absent]
    default: present
  scope:
    description:
      - V(host) makes it a runtime that containers may name. V(pod) makes it the default, for the Docker inside a pod.
      - A host must not have it as its default, since containers of partial rentals would be given the devices.
    type: str
    choices: [host, pod]
    default: host
extends_documentation_fragment:
  - lium.cluster._attributes.change
seealso:
  - module: lium.cluster.runtime_info
"""

EXAMPLES = r"""
- name: Make the runtime known
  lium.cluster.runtime_hook:

- name: Take it out
  lium.cluster.runtime_hook:
    state: absent
"""

RETURN = r"""
changes:
  description: What was changed, or would be.
  returned: success
  type: list
  elements: str
left:
  description: What was left, and why.
  returned: success
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._runtime.hook import Hook, HookError, Places


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "scope": {"type": "str", "choices": ["host", "pod"], "default": "host"},
        },
        supports_check_mode=True,
    )
    probe = open_probe("/", os.environ)
    places = Places()
    hook = Hook(
        probe,
        places,
        start=lambda: probe.output("systemctl", "restart", "docker.service", timeout=120) and None,
        dry=module.check_mode,
    )
    try:
        outcome = hook.install(module.params["scope"]) if module.params["state"] == "present" else hook.remove()
    except (HookError, ProbeError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(
        changed=bool(outcome.changes),
        changes=outcome.changes,
        left=outcome.left,
        diff={"before": outcome.before, "after": outcome.after, "before_header": places.daemon_json},
    )


if __name__ == "__main__":
    main()
