"""`pulumi-lium teardown`, signalled while the Pulumi CLI gives no answer: what is on record goes all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import SecretStr

from pulumi_lium.api import ClusterOrder, LiumApi, Settings
from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.recovery.intents import FileIntents
from tests.conftest import OWNER_KEY
from tests.support.clusters import PUBLIC_KEY, live, market
from tests.support.waiting import wait_for
from tools.emulator import Emulator

NAME = "train-163199-0a0a0a"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def on_record(emulator: Emulator, tmp_path: Path) -> str:
    """A cluster whose order was interrupted, in the journal of this disk: its id."""
    emulator.reset(market())
    api = LiumApi(Settings(emulator.base_url, SecretStr(OWNER_KEY)))
    body = ClusterOrder(
        pod_name=NAME,
        template_id=api.templates.list()[0].id,
        executor_uuids=[machine.id for machine in api.offers.list()[0].nodes[:2]],
        user_public_key=[PUBLIC_KEY],
    )
    api.clusters.order(body, idempotency_key="0b5a2f0e-6f0f-4d3c-9b57")
    sent = datetime.now(timezone.utc) - timedelta(minutes=1)
    journal = FileIntents(tmp_path / "state" / "intents")
    journal.open(
        Intent(
            owner="organization/web/dev/train",
            pod_name=NAME,
            idempotency_key="0b5a2f0e-6f0f-4d3c-9b57",
            base_url=emulator.base_url,
            account=None,
            nodes=2,
            price_per_hour=32.0,
            opened_at=sent,
            stage="sent",
            sent_at=sent,
        )
    )
    journal.release("0b5a2f0e-6f0f-4d3c-9b57")
    (cluster_id,) = {str(pod["cluster_id"]) for pod in live(emulator)}
    return cluster_id


@pytest.fixture
def start(lium_env: Mapping[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts the teardown of a stack whose CLI does what `export` says; `patience` is how long that may take.

    `config` is what the CLI does when it is asked for the configuration; by default the stack's file tells that.
    """
    started = []

    def run(
        export: str, patience: float = 20.0, config: str | None = None, key: str = OWNER_KEY
    ) -> subprocess.Popen[str]:
        tools, project = tmp_path / "bin", tmp_path / "project"
        tools.mkdir()
        project.mkdir()
        (project / "Pulumi.yaml").write_text("name: web\nruntime: python\n")
        answers = f'[ "$1 $2" = "stack export" ] && {export}\n'
        if config is None:
            (project / "Pulumi.dev.yaml").write_text("{}\n")
        else:
            answers += f'[ "$1" = config ] && {config}\n'
        (tools / "pulumi").write_text(f"#!/bin/sh\n{answers}exit 9\n")
        (tools / "pulumi").chmod(0o755)
        arguments = ["pulumi-lium", "teardown", "--cwd", str(project), "--stack", "dev"]
        # The handlers as `main` sets them, before the module that the limit stands in is loaded.
        program = (
            f"import sys; sys.argv = {arguments!r}; from pulumi_lium import cli, interruption; interruption.install();"
            f" import pulumi_lium.commands.teardown as t; t._PATIENCE_S = {patience}; cli.main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "PULUMI_LIUM_STATE_DIR": str(tmp_path / "state"),
                **lium_env,
                "LIUM_API_KEY": key,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def deletes(emulator: Emulator) -> int:
    return sum(row["method"] == "DELETE" for row in emulator.journal())


def handles(process: subprocess.Popen[str]) -> bool:
    """Whether SIGTERM does not simply end it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("config", [None, "exec sleep 600"], ids=["export", "export and config"])
def test_a_signal_before_anything_is_loaded_deletes_what_is_on_record_though_the_backend_hangs(
    on_record: str, start: Start, emulator: Emulator, config: str | None
) -> None:
    # Its imports come after the signal: a machine on which they take long is given its share of that.
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import pulumi_lium.commands.teardown, requests"], check=True)
    allowed = max(2.0, 4 * (time.monotonic() - began))
    process = start("exec sleep 600", config=config)
    wait_for(lambda: handles(process), what="the handlers", poll=0.005)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    wait_for(lambda: deletes(emulator) > 0, what="the first DELETE", timeout=20, poll=0.01)
    seconds = time.monotonic() - began
    assert seconds < allowed, f"{seconds:.1f} s"
    wait_for(lambda: live(emulator) == [], what="the cluster is gone")
    assert process.poll() is None


def test_a_key_that_only_the_configuration_has_is_used_once_it_is_read(
    on_record: str, start: Start, emulator: Emulator, tmp_path: Path
) -> None:
    """The signal goes on without the configuration, with the environment's key, which is that of nobody."""
    settings = json.dumps({"lium:apiKey": {"value": OWNER_KEY, "secret": True}})
    tried = f"until [ -e {tmp_path / 'tried'} ]; do sleep 0.05; done"
    before = len(emulator.journal())
    process = start("exec sleep 600", config=f"{{ {tried}; echo '{settings}'; exit 0; }}", key="sk_of_nobody")
    wait_for(lambda: handles(process), what="the handlers", poll=0.005)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: len(emulator.journal()) > before, what="a look with the environment's key", timeout=20)
    assert deletes(emulator) == 0
    assert live(emulator)
    (tmp_path / "tried").touch()
    wait_for(lambda: live(emulator) == [], what="the cluster is gone", timeout=20)


def test_a_second_signal_names_what_is_on_record(on_record: str, start: Start, emulator: Emulator) -> None:
    emulator.fault("DELETE /clusters/*", "delay", seconds=6, times=0)
    process = start("exec sleep 600")
    wait_for(lambda: handles(process), what="the handlers", poll=0.005)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: deletes(emulator) > 0, what="the first DELETE", timeout=20)
    process.send_signal(signal.SIGTERM)
    *_, last = process.communicate(timeout=20)[0].splitlines()
    assert process.returncode == 4
    assert last.startswith(f"Ended by SIGTERM. May still bill: {NAME} (cluster {on_record}, $32.00 an hour), what else")
    emulator.clear_faults()


def test_after_a_signal_a_state_that_gives_no_answer_is_waited_for_no_longer(
    on_record: str, start: Start, emulator: Emulator
) -> None:
    process = start("exec sleep 600", patience=1.0)
    wait_for(lambda: handles(process), what="the handlers", poll=0.005)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=40)[0]
    assert process.returncode == 1, said
    assert "`pulumi stack export` gave no answer within 1 s of the signal" in said
    assert "Nothing is known about what bills. The stack dev was kept." in said
    assert live(emulator) == []


def test_a_state_that_cannot_be_read_keeps_nothing_on_record(on_record: str, start: Start, emulator: Emulator) -> None:
    process = start("{ echo 'error: incorrect passphrase' >&2; exit 255; }")
    said = process.communicate(timeout=40)[0]
    assert process.returncode == 1, said
    assert f"removed: {NAME} (cluster {on_record}), of an interrupted order" in said
    assert "incorrect passphrase" in said
    assert "Nothing is known about what bills" in said
    assert live(emulator) == []


def test_what_bills_is_the_exit_code_also_where_the_state_cannot_be_read(
    on_record: str, start: Start, emulator: Emulator, tmp_path: Path
) -> None:
    emulator.fault("DELETE /clusters/*", "status", times=0, code=403, body={"detail": "missing scope"})
    process = start("{ echo 'error: incorrect passphrase' >&2; exit 255; }")
    *_, remove, last = process.communicate(timeout=40)[0].splitlines()
    assert process.returncode == 4
    assert last.startswith(f"May still bill $32.00 an hour: {NAME} (cluster {on_record}, ")
    assert last.endswith("Whether that is all is not known. The stack dev was kept.")
    again = f"`pulumi-lium teardown --cwd {tmp_path / 'project'} --stack dev`"
    assert remove == f"Remove it: {again}, or `pulumi-lium sweep --name-prefix {NAME} --yes`"
    emulator.clear_faults()
