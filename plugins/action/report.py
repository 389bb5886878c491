# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Gathers the records of all hosts of the play on the control node, shows and saves them."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.module_utils._record import merge_by_id
from ansible_collections.lium.cluster.plugins.plugin_utils._fabric import compare_hosts
from ansible_collections.lium.cluster.plugins.plugin_utils._report import (
    build_report,
    facts_of_host,
    failure_message,
    records_of_host,
    render,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._wireguard_pairs import collect_tests, pair_records

display = Display()


class ActionModule(ActionBase):
    """Runs once for the whole play and never connects to a host."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        options = self.validate_argument_spec(
            argument_spec={
                "results": {"type": "list", "elements": "str", "required": True},
                "path": {"type": "path"},
                "playbook": {"type": "str", "default": "audit"},
                "fail_on_must_fix": {"type": "bool", "default": True},
            }
        )[1]
        variables = task_vars or {}
        hosts = variables.get("ansible_play_hosts_all") or []
        if not hosts:
            raise AnsibleActionFail("no host in this play: is the inventory's group lium_fabric filled?")
        hostvars = variables["hostvars"]
        records, facts = {}, {}
        for host in hosts:
            known = hostvars[host]
            results = {name: known[name] for name in options["results"] if name in known}
            records[host] = records_of_host(results)
            facts[host] = facts_of_host(results)
        tests = collect_tests(facts)
        for found in (compare_hosts(facts), pair_records(facts, tests)):
            for host, compared in found.items():
                records[host] = merge_by_id(records[host], compared)
        report = build_report(records, options["playbook"], datetime.now(timezone.utc))
        if tests:
            report["wireguard_pairs"] = [test.as_dict() for test in tests]
        display.display(render(report))

        # The records themselves stand on the screen and in the file; a failed task would print them a third time.
        result.update(changed=False, status=report["status"], counts=report["counts"])
        message = failure_message(report)
        if options["path"]:
            result["path"] = self._save(report, options["path"])
        result["failed"] = bool(message) and options["fail_on_must_fix"]
        result["msg"] = message or "no host must be fixed"
        return result

    def _save(self, report: dict[str, Any], path: str) -> str:
        """Writes the file in one step, so that a reader never meets half of it."""
        path = os.path.abspath(path)
        if self._task.check_mode:
            return path
        temporary = f"{path}.new"
        try:
            with open(temporary, "w", encoding="utf-8") as stream:
                json.dump(report, stream, indent=2)
                stream.write("\n")
            os.replace(temporary, path)
        except OSError as exc:
            raise AnsibleActionFail(f"the report could not be written to {path}: {exc.strerror}") from exc
        return path
