"""What a CI file has to have so that nothing bills after it (B32 and its like): each fault as one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

CREATES = re.compile(r"\bpulumi\s+up\b")
REMOVES = re.compile(r"\bpulumi\s+destroy\b|\bpulumi-lium\s+teardown\b")
SWEEPS = re.compile(r"\bpulumi-lium\s+(sweep|teardown)\b")
FORGETS = re.compile(r"^(?!.*(?:destroy|teardown)\b.*&&).*\bstack\s+rm\b.*(?:--force\b|\s-f\b)", re.MULTILINE)
ATTEMPT = re.compile(r"\brun_attempt\b|\bGITHUB_RUN_ATTEMPT\b")
SECRET = re.compile(r"\bsk_\w{8,}|\bpul-[0-9a-f]{8,}")
DEAF = re.compile(r"^(?!\s*exec\s).*\bpulumi-lium\s+teardown\b|\bpulumi-lium\s+teardown\b[^\n]*[|;&]", re.MULTILINE)
"""A teardown that is not what the step's shell becomes: a cancel signals that shell alone."""
SWEEP = re.compile(r"\bpulumi-lium\s+sweep\b")
KEPT_CODE = re.compile(r"\bpulumi-lium\s+teardown\b[^\n;]*\|\|\s*(\w+)=\$\?")
_GUARDS = re.compile(r"\b(?:success|failure|cancelled)\(\)|\bsteps\.")
_SPAN = re.compile(r"(\d+)\s*(m|h|d)\w*")
_MINUTES = {"m": 1, "h": 60, "d": 1440}


def minutes(span: str) -> int:
    """`90m`, `3h`, `2h 20m` in minutes."""
    return sum(int(number) * _MINUTES[unit] for number, unit in _SPAN.findall(span))


def github_faults(workflow: Mapping[str, Any]) -> list[str]:
    """Of a GitHub Actions workflow."""
    return list(_github(workflow))


def _github(workflow: Mapping[str, Any]) -> Iterator[str]:
    jobs = workflow["jobs"]
    creating = {name for name, job in jobs.items() if any(CREATES.search(_run(step)) for step in job["steps"])}
    for name in sorted(creating):
        yield from _github_job(name, jobs[name])
    if not any(_comes_after(job) for name, job in jobs.items() if name not in creating):
        yield "no second job sweeps after the first, whatever became of it"
    if "schedule" not in _triggers(workflow):
        yield "nothing sweeps on a schedule"
    if _names_stack_by_attempt(workflow):
        yield "a stack's name holds run_attempt: a re-run of one job does not find it"
    for name, job in jobs.items():
        if _sweep_is_skipped(job):
            yield f"{name}: a teardown that fails keeps the sweep from running"
        for step in job["steps"]:
            where = f"{name}: {step.get('name') or step.get('uses')}"
            if FORGETS.search(_run(step)):
                yield f"{where}: forgets a stack whose destroy may have failed"
            if "secrets." in _run(step) or "secrets." in str(step.get("with") or ""):
                yield f"{where}: a secret outside env"
            if SECRET.search(str(step)):
                yield f"{where}: a key in plain text"


def _github_job(name: str, job: Mapping[str, Any]) -> Iterator[str]:
    if "timeout-minutes" not in job:
        yield f"{name}: the job has no timeout"
    created, removers = False, []
    for step in job["steps"]:
        created = created or bool(CREATES.search(_run(step)))
        if created and REMOVES.search(_run(step)):
            removers.append(step)
    if not removers:
        yield f"{name}: nothing removes what it creates"
    for step in removers:
        if not _always(step):
            yield f"{name}: {step.get('name')}: not run after failure and cancel (if: always())"
        if "timeout-minutes" not in step:
            yield f"{name}: {step.get('name')}: no timeout of its own"
        if DEAF.search(_run(step)):
            yield f"{name}: {step.get('name')}: the signal of a cancel does not come to the teardown (exec)"


def _envs(workflow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield workflow.get("env") or {}
    for job in workflow["jobs"].values():
        yield job.get("env") or {}
        yield from (step.get("env") or {} for step in job["steps"])


def _names_stack_by_attempt(workflow: Mapping[str, Any]) -> bool:
    """A new attempt of the last job alone would look for a stack that nobody made."""
    lines = [line for job in workflow["jobs"].values() for step in job["steps"] for line in _run(step).splitlines()]
    named = [f"{key} {value}" for env in _envs(workflow) for key, value in env.items()]
    return any(ATTEMPT.search(text) and re.search("stack", text, re.I) for text in [*named, *lines])


def _sweep_is_skipped(job: Mapping[str, Any]) -> bool:
    """Whether a sweep waits for the success of a teardown before it."""
    torn = False
    for step in job["steps"]:
        if torn and SWEEP.search(_run(step)) and not _always(step):
            return True
        torn = torn or bool(REMOVES.search(_run(step)))
    return False


def _comes_after(job: Mapping[str, Any]) -> bool:
    sweeps = any(SWEEPS.search(_run(step)) for step in job["steps"])
    return sweeps and "needs" in job and _always(job)


def _always(item: Mapping[str, Any]) -> bool:
    condition = str(item.get("if", ""))
    return "always()" in condition and not _GUARDS.search(condition) and "||" not in condition


def _run(step: Mapping[str, Any]) -> str:
    return str(step.get("run") or "")


def _triggers(workflow: Mapping[Any, Any]) -> Any:
    # YAML 1.1 reads the key `on` as true.
    return workflow.get("on", workflow.get(True)) or ()


def gitlab_faults(pipeline: Mapping[str, Any]) -> list[str]:
    """Of a GitLab CI file."""
    return list(_gitlab(pipeline))


def _gitlab(pipeline: Mapping[str, Any]) -> Iterator[str]:
    jobs = {name: job for name, job in pipeline.items() if isinstance(job, Mapping) and "script" in job}
    creating = {name for name, job in jobs.items() if CREATES.search(_lines(job, "script"))}
    for name in sorted(creating):
        yield from _gitlab_job(name, jobs[name])
    others = [job for name, job in jobs.items() if name not in creating]
    if not any(SWEEPS.search(_lines(job, "script")) and _when_always(job) for job in others):
        yield "no second job sweeps after the first, whatever became of it"
    for name, job in jobs.items():
        yield from _gitlab_sweep(name, _lines(job, "script"))
        text = _lines(job, "script") + _lines(job, "after_script")
        if FORGETS.search(text):
            yield f"{name}: forgets a stack whose destroy may have failed"
        if SECRET.search(str(job)):
            yield f"{name}: a key in plain text"


def _gitlab_job(name: str, job: Mapping[str, Any]) -> Iterator[str]:
    if not REMOVES.search(_lines(job, "after_script")):
        yield f"{name}: nothing removes after failure and cancel (after_script)"
    variables = job.get("variables") or {}
    script = minutes(str(variables.get("RUNNER_SCRIPT_TIMEOUT", "")))
    after = minutes(str(variables.get("RUNNER_AFTER_SCRIPT_TIMEOUT", "")))
    if not (script and after and script + after <= minutes(str(job.get("timeout", "")))):
        yield f"{name}: the timeouts leave no time for after_script"


def _gitlab_sweep(name: str, script: str) -> Iterator[str]:
    """A script ends at its first command that fails: a teardown's code is kept, and given after the sweep."""
    torn = REMOVES.search(script)
    sweep = SWEEP.search(script, torn.end()) if torn else None
    if torn is None or sweep is None:
        return
    kept = KEPT_CODE.search(script, torn.start(), sweep.start())
    if kept is None and "||" not in script[torn.end() : sweep.start()]:
        yield f"{name}: a teardown that fails keeps the sweep from running"
    elif kept is None or not re.search(rf"\bexit\b.*\b{kept[1]}\b", script[sweep.end() :]):
        yield f"{name}: the exit code of the teardown is lost"


def _lines(job: Mapping[str, Any], key: str) -> str:
    return "\n".join(str(line) for line in job.get(key) or ()) + "\n"


def _when_always(job: Mapping[str, Any]) -> bool:
    rules = job.get("rules") or [job]
    return all(rule.get("when") == "always" for rule in rules)
