"""The CI files of `examples/ci`: their form, and the rules by which nothing bills after them."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
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
        (_set("Teardown", "run", "pulumi-lium teardown --stack x > teardown.json"), "the signal of a cancel"),
        (_set("Teardown", "run", "exec pulumi-lium teardown --stack x | tee teardown.json"), "the signal of a cancel"),
        (_set("Teardown", "run", "echo nothing"), "nothing removes what it creates"),
        (_set("Teardown", "run", "pulumi destroy --yes; pulumi stack rm --yes --force ci"), "forgets a stack"),
        (_set("Summary", "run", "curl -H 'X-API-Key: ${{ secrets.LIUM_API_KEY }}'"), "a secret outside env"),
        (_set("Up", "env", {"LIUM_API_KEY": "sk_0123456789abcdef"}), "a key in plain text"),
        (lambda workflow: workflow["jobs"]["cleanup"].pop("if"), "no second job"),
        (lambda workflow: _step(workflow, "cleanup", "Sweep").pop("if"), "keeps the sweep from running"),
        (lambda workflow: workflow["env"].update(STACK="ci-${{ github.run_attempt }}"), "holds run_attempt"),
        (_set("Up", "env", {"STACK": "ci-${{ github.run_attempt }}"}), "holds run_attempt"),
        (_set("Up", "run", 'pulumi up --stack "ci-$GITHUB_RUN_ATTEMPT"'), "holds run_attempt"),
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


TEARDOWN = 'pulumi-lium teardown --cwd . --stack "$STACK"'
SWEEP_ALL = "pulumi-lium sweep --name-prefix ci-train- --older-than 150m --yes"


def _cleans_up(*script: str) -> Callable[[Any], None]:
    return lambda pipeline: pipeline["cleanup"].update(script=list(script))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda pipeline: pipeline["train"].pop("after_script"), "nothing removes after failure and cancel"),
        (lambda pipeline: pipeline["train"]["variables"].pop("RUNNER_SCRIPT_TIMEOUT"), "no time for after_script"),
        (lambda pipeline: pipeline["train"].update(timeout="2h"), "no time for after_script"),
        (lambda pipeline: pipeline.pop("cleanup"), "no second job"),
        (_cleans_up(TEARDOWN, SWEEP_ALL), "keeps the sweep from running"),
        (_cleans_up(f"if true; then {TEARDOWN}; fi", SWEEP_ALL), "keeps the sweep from running"),
        (_cleans_up(f"{TEARDOWN} || true", SWEEP_ALL), "the exit code of the teardown is lost"),
        (_cleans_up(f"{TEARDOWN} || code=$?", SWEEP_ALL), "the exit code of the teardown is lost"),
        (lambda pipeline: pipeline["cleanup"]["rules"].append({"when": "on_success"}), "no second job"),
        (lambda pipeline: pipeline["train"]["after_script"].append("pulumi stack rm -y -f x"), "forgets a stack"),
    ],
)
def test_each_rule_of_a_pipeline_is_seen_broken(change: Callable[[Any], Any], fault: str) -> None:
    pipeline = copy.deepcopy(read(GITLAB))
    change(pipeline)
    (found,) = ci_rules.gitlab_faults(pipeline)
    assert fault in found


def test_nothing_is_installed_without_a_bound() -> None:
    """The floor is this version: an older one lacks what the files call."""
    assert (EXAMPLE / "cluster" / "requirements.txt").read_text() == f"pulumi-lium[cli]>={version('pulumi-lium')}\n"
    used = [step for job in read(GITHUB)["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.search(r"@v\d+$", step["uses"]) for step in used)
    assert all("pulumi-version" in step["with"] for step in used if step["uses"].startswith("pulumi/"))


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

ORDERED = "2026-01-02T03:04:05+00:00"
STATE = {
    "deployment": {
        "resources": [
            {
                "type": "pulumi-python:dynamic/lium:Cluster",
                "id": "c1",
                "outputs": {
                    "name": "ci-train-1a2b3c-4d5e6f",
                    "nodes": 2.0,
                    "gpus_per_node": 8.0,
                    "gpu_type": "H100",
                    "price_per_hour": 32.0,
                    "ordered_at": ORDERED,
                },
            }
        ]
    }
}
PENDING = {
    "type": "creating",
    "resource": {
        "type": "pulumi-python:dynamic/lium:Cluster",
        "inputs": {"name": "ci-train-1a2b3c-4d5e6f", "nodes": 2.0, "planned": {"price_per_hour": 32.0}},
    },
}
CUT_OFF = {"deployment": {"pending_operations": [PENDING]}}
EMPTY = {"deployment": {"resources": None}}
CLEAN = {"removed": [], "failures": [], "known": True, "missing": False, "may_bill": [], "remove_with": []}
AGAIN = "pulumi-lium teardown --stack ci-4711"
SWEEP = "pulumi-lium sweep --name-prefix ci-train-1a2b3c-4d5e6f --yes"
BILLS = {"name": "ci-train-1a2b3c-4d5e6f", "cluster_id": "c1", "price_per_hour": 32.0, "age_seconds": 3600}
LEFT = {**CLEAN, "failures": ["refused"], "may_bill": [BILLS], "remove_with": [AGAIN, SWEEP]}
UNKNOWN = {**CLEAN, "failures": ["no listing"], "known": False, "remove_with": [AGAIN]}
GONE = {**CLEAN, "removed": ["ci-train-1a2b3c-4d5e6f (cluster c1)"]}


def summary(folder: Path, state: Any, teardown: Any) -> str:
    """What it prints of two documents; a text is written as it is, None is no file."""
    files = [folder / "state.json", folder / "teardown.json"]
    for file, document in zip(files, (state, teardown), strict=True):
        if document is not None:
            file.write_text(document if isinstance(document, str) else json.dumps(document))
    command = [sys.executable, EXAMPLE / "cluster" / "summary.py", *files]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "STACK": "ci-4711"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "USD, at most" in done.stdout
    return done.stdout


@pytest.mark.parametrize(
    ("state", "teardown"),
    [
        (EMPTY, CLEAN),
        ({"deployment": None}, CLEAN),
        (None, {**CLEAN, "missing": True}),
    ],
)
def test_a_run_that_ordered_nothing_says_so(tmp_path: Path, state: Any, teardown: Any) -> None:
    said = summary(tmp_path, state, teardown)
    assert "| 0.00 | nothing was ordered |" in said
    assert "pulumi-lium" not in said


@pytest.mark.parametrize("state", [None, "", "{", "{}", "[]"])
@pytest.mark.parametrize("teardown", [None, "", "[]", {"error": {"code": "wrong_use"}}, UNKNOWN], ids=str)
def test_a_state_that_cannot_be_read_is_unknown_and_no_empty_one(tmp_path: Path, state: Any, teardown: Any) -> None:
    said = summary(tmp_path, state, teardown)
    assert "| unknown: the state could not be read |" in said
    assert "nothing was ordered" not in said
    assert "0.00" not in said
    assert AGAIN in said


def test_a_state_that_only_the_teardown_could_read_gives_no_cost(tmp_path: Path) -> None:
    assert "unknown: the state could not be read" in summary(tmp_path, None, CLEAN)
    said = summary(tmp_path, None, GONE)
    assert "| ci-train-1a2b3c-4d5e6f (cluster c1) | ? | ? | ? | ? | ? | removed |" in said


def test_an_empty_state_is_not_nothing_while_the_teardown_could_not_look(tmp_path: Path) -> None:
    said = summary(tmp_path, EMPTY, UNKNOWN)
    assert "nothing was ordered" not in said
    assert "more than this may still bill" in said


@pytest.mark.parametrize("state", [STATE, CUT_OFF, EMPTY, None], ids=["state", "cut off", "empty", "unread"])
def test_what_the_teardown_has_left_stands_there_once_with_what_removes_it(tmp_path: Path, state: Any) -> None:
    said = summary(tmp_path, state, LEFT)
    (row,) = [line for line in said.splitlines() if line.startswith("| ci-train-")]
    assert row.endswith("| **may still bill 32.00 an hour** |")
    assert f"    {AGAIN}\n    {SWEEP}\n" in said
    assert "nothing was ordered" not in said


@pytest.mark.parametrize("teardown", [None, UNKNOWN])
def test_a_cluster_of_the_state_may_bill_until_a_teardown_has_seen_that_it_does_not(
    tmp_path: Path, teardown: Any
) -> None:
    said = summary(tmp_path, STATE, teardown)
    assert "may still bill 32.00 an hour" in said
    assert AGAIN in said


def test_a_teardown_that_failed_after_all_is_gone_does_not_say_that_it_bills(tmp_path: Path) -> None:
    said = summary(tmp_path, STATE, {**GONE, "failures": ["the stack is locked"], "remove_with": [AGAIN]})
    assert "| removed |" in said
    assert "may still bill" not in said
    assert "Nothing bills, but" in said


@pytest.mark.parametrize(("state", "fate"), [(STATE, "removed"), (CUT_OFF, "interrupted; nothing is left of it")])
def test_what_is_gone_is_said_to_be_gone(tmp_path: Path, state: Any, fate: str) -> None:
    said = summary(tmp_path, state, GONE)
    (row,) = [line for line in said.splitlines() if line.startswith("| ci-train-")]
    assert row.endswith(f"| {fate} |")
    assert row.split("|")[3] == " 32.00 "
    assert "may" not in said
