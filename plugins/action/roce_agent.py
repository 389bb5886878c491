# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Gives a host its plan from the run folder, and puts its records there: results of tasks stay small.

A collection can take minutes in which Ansible shows nothing, so one of the hosts tells how far it is.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.bundle import agent_file
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RunFolder, pack

display = Display()

#: How often a line tells how far the tests are.
_TELL_S = 20.0


class ActionModule(ActionBase):
    """Runs the module of the same name on the host, between two files of the control node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        state = arguments.get("state")
        if state != "absent":
            if not arguments.get("run_folder"):
                return {**result, "failed": True, "msg": "run_folder is needed with this state"}
            folder = RunFolder(arguments["run_folder"])
            pass_name = arguments.get("pass_name", "sweep")
            host = variables["inventory_hostname"]
            plan = folder.read_plan(pass_name, host)
            if plan is None:
                return {**result, "changed": False, "skipped": True, "skip_reason": "no test of this host is due"}
            if state == "collected":
                arguments["_run"] = plan["run"]
            else:
                # Packed: Ansible walks every value of an argument several times, and a plan names all hosts.
                arguments["_plan"] = pack(json.dumps(plan, separators=(",", ":")))
                arguments["_program"] = base64.b64encode(agent_file()).decode()
        if state == "collected" and _teller(folder, pass_name, variables.get("ansible_play_hosts") or []) == host:
            done = self._collect(arguments, variables, sum(len(row[3]) for row in plan["appointments"]))
        else:
            done = self._execute_module(module_args=arguments, task_vars=variables)
        if "packed" in done:
            folder.write_records(pass_name, host, done.pop("packed"))
        done.pop("invocation", None)
        result.update(done)
        return result

    def _collect(self, arguments: Mapping[str, Any], variables: dict[str, Any], tests: int) -> dict[str, Any]:
        """Collects in several looks, and shows after each how far the host is."""
        started = time.monotonic()
        try:
            wait_s = float(arguments.get("wait_s", 600))
        except (TypeError, ValueError):  # the module says what is wrong with it
            return dict(self._execute_module(module_args=dict(arguments), task_vars=variables))
        while True:
            left = max(0.0, started + wait_s - time.monotonic())
            look = {**arguments, "wait_s": min(left, _TELL_S)}
            done = dict(self._execute_module(module_args=look, task_vars=variables))
            if done.get("ended") != "running" or left <= _TELL_S:
                return done
            display.display(progress(variables["inventory_hostname"], done["count"], tests, time.monotonic() - started))


def progress(host: str, done: int, tests: int, seconds: float) -> str:
    """How far a host's tests are after so many seconds. The hosts keep step, so it stands for all of them."""
    told = f"{host}: {done} of {tests} tests after {seconds:.0f} s"
    return f"{told}, about {seconds / done * (tests - done):.0f} s to go" if done else told


def _teller(folder: RunFolder, pass_name: str, hosts: Sequence[str]) -> str | None:
    """The first host of the play that has a plan: it tells for all."""
    return next((host for host in hosts if folder.has_plan(pass_name, host)), None)
