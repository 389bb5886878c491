# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Gives a host its plan from the run folder, and puts its records there: results of tasks stay small."""

from __future__ import annotations

import base64
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.bundle import agent_file
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RunFolder


class ActionModule(ActionBase):
    """Runs the module of the same name on the host, between two files of the control node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        if arguments.get("state") != "absent":
            if not arguments.get("run_folder"):
                return {**result, "failed": True, "msg": "run_folder is needed with this state"}
            folder = RunFolder(arguments["run_folder"])
            pass_name = arguments.get("pass_name", "sweep")
            host = variables["inventory_hostname"]
            plan = folder.read_plan(pass_name, host)
            if plan is None:
                return {**result, "changed": False, "skipped": True, "skip_reason": "no test of this host is due"}
            collecting = arguments["state"] == "collected"
            arguments["_plan"] = {"run": plan["run"]} if collecting else plan
            if not collecting:
                arguments["_program"] = base64.b64encode(agent_file()).decode()
        done = self._execute_module(module_args=arguments, task_vars=variables)
        if "packed" in done:
            folder.write_records(pass_name, host, done.pop("packed"))
        done.pop("invocation", None)
        result.update(done)
        return result
