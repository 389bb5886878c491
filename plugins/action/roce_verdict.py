# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Judges a verification on the control node, shows it, and saves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.plugin_utils._file import save
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import conclude, ends_of
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.render import render
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
                "results_path": {"type": "path"},
                "started": {"type": "str", "default": "roce_verify_started"},
                "collected": {"type": "str", "default": "roce_verify_collected"},
                "restarted": {"type": "str", "default": "roce_verify_restarted"},
                "recollected": {"type": "str", "default": "roce_verify_recollected"},
                "executor_ids": {"type": "dict", "default": {}},
                "keep_run_folder": {"type": "bool", "default": False},
            }
        )[1]
        variables = task_vars or {}
        ends = ends_of(variables, options["started"], options["collected"])
        again = ends_of(variables, options["restarted"], options["recollected"])
        conclusion = conclude(
            RunFolder(options["run_folder"]), ends, options["executor_ids"], datetime.now(timezone.utc), again
        )
        for fabric in conclusion.fabrics:
            display.display(render(fabric) + "\n")
        if options["results_path"]:
            result["path"] = save(
                options["results_path"],
                lambda stream: _dump(conclusion.report, stream),
                what="the results",
                check_mode=self._task.check_mode,
            )
        if not options["keep_run_folder"]:
            shutil.rmtree(options["run_folder"], ignore_errors=True)
        result.update(changed=False, hosts=conclusion.host_records, fabrics=conclusion.report["fabrics"])
        return result


def _dump(report: Mapping[str, Any], stream: Any) -> None:
    """One record a line.

    A file that people can read and `grep`, and that is written without a second copy in memory.
    """
    head = {key: value for key, value in report.items() if key != "records"}
    stream.write(json.dumps(head, indent=1)[:-2] + ',\n "records": [')
    for number, record in enumerate(report["records"]):
        stream.write(("," if number else "") + "\n  " + json.dumps(record, separators=(",", ":")))
    stream.write("\n ]\n}\n")
