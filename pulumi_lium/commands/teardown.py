"""`pulumi-lium teardown`: removes all that a stack has, and proves that nothing of it bills (design 4.2)."""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ..api import SYSTEM_CLOCK
from ..api.errors import LiumError
from ..lifecycle.members import total_price
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import StackExport, parse_export
from ..recovery.stack import PulumiStack
from ..recovery.teardown import Outcome, Teardown
from ._edge import FAILED, MAY_BILL, error_document, json_option, print_json
from ._recovery import (
    Seconds,
    cwd_option,
    journal,
    lock_age_option,
    same_key_option,
    speaker,
    stack_option,
    told,
    wait_option,
)


@click.command()
@stack_option
@cwd_option
@lock_age_option
@wait_option
@click.option("--timeout", type=Seconds(min=1), metavar="SECONDS", help="Limit for each cluster's removal.")
@same_key_option
@click.option("--remove-stack", is_flag=True, help="Remove the stack too, once nothing is left in it.")
@json_option
def teardown(
    stack: str,
    cwd: Path,
    lock_age: timedelta,
    wait: float,
    timeout: float | None,
    same_key: bool,
    remove_stack: bool,
    as_json: bool,
) -> None:
    """Delete the stack's clusters, destroy the rest with the engine, sweep, and look again. Safe to repeat.

    The clusters are deleted first and without the engine; the first deletion leaves within 2 s of a SIGINT or SIGTERM.
    A first signal does not end this command, it only keeps it from waiting; a second one ends it. A stack that is
    missing is no error: what was ordered for it is swept all the same.

    Exit codes: 0 nothing is left, 1 failed, or nothing is known since the listing cannot be read, 4 something may
    still bill.
    """
    say, interruption = speaker(as_json), _Interruption(as_json)
    pulumi = PulumiStack(cwd, stack, os.environ, shows_on=2 if as_json else 1)
    intents = journal()
    now = SYSTEM_CLOCK.now
    with ThreadPoolExecutor(3) as pool:
        reading_text, reading_config = pool.submit(pulumi.export_or_none), pool.submit(pulumi.config)
        # Meanwhile, what the first deletion needs; every tenth of a second counts after a signal.
        pool.submit(importlib.import_module, "requests")
        config, text = reading_config.result(), reading_text.result()
    export = None
    if text is not None:
        base_url, source = base_url_of(config, os.environ), f"the export of {stack}"
        export = parse_export(text, source, base_url=base_url, now=now(), same_key=same_key)
    interruption.export = export
    if export is None:
        say(f"There is no stack {stack}: interrupted orders of it, and clusters with its mark, are looked for.")
    job = Teardown(
        stack=pulumi,
        contexts=contexts_of(intents, os.environ, told, config=config, require_caller=interruption.require_patience),
        journal=intents,
        export=export,
        lock_age=lock_age,
        report=told,
        clock=SYSTEM_CLOCK,
        patience=wait,
        timeout=timeout,
        is_hurried=interruption.has_come,
    )
    outcome = job.run(remove_stack=remove_stack)
    for failure in outcome.failures:
        click.echo(f"failed: {failure}", err=True)
    if as_json:
        print_json(_document(outcome))
    say(_last_line(outcome, stack))
    if not outcome.known:
        raise click.exceptions.Exit(FAILED)
    if outcome.leftovers:
        raise click.exceptions.Exit(MAY_BILL)
    if outcome.failures:
        raise click.exceptions.Exit(FAILED)


def _document(outcome: Outcome) -> dict[str, Any]:
    """For programs."""
    return {
        "removed": outcome.removed,
        "failures": outcome.failures,
        "known": outcome.known,
        "may_bill": [asdict(leftover) for leftover in outcome.leftovers],
    }


def _last_line(outcome: Outcome, stack: str) -> str:
    left = outcome.leftovers
    if left:
        total = usd(total_price([leftover.price_per_hour for leftover in left]))
        return f"May still bill {total}: {', '.join(leftover.title for leftover in left)}. The stack {stack} was kept."
    if not outcome.known:
        return f"Nothing is known about what bills. The stack {stack} was kept."
    if outcome.failures:
        return f"No cluster of {stack} bills, but not all of it was torn down: the stack was kept. Run it again."
    done = f" Removed: {', '.join(outcome.removed)}." if outcome.removed else ""
    return f"Nothing of {stack} is left that bills.{done}"


class _Impatient(LiumError):
    """An interrupt came: nothing is waited for any more."""


class _Interruption:
    """SIGINT and SIGTERM: the first takes the patience away, the second ends the process, saying what may bill."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.export: StackExport | None = None
        self._came = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def has_come(self) -> bool:
        return self._came.is_set()

    def require_patience(self) -> None:
        if self._came.is_set():
            raise _Impatient("It was interrupted, so a lost order was not waited for", code="interrupted")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self._came.is_set():
            self._came.set()
            os.write(2, f"{name}: the deletions go out all the same; a second signal ends this.\n".encode())
            return
        clusters = self.export.clusters if self.export else ()
        named = ", ".join(f"{c.name} (cluster {c.cluster_id}, {usd(c.price_per_hour)})" for c in clusters)
        line = f"Ended by {name}. May still bill: {named or 'what this stack has ordered'}."
        if self._as_json:
            bills = [{"name": c.name, "cluster_id": c.cluster_id, "price_per_hour": c.price_per_hour} for c in clusters]
            document = {**error_document("interrupted", line, "Run it again.", MAY_BILL), "may_bill": bills}
            os.write(1, (json.dumps(document) + "\n").encode())
        os.write(2 if self._as_json else 1, f"{line}\n".encode())
        os._exit(MAY_BILL)
