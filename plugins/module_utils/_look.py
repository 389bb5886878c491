# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The edge between Ansible and a read-only check: options, result, and the only place where such a module fails.

A new check module is its documentation, an argument spec, a ``look`` function and one call of :func:`run_check_module`.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ProbeError, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record, worst_status


class Look(NamedTuple):
    """What a check module found: records for people, facts for the comparison between hosts."""

    records: Sequence[Record]
    facts: Mapping[str, Any]


def run_check_module(
    look: Callable[[HostProbe, Mapping[str, Any]], Look], argument_spec: Mapping[str, Any] | None = None
) -> None:
    """Runs a read-only check and ends the module. It never changes a host, so check mode runs it in full."""
    module = AnsibleModule(
        argument_spec={**(argument_spec or {}), "host_root": {"type": "path", "default": "/"}},
        supports_check_mode=True,
    )
    try:
        found = look(open_probe(module.params["host_root"], os.environ), module.params)
    except ProbeError as exc:
        module.fail_json(msg=str(exc), failure={"code": "unreadable", "details": str(exc)})
    records = [record.as_dict() for record in found.records]
    module.exit_json(
        changed=False,
        records=records,
        facts=dict(found.facts),
        status=worst_status(record["status"] for record in records),
    )
