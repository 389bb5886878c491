"""The CI files of `examples/ci`: their form, and the rules by which nothing bills after them."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ci_rules
from tools.gotool import ACTIONLINT

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ci"
GITHUB, GITLAB = EXAMPLE / "github-actions.yml", EXAMPLE / "gitlab-ci.yml"
BAD_WORKFLOW = Path(__file__).resolve().parents[1] / "field" / "cases" / "B32" / "bad-workflow.yml"


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([ACTIONLINT.build(), "-color=false", GITHUB], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("file", "schema"), [(GITHUB, "vendor.github-workflows"), (GITLAB, "vendor.gitlab-ci")], ids=["github", "gitlab"]
)
def test_the_file_fits_the_published_schema(file: Path, schema: str) -> None:
    command = [Path(sys.prefix) / "bin" / "check-jsonschema", "--builtin-schema", schema, file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_our_files_keep_the_rules() -> None:
    assert ci_rules.github_faults(read(GITHUB)) == []
    assert ci_rules.gitlab_faults(read(GITLAB)) == []


def test_the_workflow_that_lost_machines_breaks_them() -> None:
    assert ci_rules.github_faults(read(BAD_WORKFLOW)) == [
        "train: the job has no timeout",
        "train: destroy: not run after failure and cancel (if: always())",
        "train: destroy: no timeout of its own",
        "no second job sweeps after the first, whatever became of it",
        "nothing sweeps on a schedule",
    ]


def _step(workflow: Any, job: str, name: str) -> dict[str, Any]:
    return next(step for step in workflow["jobs"][job]["steps"] if step.get("name") == name)


def _set(name: str, key: str, value: Any) -> Callable[[Any], None]:
    def change(workflow: Any) -> None:
        step = _step(workflow, "train", name)
        if value is None:
            del step[key]
        else:
            step[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_set("Teardown", "if", None), "not run after failure and cancel"),
        (_set("Teardown", "if", "success()"), "not run after failure and cancel"),
        (_set("Teardown", "if", "always() && success()"), "not run after failure and cancel"),
        (_set("Teardown", "if", "${{ failure() || cancelled() }}"), "not run after failure and cancel"),
        (_set("Teardown", "if", "always() && steps.up.outcome == 'success'"), "not run after failure and cancel"),
        (_set("Teardown", "timeout-minutes", None), "no timeout of its own"),
        (_set("Teardown", "run", "echo nothing"), "nothing removes what it creates"),
        (_set("Teardown", "run", "pulumi destroy --yes; pulumi stack rm --yes --force ci"), "forgets a stack"),
        (_set("Summary", "run", "curl -H 'X-API-Key: ${{ secrets.LIUM_API_KEY }}'"), "a secret outside env"),
        (_set("Up", "env", {"LIUM_API_KEY": "sk_0123456789abcdef"}), "a key in plain text"),
        (lambda workflow: workflow["jobs"]["cleanup"].pop("if"), "no second job"),
        (lambda workflow: workflow["jobs"].pop("cleanup"), "no second job"),
        (lambda workflow: workflow[True].pop("schedule"), "nothing sweeps on a schedule"),
        (lambda workflow: workflow["jobs"]["train"].pop("timeout-minutes"), "the job has no timeout"),
    ],
)
def test_each_rule_of_a_workflow_is_seen_broken(change: Callable[[Any], None], fault: str) -> None:
    workflow = copy.deepcopy(read(GITHUB))
    change(workflow)
    (found,) = ci_rules.github_faults(workflow)
    assert fault in found


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda pipeline: pipeline["train"].pop("after_script"), "nothing removes after failure and cancel"),
        (lambda pipeline: pipeline["train"]["variables"].pop("RUNNER_SCRIPT_TIMEOUT"), "no time for after_script"),
        (lambda pipeline: pipeline["train"].update(timeout="2h"), "no time for after_script"),
        (lambda pipeline: pipeline.pop("cleanup"), "no second job"),
        (lambda pipeline: pipeline["cleanup"]["rules"].append({"when": "on_success"}), "no second job"),
        (lambda pipeline: pipeline["train"]["after_script"].append("pulumi stack rm -y -f x"), "forgets a stack"),
    ],
)
def test_each_rule_of_a_pipeline_is_seen_broken(change: Callable[[Any], Any], fault: str) -> None:
    pipeline = copy.deepcopy(read(GITLAB))
    change(pipeline)
    (found,) = ci_rules.gitlab_faults(pipeline)
    assert fault in found


def test_the_spans_fit_each_other() -> None:
    """A job in time is never ended by the ttl, and the sweep finds nothing that still works."""
    program = (EXAMPLE / "cluster" / "__main__.py").read_text()
    found = re.search(r'ttl="(\w+)"', program)
    assert found is not None
    ttl = ci_rules.minutes(found[1])
    github, gitlab = read(GITHUB), read(GITLAB)
    limits = [github["jobs"]["train"]["timeout-minutes"], ci_rules.minutes(gitlab["train"]["timeout"])]
    sweeps = re.findall(r"--name-prefix (\S+) --older-than (\w+)", GITHUB.read_text() + GITLAB.read_text())
    assert len(sweeps) == 2
    for limit, (prefix, older) in zip(limits, sweeps, strict=True):
        assert limit < ci_rules.minutes(older) < ttl
        assert f'"{prefix.removesuffix("-")}"' in program
    steps = [step.get("timeout-minutes", 0) for step in github["jobs"]["train"]["steps"]]
    assert sum(steps) <= limits[0]


# The summary


def summary(state: Path, outcome: str) -> str:
    command = [sys.executable, EXAMPLE / "cluster" / "summary.py", state, outcome]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


PENDING = {
    "type": "creating",
    "resource": {
        "type": "pulumi-python:dynamic/lium:Cluster",
        "inputs": {"name": "ci-train-1a2b3c-4d5e6f", "nodes": 2.0, "planned": {"price_per_hour": 32.0}},
    },
}


@pytest.mark.parametrize("text", [None, "", "{", "{}", '{"deployment": null}', '{"deployment": {"resources": null}}'])
def test_a_run_without_a_stack_has_a_summary(tmp_path: Path, text: str | None) -> None:
    state = tmp_path / "state.json"
    if text is not None:
        state.write_text(text)
    assert "nothing was ordered" in summary(state, "success")
    assert "may still bill" in summary(state, "failure")


@pytest.mark.parametrize(
    ("outcome", "fate"), [("success", "nothing is left of it"), ("", "**may bill 32.00 an hour**")]
)
def test_an_order_that_was_cut_off_stands_in_the_summary(tmp_path: Path, outcome: str, fate: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"deployment": {"pending_operations": [PENDING]}}))
    (row,) = [line for line in summary(state, outcome).splitlines() if "ci-train-" in line]
    assert row.startswith("| ci-train-1a2b3c-4d5e6f | 2 | 32.00 |")
    assert fate in row
