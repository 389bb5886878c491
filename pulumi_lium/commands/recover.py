"""`pulumi-lium recover`: creates that were cut off, settled into the stack's state."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import click

from ..api.clock import SYSTEM_CLOCK
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import parse_export
from ..recovery.intents import state_folder
from ..recovery.recover import await_others, keep_copy, others_pending, plan
from ..recovery.recover import recover as recover_stack
from ..recovery.stack import PulumiStack
from ._edge import MAY_BILL
from ._recovery import cwd_option, journal, lock_age_option, stack_option, told, wait_option, yes_option


@click.command()
@stack_option
@cwd_option
@lock_age_option
@wait_option
@yes_option
def recover(stack: str, cwd: Path, lock_age: timedelta, wait: float, yes: bool) -> None:
    """Settle the creates that were cut off, and edit the stack's state accordingly.

    Each is looked for by its exact name. A cluster that is what the create asked for is adopted into the state: the
    next `pulumi up` orders nothing. Any other is removed. The state as it was is kept in a file.

    Exit codes: 0 settled, 1 failed (the state is as it was), 4 shown only, and it may bill.
    """
    pulumi = PulumiStack(cwd, stack, os.environ)
    intents = journal()
    config = pulumi.config()
    source, now = f"the export of {stack}", SYSTEM_CLOCK.now()
    export = parse_export(pulumi.export(), source, base_url=base_url_of(config, os.environ), now=now)
    if not export.pending:
        click.echo(f"No create of a cluster was cut off in {stack}: nothing to do.")
        return
    contexts = contexts_of(intents, os.environ, told, config=config)
    if yes:
        await_others(intents, export, SYSTEM_CLOCK, told, patience=wait)
    steps = plan(contexts, intents, export)
    for step in steps:
        click.echo(f"will {step}")
    for other in others_pending(export):
        click.echo(f"the engine will forget this pending operation too: {other}")
    if not yes and not (sys.stdin.isatty() and click.confirm("Go on?")):
        click.echo("Nothing was changed. Run it again with --yes.")
        bills = ", ".join(f"{step.intent.pod_name} ({usd(step.price_per_hour)})" for step in steps)
        click.echo(f"May bill: {bills}.")
        raise click.exceptions.Exit(MAY_BILL)
    copy = keep_copy(export, state_folder(os.environ) / "backups", stack, SYSTEM_CLOCK.now())
    click.echo(f"The state as it was: {copy}")
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
        click.echo(f"done: {step}")
    click.echo("The state was imported. The next `pulumi up` goes on from it.")
    left = [step for step in steps if step.action == "leave"]
    if left:
        click.echo(f"May still bill: {'; '.join(step.title for step in left)}.")
        raise click.exceptions.Exit(MAY_BILL)
