"""`pulumi-lium sweep`: what bills and is owned by nobody (design 4.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import click

from ..api import SYSTEM_CLOCK
from ..lifecycle.members import total_price
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import read_export
from ..recovery.findings import Finding, short_span
from ..recovery.survey import survey
from ..recovery.sweep import clean, still_open
from ._edge import MAY_BILL, account_option, json_option, print_json
from ._recovery import (
    in_brief,
    journal,
    last_line,
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
    export's state, is never touched; the former is named, as its process may die. What else those accounts run is named
    too, and left alone: of that this command does not know whose it is.

    Exit codes: 0 nothing is left of what was looked for (also where a cluster found by its name was too young for
    --older-than), 1 the listing cannot be read (nothing is known then), 4 something may still bill, an interrupted
    order that is too young to be touched included.
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
        for stranger in found.unattributed:
            click.echo(f"not attributed: {stranger.title}", err=True)
        print_findings(found.findings, now)
    removals = clean(contexts, intents, found, patience=wait) if yes else []
    left = still_open(found, removals)
    if as_json:
        print_json(
            {
                "findings": [finding.document(now) for finding in found.findings],
                "notes": list(found.notes),
                "removals": [removal_document(removal) for removal in removals],
                "may_bill": in_brief(left),
                "left_alone": in_brief(found.left_alone),
                "unattributed": in_brief(found.unattributed),
            }
        )
    else:
        print_removals(removals)
        if not yes and any(finding.removable for finding in left):
            click.echo("Nothing was changed. Run it again with --yes to remove what is listed.")
    if left:
        click.echo(last_line(left), err=as_json)
        raise click.exceptions.Exit(MAY_BILL)
    looked_for = ["this disk's interrupted orders"]
    if export is not None:
        looked_for.append("the export's creates that were cut off")
    if name_prefix is not None:
        owned = "" if export is None else "outside the export's state "
        looked_for.append(f"clusters {owned}whose name begins with {name_prefix!r}")
    click.echo(_all_clear(looked_for, found.left_alone, older_than, found.unattributed), err=as_json)


def _all_clear(
    looked_for: Sequence[str],
    young: Sequence[Finding],
    older_than: timedelta | None,
    unattributed: Sequence[Finding],
) -> str:
    """The last line where nothing is left of what was looked for, and no more than that is known."""
    if not young and not unattributed:
        return "Nothing is left that bills and is owned by nobody."
    *others, last = looked_for
    what = f"{', '.join(others)} and {last}" if others else last
    if young and older_than is not None:
        names = ", ".join(finding.title for finding in young)
        line = f"Of {what} nothing older than {short_span(older_than)} is left; left alone: {names}."
    else:
        line = f"Of {what} nothing is left."
    if not unattributed:
        return line
    clusters = sum(finding.cluster_id is not None for finding in unattributed)
    pods = len(unattributed) - clusters
    counts = [(clusters, "cluster"), (pods, "single pod")]
    kinds = " and ".join(f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counts if count)
    where = "this account" if len({finding.account for finding in unattributed}) == 1 else "these accounts"
    rest = f"{kinds} {'runs' if len(unattributed) == 1 else 'run'} in {where}"
    hint = "" if len(looked_for) > 1 else ": --name-prefix or --stack-export tells whose it is"
    total = usd(total_price([finding.price_per_hour for finding in unattributed]))
    return f"{line} {rest} ({total}), which this call cannot attribute{hint}."
