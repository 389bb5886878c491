# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the plans of all hosts on the control node, for the sweep, for the reruns after it, or for incasts."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_plan import plan_incasts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import (
    INCAST,
    OPTIONS,
    Planned,
    plan_reruns_of,
    plan_sweep,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import ResultsError
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import RERUN, SWEEP, RunFolder

display = Display()


class ActionModule(ActionBase):
    """Runs once for the whole play and never connects to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = self.validate_argument_spec(argument_spec=OPTIONS)[1]
        try:
            rerun = options["pass_name"] == RERUN
            planned = self._reruns(options) if rerun else self._sweep(options, task_vars or {})
        except (ResultsError, ValueError) as exc:
            raise AnsibleActionFail(str(exc)) from exc
        display.display(planned.summary)
        result.update(changed=False, run_folder=planned.folder.path, hosts=sorted(planned.plans), **planned.counts)
        result["wait_s"] = planned.wait_s
        return result

    def _sweep(self, options: Mapping[str, Any], variables: Mapping[str, Any]) -> Planned:
        hostvars = variables["hostvars"]
        hosts = variables.get("ansible_play_hosts_all") or []
        looks = {host: hostvars[host].get(options["look"], {}) for host in hosts}
        now = datetime.now(timezone.utc)
        run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        folder = RunFolder.create()
        try:
            if options["mode"] == INCAST:
                lossless = {host: hostvars[host].get(options["lossless"], {}) for host in hosts}
                planned = plan_incasts(options, looks, lossless, folder, run, now)
            else:
                planned = plan_sweep(options, looks, folder, run, now)
        except BaseException:
            shutil.rmtree(folder.path)
            raise
        if self._task.check_mode:
            shutil.rmtree(planned.folder.path)
        else:
            planned.folder.write_plans(SWEEP, planned.plans)
        return planned

    def _reruns(self, options: Mapping[str, Any]) -> Planned:
        if not options["run_folder"] or not os.path.isdir(options["run_folder"]):
            raise AnsibleActionFail("run_folder: the folder of the sweep is needed to plan its reruns")
        planned = plan_reruns_of(RunFolder(options["run_folder"]), options["reruns"])
        planned.folder.write_plans(RERUN, planned.plans)
        return planned
