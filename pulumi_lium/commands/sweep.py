"""`pulumi-lium sweep`: what bills and is owned by nobody (design 4.2)."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import click

from ..api import SYSTEM_CLOCK
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import read_export
from ..recovery.survey import survey
from ..recovery.sweep import clean, still_open
from ._edge import MAY_BILL, account_option, json_option, print_json
from ._recovery import (
    journal,
    last_line,
    may_bill,
    print_findings,
    print_removals,
    removal_document,
    same_key_option,
    span,
    told,
    wait_option,
    yes_option,
)


@click.command()
@click.option(
    "--stack-export",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Output of `pulumi stack export`, with no run of the stack under way: its clusters are owned, its creates that"
    " were cut off are looked for.",
)
@click.option("--name-prefix", help="Also every cluster whose name begins so, except those in the stack's export.")
@click.option("--older-than", callback=span, metavar="SPAN", help="Leave alone what is younger: 90m, 8h, 2d.")
@account_option
@wait_option
@same_key_option
@yes_option
@json_option
def sweep(
    stack_export: Path | None,
    name_prefix: str | None,
    older_than: timedelta | None,
    account: str | None,
    wait: float,
    same_key: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """List what bills and is owned by nobody, with its price; remove it with --yes.

    Looks at the open intents of this disk (orders that were interrupted), at creates that were cut off in the stack's
    export, and at names by prefix, when one is given; in every account that these name, and in that of --account, else
    in the default one if it has a key. A cluster whose order a living process is at work on, or that stands in the
    export's state, is never touched; the former is named, as its process may die.

    Exit codes: 0 nothing is left, 1 the listing cannot be read (nothing is known then), 4 something may still bill.
    """
    if name_prefix is not None and not name_prefix.strip():
        raise click.BadParameter("is empty: every cluster of the account would be meant", param_hint="--name-prefix")
    intents = journal()
    contexts = contexts_of(intents, os.environ, told)
    export = None
    if stack_export is not None:
        export = read_export(
            stack_export, base_url=base_url_of({}, os.environ), now=SYSTEM_CLOCK.now(), same_key=same_key
        )
    found = survey(contexts, intents, export=export, name_prefix=name_prefix, older_than=older_than, account=account)
    now = SYSTEM_CLOCK.now()
    if not as_json:
        for note in found.notes:
            click.echo(note, err=True)
        print_findings(found.findings, now)
    removals = clean(contexts, intents, found, patience=wait) if yes else []
    left = still_open(found, removals)
    if as_json:
        print_json(
            {
                "findings": [finding.document(now) for finding in found.findings],
                "notes": list(found.notes),
                "removals": [removal_document(removal) for removal in removals],
                "may_bill": may_bill(left),
            }
        )
    else:
        print_removals(removals)
        if not yes and any(finding.removable for finding in left):
            click.echo("Nothing was changed. Run it again with --yes to remove what is listed.")
    click.echo(last_line(left), err=as_json)
    if left:
        raise click.exceptions.Exit(MAY_BILL)
