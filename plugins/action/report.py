# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Gathers the records of all hosts of the play on the control node, shows and saves them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.lium.cluster.plugins.module_utils._record import merge_by_id
from ansible_collections.lium.cluster.plugins.plugin_utils._fabric import compare_hosts, groups_of
from ansible_collections.lium.cluster.plugins.plugin_utils._file import save
from ansible_collections.lium.cluster.plugins.plugin_utils._page.page import render_page
from ansible_collections.lium.cluster.plugins.plugin_utils._report import (
    BEFORE_CHANGES,
    build_report,
    facts_of_host,
    failure_message,
    records_of_host,
    render,
)
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import ResultsError, for_report
from ansible_collections.lium.cluster.plugins.plugin_utils._sale import sale
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
                "page": {"type": "path"},
                "roce_results": {"type": "path"},
                "incasts": {"type": "list", "elements": "dict", "default": []},
                "playbook": {"type": "str", "default": "audit"},
                "fail_on_must_fix": {"type": "bool", "default": True},
                "before_changes": {"type": "bool", "default": False},
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
        roce = self._measured(options["roce_results"])
        fabrics = sale(groups_of(facts), records, roce["fabrics"] if roce else ())
        report = build_report(records, options["playbook"], datetime.now(timezone.utc), fabrics)
        if tests:
            report["wireguard_pairs"] = [test.as_dict() for test in tests]
        if options["incasts"]:
            report["incasts"] = options["incasts"]
        display.display(render(report))
        if options["before_changes"]:
            display.display(f"\n{BEFORE_CHANGES}")

        # The records themselves stand on the screen and in the file; a failed task would print them a third time.
        result.update(changed=False, status=report["status"], counts=report["counts"])
        message = failure_message(report, options["before_changes"])
        if options["path"]:
            result["path"] = self._save(options["path"], json.dumps(report, indent=2) + "\n")
        if options["page"]:
            result["page"] = self._save(options["page"], render_page(report, roce))
            display.display(f"The report as a page: {result['page']}")
        result["failed"] = bool(message) and options["fail_on_must_fix"]
        result["msg"] = message or "no host must be fixed"
        return result

    def _measured(self, path: str | None) -> dict[str, Any] | None:
        """The results of a verification; None where there are none. One that cannot be read costs the matrix alone."""
        if not path:
            return None
        try:
            return for_report(path)
        except ResultsError as exc:
            display.warning(f"the report is without the pairs of the last verification: {exc}")
            return None

    def _save(self, path: str, text: str) -> str:
        return save(path, lambda stream: stream.write(text), what="the report", check_mode=self._task.check_mode)
