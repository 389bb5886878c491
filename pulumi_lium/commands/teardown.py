"""`pulumi-lium teardown`: removes all that a stack has, and proves that nothing of it bills (design 4.2)."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from ..api import SYSTEM_CLOCK
from ..api.errors import LiumError
from ..interruption import Interruption, ended, install
from ..lifecycle.intents import Intent
from ..lifecycle.members import total_price
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import BadExport, StackExport, parse_export
from ..recovery.intents import FileIntents
from ..recovery.stack import PulumiStack
from ..recovery.survey import Contexts
from ..recovery.sweep import Removal
from ..recovery.teardown import Leftover, Outcome, Teardown, delete_on_record
from ._edge import FAILED, MAY_BILL, json_option, print_json
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

_MADE_NAME = re.compile(r".+-[0-9a-f]{6}-[0-9a-f]{6}")
"""A name that was made (design, Names). One that a person chose may be the beginning of another's."""
_LOOK_S = 0.1
_SLOW_S = 10.0
"""Seconds for which the orders on record wait for the state to be read; after a signal they wait no longer."""
_PATIENCE_S = 20.0
"""Seconds that the state may take to be read after a signal."""


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

    The clusters are deleted first and without the engine; the first deletion leaves within 2 s of a SIGINT or SIGTERM,
    for the orders that this disk's journal has also while the stack's state is not read. A first signal does not end
    this command, it only keeps it from waiting; a second one ends it. A stack that is missing is no error: what was
    ordered for it is swept all the same.

    Exit codes: 0 nothing is left, 4 something may still bill, also where not everything is known, 1 failed with nothing
    left that may bill, or with nothing known at all since the listing or the state cannot be read.
    """
    say, interruption = speaker(as_json), install()
    pulumi = PulumiStack(cwd, stack, os.environ, shows_on=2 if as_json else 1)
    intents = journal()
    last_word = _LastWord(pulumi, intents, as_json)
    interruption.last_word = last_word.say

    def contexts(config: Mapping[str, str]) -> Contexts:
        return contexts_of(intents, os.environ, told, config=config, is_hurried=interruption.has_come)

    began = SYSTEM_CLOCK.monotonic()
    with ThreadPoolExecutor(4) as pool:
        reading_text, reading_config = pool.submit(pulumi.export_or_none), pool.submit(pulumi.config)
        # Meanwhile, what the first deletion needs; every tenth of a second counts after a signal.
        pool.submit(importlib.import_module, "requests")
        begun: list[Future[list[Removal]]] = []
        begun_with: Mapping[str, str] | None = None
        reading: list[Future[Any]] = [reading_text, reading_config]
        while wait_for(reading, timeout=_LOOK_S).not_done:
            is_late = interruption.has_come() or SYSTEM_CLOCK.monotonic() - began > _SLOW_S
            # The configuration may name another key than the environment does; it is not waited for either.
            config = reading_config.result() if reading_config.done() else {}
            if is_late and config != begun_with and all(each.done() for each in begun):
                begun.append(pool.submit(delete_on_record, contexts(config), intents, pulumi, told))
                begun_with = config
            if interruption.age() > _PATIENCE_S:
                pulumi.stop_reading()
        export, unread = _read(reading_text, stack, reading_config.result(), interruption, same_key)
        last_word.learn(export, unread)
        if export is None and unread is None:
            say(f"There is no stack {stack}: interrupted orders of it, and clusters with its mark, are looked for.")
        job = Teardown(
            stack=pulumi,
            contexts=contexts(reading_config.result()),
            journal=intents,
            export=export,
            lock_age=lock_age,
            report=told,
            clock=SYSTEM_CLOCK,
            patience=wait,
            timeout=timeout,
            is_hurried=interruption.has_come,
            unread=unread,
            begun=lambda: [removal for each in begun for removal in each.result()],
        )
        outcome = job.run(remove_stack=remove_stack)
    for failure in outcome.failures:
        click.echo(f"failed: {failure}", err=True)
    commands = _commands_that_remove(outcome, stack, cwd)
    if as_json:
        print_json(_document(outcome, commands))
    if outcome.leftovers:
        say(f"Remove it: {', or '.join(f'`{command}`' for command in commands)}")
    say(_last_line(outcome, stack))
    if outcome.leftovers:
        raise click.exceptions.Exit(MAY_BILL)
    if outcome.failures or not outcome.known:
        raise click.exceptions.Exit(FAILED)


def _read(
    reading: Future[str | None], stack: str, config: Mapping[str, str], interruption: Interruption, same_key: bool
) -> tuple[StackExport | None, str | None]:
    """The state, None where there is no such stack; and why it could not be read. Raises for a wrong base URL."""
    base_url = base_url_of(config, os.environ)
    try:
        text = reading.result()
        if text is None:
            return None, None
        source, now = f"the export of {stack}", SYSTEM_CLOCK.now()
        return parse_export(text, source, base_url=base_url, now=now, same_key=same_key), None
    except BadExport as error:
        return None, error.message
    except LiumError as error:
        if interruption.age() > _PATIENCE_S:
            return None, f"`pulumi stack export` gave no answer within {_PATIENCE_S:g} s of the signal"
        return None, str(error)


def _document(outcome: Outcome, commands: list[str]) -> dict[str, Any]:
    """For programs. `known` is false where more may bill than `may_bill` names; `remove_with` goes on from here."""
    return {
        "removed": outcome.removed,
        "failures": outcome.failures,
        "known": outcome.known,
        "missing": outcome.missing,
        "may_bill": [asdict(leftover) for leftover in outcome.leftovers],
        "remove_with": commands,
    }


def _commands_that_remove(outcome: Outcome, stack: str, cwd: Path) -> list[str]:
    """What goes on from here; none where all is done. A sweep only by a name that no other cluster's begins with."""
    if outcome.known and not outcome.leftovers and not outcome.failures:
        return []
    commands = []
    # A teardown leaves a stranger alone, however often it is run.
    if not outcome.leftovers or any(leftover.kind != "stranger" for leftover in outcome.leftovers):
        folder = [] if cwd == Path(".") else ["--cwd", str(cwd)]
        commands.append(shlex.join(["pulumi-lium", "teardown", *folder, "--stack", stack]))
    for leftover in outcome.leftovers:
        if _MADE_NAME.fullmatch(leftover.name):
            account = ["--account", leftover.account] if leftover.account else []
            commands.append(shlex.join(["pulumi-lium", "sweep", "--name-prefix", leftover.name, *account, "--yes"]))
    return commands


def _last_line(outcome: Outcome, stack: str) -> str:
    left = outcome.leftovers
    kept = "" if outcome.missing else f" The stack {stack} was kept."
    if left:
        total = usd(total_price([leftover.price_per_hour for leftover in left]))
        more = "" if outcome.known else " Whether that is all is not known."
        return f"May still bill {total}: {', '.join(leftover.title for leftover in left)}.{more}{kept}"
    if not outcome.known:
        return f"Nothing is known about what bills.{kept}"
    if outcome.failures:
        return f"No cluster of {stack} bills, but not all of it was torn down.{kept} Run it again."
    done = f" Removed: {', '.join(outcome.removed)}." if outcome.removed else ""
    return f"Nothing of {stack} is left that bills.{done}"


class _LastWord:
    """What a second signal names: the clusters in the state, and the orders on record that it does not hold."""

    def __init__(self, stack: PulumiStack, journal: FileIntents, as_json: bool) -> None:
        self._stack, self._journal, self._as_json = stack, journal, as_json
        self._export: StackExport | None = None
        self._is_read = False

    def learn(self, export: StackExport | None, unread: str | None) -> None:
        """What was read of the state; `export` is None where there is no stack."""
        self._export, self._is_read = export, unread is None

    def say(self, name: str) -> tuple[str, str]:
        left = self._left()
        titles = [leftover.title for leftover in left]
        if not self._is_read:
            titles.append("what else this stack has ordered" if titles else "what this stack has ordered")
        line = f"Ended by {name}. May still bill: {', '.join(titles) or 'nothing that is known'}."
        bills: list[dict[str, Any]] = [
            {"name": one.name, "cluster_id": one.cluster_id, "price_per_hour": one.price_per_hour} for one in left
        ]
        return line, ended(line, bills) if self._as_json else ""

    def _left(self) -> list[Leftover]:
        clusters, orders = (self._export.clusters, self._export.pending) if self._export else ((), ())
        left = [Leftover(c.name, c.cluster_id, c.price_per_hour, "it stands in the state") for c in clusters]
        on_record = list[Intent]()
        with suppress(LiumError):
            on_record = [intent for intent in self._journal.peek() if self._stack.owns(intent.owner)]
        for intent in (*on_record, *(create.intent for create in orders)):
            named = {one.cluster_id for one in left if one.cluster_id} | {one.name for one in left}
            if intent.stage != "opened" and intent.cluster_id not in named and intent.pod_name not in named:
                left.append(Leftover(intent.pod_name, intent.cluster_id, intent.price_per_hour, "was interrupted"))
        return left
