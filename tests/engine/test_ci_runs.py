"""The shell steps of the CI files, run in order with the real CLI and engine; each run ends at the ledger.

A step is cancelled, or its machine dies, in the middle. The state of the stack outlives the runner, its disk does not.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.moments import SCHEDULE, Look, done, held, hold
from tests.support.ci_runner import Cancel, Runner, Step, environment
from tests.support.clusters import ORDER, bills, live, market, orders
from tools.emulator import ControlPlane, Emulator
from tools.pulumi.cli import Cli

pytestmark = [pytest.mark.engine, pytest.mark.slow]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ci"
WORKFLOW: dict[str, Any] = yaml.safe_load((EXAMPLE / "github-actions.yml").read_text())
PIPELINE: dict[str, Any] = yaml.safe_load((EXAMPLE / "gitlab-ci.yml").read_text())
KEY = "sk_emulator_owner"

# What the machines of the CI services have and this one must not use: the package is installed already, and the nodes
# of the emulator have no SSH server. `ssh` says what it was asked for; with a file `hang` beside it, it never ends.
SHIMS = {
    "pip": '#!/bin/bash\n[ "$1 $2" = "install -r" ] && grep -q "^pulumi-lium" "$3"\n',
    "ssh": '#!/bin/bash\necho "ssh $*"\n[ -e "$(dirname "$0")/fail" ] && exit 7\n'
    '[ -e "$(dirname "$0")/hang" ] && exec sleep 600\nexit 0\n',
}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in SHIMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def new_runner(tmp_path: Path, tools: Path, pulumi_cli: Cli, lium_env: dict[str, str]) -> Callable[[], Runner]:
    """Makes machines: each has a checkout, a home and a disk of its own; they share the backend of the state."""
    backend = tmp_path / "backend"
    backend.mkdir()
    prefix = Path(sys.prefix)
    path = os.pathsep.join([str(tools), pulumi_cli.path(os.pathsep.join([str(prefix / "bin"), os.defpath]))])

    def make() -> Runner:
        root = tmp_path / f"runner-{len(list(tmp_path.glob('runner-*')))}"
        shutil.copytree(EXAMPLE / "cluster", root / "checkout" / "cluster")
        env = environment(
            root / "home",
            path,
            VIRTUAL_ENV=str(prefix),
            LIUM_BASE_URL=lium_env["LIUM_BASE_URL"],
            PULUMI_HOME=str(root / "pulumi-home"),
            PULUMI_BACKEND_URL=f"file://{backend}",
            PULUMI_CONFIG_PASSPHRASE="test",
            PULUMI_SKIP_UPDATE_CHECK="true",
            GITHUB_STEP_SUMMARY=str(root / "summary.md"),
        )
        return Runner(root / "checkout", env)

    return make


class Github:
    """A run of the workflow: its jobs, each on a machine of its own. `event` is what started it."""

    def __init__(self, new_runner: Callable[[], Runner], event: str = "push") -> None:
        self._new_runner = new_runner
        self._values = {
            "secrets.LIUM_API_KEY": KEY,
            "secrets.PULUMI_ACCESS_TOKEN": "not used with this backend",
            "github.run_id": "4711",
            "github.event_name": event,
        }
        self.summary = Path()
        self.attempt(1)

    def attempt(self, number: int) -> None:
        """What runs from now on belongs to this attempt of the run."""
        self._values["github.run_attempt"] = str(number)

    def job(self, name: str, *, needed: str = "success", cancel: Cancel | None = None) -> dict[str, Step]:
        runner = self._new_runner()
        steps = runner.github(WORKFLOW, name, values=self._values, needed=needed, cancel=cancel)
        for step in steps:
            assert KEY not in step.text
            assert "Traceback" not in step.text, step.text
        self.summary = Path(runner.env["GITHUB_STEP_SUMMARY"])
        return {step.name: step for step in steps}


@pytest.fixture
def github(new_runner: Callable[[], Runner], emulator: Emulator) -> Github:
    emulator.reset(market())
    return Github(new_runner)


def _boot_slowly(emulator: ControlPlane) -> None:
    emulator.reset(market(boot=(600, 600)))


DURING_UP: dict[str, tuple[Callable[[ControlPlane], None], Look]] = {
    "order on its way": (hold(ORDER), held(ORDER)),
    "order done, answer on its way": (hold(ORDER, when="after"), done(ORDER)),
    "nodes boot": (_boot_slowly, done(SCHEDULE, 2)),
}


def outcomes(steps: dict[str, Step]) -> dict[str, str]:
    return {name: step.outcome for name, step in steps.items()}


def texts(steps: dict[str, Step]) -> str:
    return "\n".join(f"--- {step.name}: {step.outcome}\n{step.text}" for step in steps.values())


def charged(emulator: Emulator) -> float:
    return float(sum(row["usd"] for row in emulator.state()["ledger"]))


def test_a_run_that_succeeds_removes_its_cluster_and_says_what_it_cost(github: Github, emulator: Emulator) -> None:
    steps = github.job("train")
    assert set(outcomes(steps).values()) == {"success"}, texts(steps)
    assert steps["Run the job"].text.count("nvidia-smi -L") == 2
    bills(emulator, 0)
    assert len(orders(emulator)) == 1
    table = github.summary.read_text()
    (row,) = [line for line in table.splitlines() if line.startswith("| ci-train-")]
    assert "| 2 × 8 H100 | 32.00 |" in row
    assert "| removed |" in row
    # Priced to the end of the teardown, which is later than the last pod's by the time that the engine takes to leave.
    cost = float(row.split("|")[6])
    assert charged(emulator) <= cost + 0.01
    assert cost - charged(emulator) < 32.0 * 60 / 3600
    after = github.job("cleanup")
    assert set(outcomes(after).values()) == {"success"}, texts(after)
    bills(emulator, 0)


def test_a_job_that_fails_removes_its_cluster(github: Github, emulator: Emulator, tools: Path) -> None:
    (tools / "fail").touch()
    steps = github.job("train")
    assert outcomes(steps) == {
        "Install": "success",
        "Up": "success",
        "Run the job": "failure",
        "Teardown": "success",
        "Summary": "success",
    }, texts(steps)
    assert "ended with exit code 7" in steps["Run the job"].text
    bills(emulator, 0)


def test_an_up_that_fails_leaves_nothing(github: Github, emulator: Emulator) -> None:
    emulator.reset(market(boot=(1, 1)))
    emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    steps = github.job("train")
    assert outcomes(steps)["Up"] == "failure"
    assert outcomes(steps)["Run the job"] == "skipped"
    assert outcomes(steps)["Teardown"] == "success", texts(steps)
    bills(emulator, 0)


@pytest.mark.parametrize("moment", DURING_UP)
def test_a_cancel_during_up_leaves_nothing(github: Github, emulator: Emulator, moment: str) -> None:
    arrange, reached = DURING_UP[moment]
    arrange(emulator)
    steps = github.job("train", cancel=Cancel("Up", lambda: reached(emulator)))
    assert outcomes(steps) == {
        "Install": "success",
        "Up": "cancelled",
        "Run the job": "skipped",
        "Teardown": "success",
        "Summary": "success",
    }, texts(steps)
    bills(emulator, 0)
    assert live(emulator) == []
    assert "may" not in github.summary.read_text()


def test_a_cancel_during_the_installation_says_that_nothing_was_ordered(
    github: Github, emulator: Emulator, tools: Path
) -> None:
    """The command is there only once an installation has gone through."""
    scripts = {
        "pip": '[ -e "$0.began" ] && exec touch "$0.done"\ntouch "$0.began"\nexec sleep 600\n',
        "pulumi-lium": f'[ -e {tools}/pip.done ] || exit 127\nexec {Path(sys.prefix) / "bin" / "pulumi-lium"} "$@"\n',
    }
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}")
        (tools / name).chmod(0o755)
    steps = github.job("train", cancel=Cancel("Install", (tools / "pip.began").exists))
    assert outcomes(steps) == {
        "Install": "cancelled",
        "Up": "skipped",
        "Run the job": "skipped",
        "Teardown": "success",
        "Summary": "success",
    }, texts(steps)
    summary = github.summary.read_text()
    assert "nothing was ordered" in summary
    assert "failed" not in summary
    assert orders(emulator) == []


def test_a_cancel_while_the_job_runs_leaves_nothing(github: Github, emulator: Emulator, tools: Path) -> None:
    (tools / "hang").touch()

    def runs() -> bool:
        logs = tools.parent.glob("runner-*/checkout/.step-*.log")
        return any("nvidia-smi" in log.read_text(errors="replace") for log in logs)

    steps = github.job("train", cancel=Cancel("Run the job", runs))
    assert outcomes(steps)["Run the job"] == "cancelled"
    assert outcomes(steps)["Teardown"] == "success", texts(steps)
    bills(emulator, 0)


def test_a_new_attempt_of_the_cleanup_alone_finds_the_cluster_of_the_first(github: Github, emulator: Emulator) -> None:
    """GitHub's "Re-run failed jobs": a number of the attempt in the stack's name would hide it."""
    emulator.fault("DELETE /clusters/*", "status", times=0, code=403, body={"detail": "missing scope"})
    assert outcomes(github.job("train"))["Teardown"] == "failure"
    assert outcomes(github.job("cleanup", needed="failure"))["Teardown"] == "failure"
    bills(emulator, 2)
    emulator.clear_faults()
    github.attempt(2)
    after = github.job("cleanup", needed="failure")
    assert set(outcomes(after).values()) == {"success"}, texts(after)
    bills(emulator, 0)


@pytest.mark.parametrize("moment", ["order on its way", "nodes boot"])
def test_after_a_runner_that_died_the_next_one_cleans_up(github: Github, emulator: Emulator, moment: str) -> None:
    arrange, reached = DURING_UP[moment]
    arrange(emulator)
    steps = github.job("train", cancel=Cancel("Up", lambda: reached(emulator), dies=True))
    assert outcomes(steps) == {"Install": "success", "Up": "cancelled"}
    after = github.job("cleanup", needed="failure")
    assert set(outcomes(after).values()) == {"success"}, texts(after)
    bills(emulator, 0)
    assert live(emulator) == []


def test_a_teardown_that_fails_says_so_in_the_summary(github: Github, emulator: Emulator) -> None:
    emulator.fault("DELETE /clusters/*", "status", times=0, code=403, body={"detail": "missing scope"})
    steps = github.job("train")
    assert outcomes(steps)["Teardown"] == "failure", texts(steps)
    assert "May still bill $32.00 an hour: ci-train-" in steps["Teardown"].text
    said = github.summary.read_text()
    assert "may still bill 32.00 an hour" in said
    assert "    pulumi-lium teardown --stack ci-4711\n    pulumi-lium sweep --name-prefix ci-train-" in said
    bills(emulator, 2)
    emulator.clear_faults()
    after = github.job("cleanup", needed="failure")
    assert set(outcomes(after).values()) == {"success"}, texts(after)
    bills(emulator, 0)


def test_the_sweep_on_schedule_leaves_young_clusters_alone(
    github: Github, new_runner: Callable[[], Runner], emulator: Emulator
) -> None:
    _boot_slowly(emulator)
    github.job("train", cancel=Cancel("Up", lambda: done(SCHEDULE, 2)(emulator), dies=True))
    bills(emulator, 0)
    scheduled = Github(new_runner, "schedule")
    assert outcomes(scheduled.job("train")) == {"train": "skipped"}
    steps = scheduled.job("cleanup", needed="skipped")
    assert outcomes(steps) == {"Install": "success", "Teardown": "skipped", "Sweep": "success"}, texts(steps)
    assert len(live(emulator)) == 2
    assert "left alone" in steps["Sweep"].text


# GitLab


def pipeline(new_runner: Callable[[], Runner], job: str, cancel: Cancel | None = None) -> dict[str, Step]:
    variables = {
        "LIUM_API_KEY": KEY,
        "PULUMI_ACCESS_TOKEN": "not used with this backend",
        "CI_PIPELINE_ID": "4711",
        "CI_PIPELINE_SOURCE": "push",
    }
    steps = new_runner().gitlab(PIPELINE, job, variables=variables, cancel=cancel)
    assert not any(KEY in step.text for step in steps)
    return {step.name: step for step in steps}


def test_a_pipeline_removes_its_cluster_and_says_what_it_cost(
    new_runner: Callable[[], Runner], emulator: Emulator
) -> None:
    emulator.reset(market())
    steps = pipeline(new_runner, "train")
    assert outcomes(steps) == {"script": "success", "after_script": "success"}, texts(steps)
    assert "| removed |" in steps["after_script"].text
    bills(emulator, 0)
    assert outcomes(pipeline(new_runner, "cleanup")) == {"script": "success"}


@pytest.mark.parametrize("moment", ["order on its way", "nodes boot"])
@pytest.mark.parametrize("dies", [False, True], ids=["cancel", "death"])
def test_a_pipeline_cut_off_during_up_leaves_nothing(
    new_runner: Callable[[], Runner], emulator: Emulator, moment: str, dies: bool
) -> None:
    emulator.reset(market())
    arrange, reached = DURING_UP[moment]
    arrange(emulator)
    steps = pipeline(new_runner, "train", Cancel("script", lambda: reached(emulator), dies=dies))
    if not dies:
        assert outcomes(steps) == {"script": "cancelled", "after_script": "success"}, texts(steps)
        assert live(emulator) == []
    after = pipeline(new_runner, "cleanup")
    assert outcomes(after) == {"script": "success"}, texts(after)
    bills(emulator, 0)
    assert live(emulator) == []


def test_a_teardown_that_fails_keeps_no_pipeline_from_sweeping(
    new_runner: Callable[[], Runner], emulator: Emulator, tools: Path
) -> None:
    """The job ends with the teardown's code though its sweep has gone well."""
    emulator.reset(market())
    (tools / "pulumi-lium").write_text(
        f'#!/bin/bash\n[ "$1" = teardown ] && exit 4\nexec {Path(sys.prefix) / "bin" / "pulumi-lium"} "$@"\n'
    )
    (tools / "pulumi-lium").chmod(0o755)
    steps = pipeline(new_runner, "cleanup")
    assert outcomes(steps) == {"script": "failure"}
    assert "Nothing is left" in steps["script"].text
