"""Drives one Pulumi stack with the real CLI, and can interrupt or kill the engine at a chosen moment."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import ProcessHandle, children
from tests.support.waiting import wait_for

PROJECT = "name: {name}\nruntime: python\n"
COMMAND_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit code, all it printed, the engine's events, the stack's outputs afterwards."""

    code: int
    text: str
    events: list[dict[str, Any]] = field(repr=False)
    outputs: dict[str, Any]
    seconds: float

    @property
    def changes(self) -> dict[str, int]:
        """Resources by operation, as the engine's summary counts them: `{"same": 2}`, `{"create": 3}`."""
        for event in reversed(self.events):
            if "summaryEvent" in event:
                return dict(event["summaryEvent"]["resourceChanges"])
        return {}

    @property
    def diagnostics(self) -> list[dict[str, Any]]:
        """What programs and providers said, in order: severity, message, urn."""
        return [event["diagnosticEvent"] for event in self.events if "diagnosticEvent" in event]

    @property
    def steps(self) -> list[tuple[str, str]]:
        """(operation, resource type and name) of each step, in the order of their start."""
        found = (event["resourcePreEvent"]["metadata"] for event in self.events if "resourcePreEvent" in event)
        return [(step["op"], "::".join(step["urn"].split("::")[-2:])) for step in found]


class Running:
    """A command that is still at work."""

    def __init__(
        self, stack: Stack, verb: str, arguments: list[str], events: Path | None, env: Mapping[str, str]
    ) -> None:
        self._stack, self._events = stack, events
        self._log = stack.root / f"{verb}-{time.monotonic_ns()}.log"
        self._began = time.monotonic()
        environ = {**stack.env, **env}
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [shutil.which("pulumi", path=environ["PATH"]) or "pulumi", *arguments],
                cwd=stack.project,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        """All it has printed so far."""
        return self._log.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """The engine's events so far (a line that is being written is left out)."""
        if self._events is None or not self._events.exists():
            return []
        lines = self._events.read_text(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in lines if line.strip()]

    def wait_until(self, look: Callable[[], Any], *, what: str, timeout: float = 60.0) -> None:
        """Until `look()` is true. Fails at once, with the output, if the command ends before."""

        def ended_or_true() -> bool:
            if look():
                return True
            if self.process.poll() is not None and not look():
                raise AssertionError(f"the command ended ({self.process.returncode}) before: {what}\n{self.text()}")
            return False

        wait_for(ended_or_true, what=f"{what}\n{self.text()}", timeout=timeout)

    def wait_until_says(self, text: str, *, timeout: float = 60.0) -> None:
        """Until it has printed `text`."""
        self.wait_until(lambda: text in self.text(), what=f"output with {text!r}", timeout=timeout)

    def wait_until_pending(self, kind: str, *, timeout: float = 60.0) -> None:
        """Until the stack's state has a pending operation of `kind` (creating, updating, deleting, reading)."""
        self.wait_until(
            lambda: any(operation["type"] == kind for operation in self._stack.pending_operations()),
            what=f"pending operation of kind {kind}",
            timeout=timeout,
        )

    def interrupt(self) -> None:
        """One Ctrl-C to the CLI; the engine passes it on as it sees fit."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> list[ProcessHandle]:
        """kill -9 of the engine at this moment. Answers handles on the processes it leaves (host and providers)."""
        left = children(self.process.pid)
        self.process.kill()
        self.process.wait()
        self._stack.adopt_processes(left)
        return left

    def wait(self, *, timeout: float = COMMAND_TIMEOUT_S, ok: bool | None = None) -> Outcome:
        """Until it has ended. `ok` says what is expected: True success, False failure, None either."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"not done after {timeout:.0f} s:\n{self.text()}") from None
        seconds = time.monotonic() - self._began
        text = self.text()
        assert ok is None or (code == 0) == ok, f"exit code {code} after {seconds:.1f} s:\n{text}"
        outputs = {} if self._events is None else self._stack.outputs()
        return Outcome(code, text, self.events(), outputs, seconds)


class Stack:
    """One stack of one program, in a folder of its own: project, state, Pulumi home and user's home."""

    def __init__(
        self, root: Path, program: str | Path, *, files: Mapping[str, str], env: Mapping[str, str], name: str
    ) -> None:
        self.root, self.name = root, name
        self.project = root / "project"
        self._state, home = root / "state", root / "home"
        for folder in (self._state, home):
            folder.mkdir(parents=True)
        if isinstance(program, Path):
            shutil.copytree(program, self.project, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml"))
        else:
            self.project.mkdir()
            (self.project / "__main__.py").write_text(program)
        for path, text in files.items():
            (self.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.project / path).write_text(text)
        if not (self.project / "Pulumi.yaml").exists():
            (self.project / "Pulumi.yaml").write_text(PROJECT.format(name="engine-test"))
        self.env = {
            **env,
            "HOME": str(home),
            "PULUMI_HOME": str(root / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{self._state}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DEBUG_COMMANDS": "true",  # for --event-log
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }
        self._left: list[ProcessHandle] = []
        self._running: list[Running] = []

    def init(self) -> None:
        """Makes the stack."""
        self.run("stack", "init", self.name)

    def set_program(self, text: str) -> None:
        """Replaces the program."""
        (self.project / "__main__.py").write_text(text)

    def set_config(self, key: str, value: str, *, secret: bool = False) -> None:
        self.run("config", "set", "--stack", self.name, key, value, *(["--secret"] if secret else ["--plaintext"]))

    # Verbs of the engine. `ok` as in Running.wait; further arguments go to the CLI.

    def up(self, *arguments: str, ok: bool | None = True, env: Mapping[str, str] | None = None) -> Outcome:
        return self.start("up", *arguments, env=env).wait(ok=ok)

    def preview(self, *arguments: str, ok: bool | None = True, env: Mapping[str, str] | None = None) -> Outcome:
        return self.start("preview", *arguments, env=env).wait(ok=ok)

    def refresh(self, *arguments: str, ok: bool | None = True, env: Mapping[str, str] | None = None) -> Outcome:
        return self.start("refresh", *arguments, env=env).wait(ok=ok)

    def destroy(self, *arguments: str, ok: bool | None = True, env: Mapping[str, str] | None = None) -> Outcome:
        return self.start("destroy", *arguments, env=env).wait(ok=ok)

    def cancel(self) -> Outcome:
        """Takes the lock of a dead engine off the stack."""
        return self.run("cancel", "--yes", self.name)

    def export(self, *arguments: str) -> dict[str, Any]:
        """The stack's deployment, as `pulumi stack export` gives it (secrets stay encrypted)."""
        done = self.run("stack", "export", "--stack", self.name, *arguments)
        return dict(json.loads(done.text))

    def import_(self, deployment: Mapping[str, Any]) -> Outcome:
        """Puts a deployment in the place of the stack's own."""
        file = self.root / f"import-{time.monotonic_ns()}.json"
        file.write_text(json.dumps(deployment))
        return self.run("stack", "import", "--stack", self.name, "--file", str(file), "--force")

    def start(self, verb: str, *arguments: str, env: Mapping[str, str] | None = None) -> Running:
        """Starts up, preview, refresh or destroy and goes on at once."""
        events = self.root / f"events-{time.monotonic_ns()}.jsonl"
        always = ["--stack", self.name, "--non-interactive", "--color", "never", "--event-log", str(events)]
        if verb != "preview":
            always += ["--yes", "--skip-preview"]
        self._running.append(Running(self, verb, [verb, *always, *arguments], events, env or {}))
        return self._running[-1]

    def run(self, *arguments: str, ok: bool | None = True) -> Outcome:
        """Any other command."""
        return Running(self, arguments[0], [*arguments, "--non-interactive", "--color", "never"], None, {}).wait(ok=ok)

    # What the stack holds, read from the backend's file, so that it also works while an engine has the lock.

    def checkpoint(self) -> dict[str, Any]:
        """The latest deployment on disk; empty before the first."""
        files = list(self._state.glob(f".pulumi/stacks/*/{self.name}.json"))
        if not files:
            return {}
        return dict(json.loads(files[0].read_text())["checkpoint"].get("latest") or {})

    def resources(self) -> list[dict[str, Any]]:
        """Resources in the state, the stack itself and providers left out."""
        listed = self.checkpoint().get("resources") or []
        return [item for item in listed if not item["type"].startswith("pulumi:")]

    def pending_operations(self) -> list[dict[str, Any]]:
        """Operations that the engine began and has not finished."""
        return list(self.checkpoint().get("pending_operations") or [])

    def outputs(self) -> dict[str, Any]:
        """What the program exported last."""
        for item in self.checkpoint().get("resources") or []:
            if item["type"] == "pulumi:pulumi:Stack":
                return dict(item.get("outputs") or {})
        return {}

    def adopt_processes(self, handles: list[ProcessHandle]) -> None:
        """Ends `handles` when the stack is closed."""
        self._left.extend(handles)

    def close(self) -> None:
        """Ends what is still at work, after a test that failed, and what killed engines left behind."""
        for running in self._running:
            if running.process.poll() is None:
                running.kill()
        for handle in self._left:
            handle.end()
            handle.close()
