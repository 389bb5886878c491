# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Judges the incasts of a counter proof on the control node, and shows what they proved."""

from __future__ import annotations

import shutil
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import ends_of
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_verdict import conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RunFolder

display = Display()


class ActionModule(ActionBase):
    """Runs once for the whole play and never connects to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = self.validate_argument_spec(
            argument_spec={
                "run_folder": {"type": "path", "required": True},
                "started": {"type": "str", "default": "roce_verify_started"},
                "collected": {"type": "str", "default": "roce_verify_collected"},
                "lossless": {"type": "str", "default": "lossless_result"},
                "keep_run_folder": {"type": "bool", "default": False},
            }
        )[1]
        variables = task_vars or {}
        ends = ends_of(variables, options["started"], options["collected"])
        lossless = {host: variables["hostvars"][host].get(options["lossless"], {}) for host in ends}
        done = conclude(RunFolder(options["run_folder"]), ends, lossless)
        display.display(done.screen)
        if not options["keep_run_folder"]:
            shutil.rmtree(options["run_folder"], ignore_errors=True)
        result.update(changed=False, incasts=done.rows, hosts=done.results)
        return result
