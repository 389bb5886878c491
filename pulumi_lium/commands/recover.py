"""`pulumi-lium recover`: creates that were cut off, settled into the stack's state."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from ..api.clock import SYSTEM_CLOCK
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import parse_export
from ..recovery.intents import UnreadableRecord, state_folder
from ..recovery.recover import Step, await_others, keep_copy, others_pending, plan
from ..recovery.recover import recover as recover_stack
from ..recovery.stack import PulumiStack
from ._edge import MAY_BILL, json_option, print_json
from ._recovery import (
    cwd_option,
    journal,
    lock_age_option,
    same_key_option,
    speaker,
    stack_option,
    told,
    wait_option,
    yes_option,
)


@click.command()
@stack_option
@cwd_option
@lock_age_option
@wait_option
@same_key_option
@yes_option
@json_option
def recover(stack: str, cwd: Path, lock_age: timedelta, wait: float, same_key: bool, yes: bool, as_json: bool) -> None:
    """Settle the creates that were cut off, and edit the stack's state accordingly.

    Each is looked for by its exact name. A cluster that is what the create asked for is adopted into the state: the
    next `pulumi up` orders nothing. Any other is removed. The state as it was is kept in a file. A cluster of which a
    chosen name alone does not tell whose it is has to be settled first: until then the state is left as it is.

    Exit codes: 0 settled, 1 failed (the state is as it was), 4 something may still bill: it was shown only, has to be
    settled by a person first, or a record of the journal on this disk cannot be read.
    """
    say = speaker(as_json)
    pulumi = PulumiStack(cwd, stack, os.environ)
    intents = journal()
    unreadable = list[UnreadableRecord]()
    intents.look(aside=unreadable)
    for record in unreadable:
        told(f"warning: {record.problem}")
    config = pulumi.config()
    source, now = f"the export of {stack}", SYSTEM_CLOCK.now()
    base_url = base_url_of(config, os.environ)
    export = parse_export(pulumi.export(), source, base_url=base_url, now=now, same_key=same_key)
    if not export.pending:
        say(f"No create of a cluster was cut off in {stack}: nothing to do.")
        if as_json:
            print_json(_document([], unreadable, changed=False))
        _end(unreadable, say)
        return
    contexts = contexts_of(intents, os.environ, told, config=config)
    if yes:
        await_others(intents, export, SYSTEM_CLOCK, told, patience=wait)
    steps = plan(contexts, intents, export)
    for step in steps:
        say(f"will {step}")
    for other in others_pending(export):
        say(f"the engine will forget this pending operation too: {other}")
    if any(step.action == "leave" for step in steps):
        refused = "Nothing was changed, as the state alone tells of what is left alone."
    elif not yes and not (sys.stdin.isatty() and click.confirm("Go on?", err=as_json)):
        refused = "Nothing was changed. Run it again with --yes."
    else:
        refused = ""
    if refused:
        say(refused)
        bills = [f"{step.intent.pod_name} ({usd(step.price_per_hour)})" for step in steps]
        if as_json:
            print_json(_document(steps, unreadable, changed=False))
        say(f"May bill: {', '.join([*bills, *map(_title, unreadable)])}.")
        raise click.exceptions.Exit(MAY_BILL)
    copy = keep_copy(export, state_folder(os.environ) / "backups", stack, SYSTEM_CLOCK.now())
    say(f"The state as it was: {copy}")
    steps = recover_stack(
        pulumi,
        contexts,
        intents,
        export,
        now=SYSTEM_CLOCK.now(),
        lock_age=lock_age,
        report=told,
        patience=wait,
    )
    for step in steps:
        say(f"done: {step}")
    say("The state was imported. The next `pulumi up` goes on from it.")
    if as_json:
        print_json({**_document(steps, unreadable, changed=True), "state_before": str(copy)})
    _end(unreadable, say)


def _end(unreadable: list[UnreadableRecord], say: Callable[[str], None]) -> None:
    """What may still bill is the last line."""
    if unreadable:
        say(f"May still bill: {'; '.join(map(_title, unreadable))}.")
        raise click.exceptions.Exit(MAY_BILL)


def _title(record: UnreadableRecord) -> str:
    return f"the order in {record.path} ({usd(None)})"


def _document(steps: list[Step], unreadable: list[UnreadableRecord], *, changed: bool) -> dict[str, Any]:
    """For programs. Until something was changed every step is only planned, and its cluster may bill."""
    documents = [
        {
            "action": step.action,
            "name": step.intent.pod_name,
            "cluster_id": step.placed.cluster_id if step.placed else None,
            "price_per_hour": step.price_per_hour,
            "why": step.why,
        }
        for step in steps
    ]
    lost = [
        {"action": "leave", "name": str(record.path), "cluster_id": None, "price_per_hour": None, "why": record.problem}
        for record in unreadable
    ]
    return {
        "changed": changed,
        "steps": documents,
        "may_bill": [document for document in documents if not changed] + lost,
    }
