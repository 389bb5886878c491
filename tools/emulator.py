"""The emulator as a process of its own, and its control plane (design 4.3), for the demo and the tests."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO, Any

from tools.console import SetupError

FIRST_LINE = "Lium API emulator: "
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class ControlPlane:
    """The emulator's control plane: `base_url` is the API's (ends in `/api`), the control plane lies beside it."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._root = base_url.removesuffix("/api") + "/_emulator"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call under `/_emulator`. An answer that is no success raises with the server's words."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._root}/{path}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(
                f"{method} /_emulator/{path} answered {error.code}: {error.read().decode(errors='replace')[:500]}"
            ) from error
        return json.loads(text) if text.strip() else None

    def reset(self, scenario: Mapping[str, Any] | None = None) -> Any:
        """Starts over with `scenario`, or with the built-in one."""
        return self.call("POST", "reset", None if scenario is None else dict(scenario))

    def state(self) -> dict[str, Any]:
        """The whole market: hosts, pods (gone ones too), clusters, accounts, ledger, clock."""
        return dict(self.call("GET", "state"))

    def journal(self) -> list[dict[str, Any]]:
        """Every API request since the reset, in order of arrival."""
        return list(self.call("GET", "journal"))

    def advance(self, seconds: float) -> Any:
        """Moves a virtual clock."""
        return self.call("POST", "clock", {"advance_s": seconds})

    def fault(self, on: str, kind: str, *, times: int = 1, after: int = 0, **fields: Any) -> Any:
        """Puts a fault in force, for example `fault("GET /pods", "status", code=503)`; `times=0` is for ever."""
        fault = {"kind": kind, **fields}
        return self.call("POST", "faults", {"on": on, "times": times, "after": after, "fault": fault})

    def clear_faults(self) -> Any:
        return self.call("DELETE", "faults")

    def event(self, event: str, **fields: Any) -> Any:
        """Makes a market event happen now, for example `event("machine_lost", host="h1")`."""
        return self.call("POST", "events", {"event": event, **fields})

    def script(self, steps: Sequence[Mapping[str, Any]]) -> Any:
        """Plays a scripted story in the format of the field cases; an empty one ends it."""
        return self.call("POST", "script", {"steps": [dict(step) for step in steps]})

    def billing(self) -> dict[str, Any]:
        """What costs money at this moment: `{"pods": [ids], "price_per_hour": USD}`."""
        return dict(self.state()["billing"])


class Emulator(ControlPlane):
    """`pulumi-lium emulator` in a process of its own, on a free port; stopped by its pid."""

    def __init__(
        self, command: Sequence[str], arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ
    ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self._process = subprocess.Popen(
            [*command, "emulator", "--port", "0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # a Ctrl-C at the terminal must not end it before the cluster is destroyed
        )
        try:
            super().__init__(self._read_address())
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read_address(self) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        output, line = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SetupError(f"the emulator did not answer within {START_TIMEOUT_S:.0f} s")
                byte = os.read(output, 1)
                if not byte:
                    raise SetupError(f"the emulator ended with exit code {self._process.wait()}:\n{self.errors()}")
                line += byte
        text = line.decode().strip()
        if not text.startswith(FIRST_LINE):
            raise SetupError(f"the emulator's first line is {text!r}, expected {FIRST_LINE!r} and its address")
        return text.removeprefix(FIRST_LINE)

    def errors(self) -> str:
        """The end of what it wrote to stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def kill(self) -> None:
        """kill -9: nothing is written any more."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it in order, or by force after ten seconds. May be called twice."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
