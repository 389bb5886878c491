"""`pulumi-lium recover`: creates that were cut off, settled into the stack's state."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import click

from ..api.clock import SYSTEM_CLOCK
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import parse_export
from ..recovery.intents import state_folder
from ..recovery.recover import keep_copy, plan
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
    for step in plan(contexts, intents, export):
        click.echo(f"will {step}")
    if not yes and not (sys.stdin.isatty() and click.confirm("Go on?")):
        click.echo("Nothing was changed. Run it again with --yes.")
        return
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
