"""Runs the shell steps of CI files as their services do, with cancel and death in the middle. Actions are left out.

What GitHub does on cancel: SIGINT to the step's shell, SIGTERM 7.5 s later, after another 2.5 s the end of all its
processes; then every step whose condition still holds. GitLab: SIGTERM to the script's processes, then their end, then
`after_script` in a shell of its own.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import children
from tests.support.waiting import wait_for

STEP_TIMEOUT_S = 150.0
_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")
_COMPARISON = re.compile(r"(\S+)\s*(==|!=)\s*'([^']*)'")

Look = Callable[[], bool]


@dataclass(frozen=True)
class Cancel:
    """In the middle of the step (or job) of this name, when `reached` is true. `dies`: the machine itself ends."""

    step: str
    reached: Look
    dies: bool = False


@dataclass
class Step:
    """What became of a step: success, failure, cancelled or skipped."""

    name: str
    outcome: str
    text: str = ""


@dataclass
class Runner:
    """A machine: a checkout, a home, and what its steps may use. `grace` is the pause of a cancel before each blow."""

    checkout: Path
    env: Mapping[str, str]
    grace: tuple[float, float] = (7.5, 2.5)
    steps: list[Step] = field(default_factory=list)

    def github(
        self,
        workflow: Mapping[str, Any],
        job: str,
        *,
        values: Mapping[str, str],
        needed: str = "success",
        cancel: Cancel | None = None,
    ) -> list[Step]:
        """Runs a job. `values` are what expressions name, such as `secrets.LIUM_API_KEY`; `needed` is how the jobs
        that it needs have ended."""
        spec = workflow["jobs"][job]
        status, values = needed, dict(values)
        if not _holds(spec.get("if"), status, values):
            return [Step(job, "skipped")]
        status = "success"
        folder = self.checkout / workflow["defaults"]["run"]["working-directory"]
        for step in spec["steps"]:
            if "run" not in step:
                continue
            name = step["name"]
            if not _holds(step.get("if"), status, values):
                self.steps.append(Step(name, "skipped"))
                continue
            env = {**self.env, **workflow.get("env", {}), **step.get("env", {})}
            env = {key: _filled(text, values) for key, text in env.items()}
            assert "${{" not in step["run"], "a value that a person could choose would run as code"
            here = cancel if cancel is not None and cancel.step == name else None
            done = self._shell(name, step["run"], folder, env, here, (signal.SIGINT, signal.SIGTERM))
            values[f"steps.{step.get('id')}.outcome"] = done.outcome
            if done.outcome == "cancelled" and here is not None and here.dies:
                break
            if done.outcome != "success" and status == "success":
                status = done.outcome
        return self.steps

    def gitlab(
        self, pipeline: Mapping[str, Any], job: str, *, variables: Mapping[str, str], cancel: Cancel | None = None
    ) -> list[Step]:
        """Runs a job's script, and its `after_script` whatever became of that."""
        spec, defaults = pipeline[job], pipeline.get("default", {})
        env = {**self.env, **variables}
        for name, text in {**pipeline.get("variables", {}), **spec.get("variables", {})}.items():
            env[name] = re.sub(r"\$(\w+)", lambda found: env[found[1]], text)
        before = spec.get("before_script", defaults.get("before_script", []))
        done = self._shell(
            "script", "\n".join([*before, *spec["script"]]), self.checkout, env, cancel, (signal.SIGTERM,)
        )
        if "after_script" in spec and not (cancel is not None and cancel.dies):
            self._shell("after_script", "\n".join(spec["after_script"]), self.checkout, env, None, ())
        return [done, *self.steps[-1:]]

    def _shell(
        self,
        name: str,
        script: str,
        folder: Path,
        env: Mapping[str, str],
        cancel: Cancel | None,
        blows: tuple[signal.Signals, ...],
    ) -> Step:
        log = self.checkout / f".step-{len(self.steps)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        outcome = ""
        try:
            if cancel is not None:
                wait_for(lambda: cancel.reached() or process.poll() is not None, what="its middle", timeout=90.0)
                assert process.poll() is None, "it ended before its cancel"
                self._end(process, () if cancel.dies else blows)
                outcome = "cancelled"
            code = process.wait(STEP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, AssertionError) as error:
            self._end(process, ())
            raise AssertionError(f"{name}: {error}:\n{log.read_text(errors='replace')}") from None
        outcome = outcome or ("success" if code == 0 else "failure")
        self.steps.append(Step(name, outcome, log.read_text(errors="replace")))
        return self.steps[-1]

    def _end(self, process: subprocess.Popen[bytes], blows: tuple[signal.Signals, ...]) -> None:
        """Blow after blow; what is then left of it, and of what it started, is ended by force."""
        tree = children(process.pid)
        for number, grace in zip(blows, self.grace, strict=False):
            process.send_signal(number)
            try:
                process.wait(grace)
                break
            except subprocess.TimeoutExpired:
                continue
        tree += children(process.pid)
        process.kill()
        for handle in tree:
            handle.end()
            handle.close()


def environment(home: Path, path: str, **more: str) -> dict[str, str]:
    """Variables of a runner."""
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "CI": "true", **more}


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: values[found[1]], str(text))


def _holds(condition: str | None, status: str, values: Mapping[str, str]) -> bool:
    """GitHub's rule: without a status function the step runs after success only."""
    text = (condition or "").strip().removeprefix("${{").removesuffix("}}")
    terms = [term.strip() for term in text.split("&&") if term.strip()]
    functions = {
        "always()": True,
        "success()": status == "success",
        "failure()": status == "failure",
        "cancelled()": status == "cancelled",
    }
    held = [_term(term, functions, values) for term in terms]
    if not any(term in functions for term in terms):
        held.append(status == "success")
    return all(held)


def _term(term: str, functions: Mapping[str, bool], values: Mapping[str, str]) -> bool:
    if term in functions:
        return functions[term]
    found = _COMPARISON.fullmatch(term)
    if found is None:
        raise AssertionError(f"a condition that this runner does not know: {term}")
    return (values[found[1]] == found[3]) == (found[2] == "==")
