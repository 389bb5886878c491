"""What the recovery commands share: the accounts of the environment, findings in print, the last line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from ..lifecycle.members import total_price
from ..lifecycle.values import parse_ttl, usd
from ..recovery.findings import Finding, short_span
from ..recovery.intents import FileIntents, journal_folder
from ..recovery.sweep import Removal


def span(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """A span of time: 90m, 8h, 2d."""
    try:
        return None if value is None else parse_ttl(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class Seconds(click.FloatRange):
    """A number of seconds. Not a number is refused: it would be compared with every time, and never reached."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds


wait_option = click.option(
    "--wait",
    default=330.0,
    show_default=True,
    type=Seconds(min=0),
    metavar="SECONDS",
    help="How long to wait for an order whose answer was lost: the service may still be at work on it for 300 s."
    " Ended sooner, it stays open and the exit code is 4.",
)
same_key_option = click.option(
    "--same-key",
    is_flag=True,
    help="Take it that the key in use ordered those creates of the state of which it does not tell whose key that was."
    " Without this, one that no listing shows is kept.",
)
yes_option = click.option("--yes", is_flag=True, help="Do it; without this it is only shown.")


def _lock_span(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    return timedelta(0) if value.strip() == "0" else span(ctx, param, value) or timedelta(0)


stack_option = click.option("--stack", required=True, help="The stack: NAME, ORGANIZATION/NAME or with its project.")
cwd_option = click.option(
    "--cwd",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the Pulumi project.",
)
lock_age_option = click.option(
    "--lock-age",
    default="10m",
    show_default=True,
    callback=_lock_span,
    metavar="SPAN",
    help="A lock of a run on another machine is taken off when it is older; 0 takes it off whatever its age. On this"
    " machine the run itself is looked for.",
)


def journal() -> FileIntents:
    """This user's intents."""
    return FileIntents(journal_folder(os.environ))


def told(line: str) -> None:
    """To the person, beside the output."""
    click.echo(line, err=True)


def speaker(as_json: bool) -> Callable[[str], None]:
    """Where the lines for a person go: to standard output, unless a program reads that."""
    return told if as_json else click.echo


def print_findings(findings: Iterable[Finding], now: datetime) -> None:
    """One finding in two lines: what and how much, then why."""
    for finding in findings:
        age = finding.age(now)
        facts = [
            f"cluster {finding.cluster_id}" if finding.cluster_id else "" if finding.kind == "held" else "not listed",
            f"{len(finding.placed.members)} nodes" if finding.placed else "",
            usd(finding.price_per_hour),
            f"{short_span(age)} old" if age is not None else "age unknown",
        ]
        click.echo(f"{finding.name}  {', '.join(filter(None, facts))}")
        click.echo(f"    {finding.why}{f' ({finding.owner})' if finding.owner else ''}")
        if finding.problem:
            click.echo(f"    left alone: {finding.problem}")


def print_removals(removals: Sequence[Removal]) -> None:
    for removal in removals:
        what = f"{removal.finding.name}{f' (cluster {removal.cluster_id})' if removal.cluster_id else ''}"
        if removal.error is not None:
            click.echo(f"NOT removed: {what}: {removal.error}")
        elif removal.cluster_id is None:
            click.echo(f"settled: {what}: no such cluster exists")
        else:
            click.echo(f"removed: {what}, seen to be gone")


def removal_document(removal: Removal) -> dict[str, Any]:
    """For programs."""
    return {
        "name": removal.finding.name,
        "cluster_id": removal.cluster_id,
        "removed": removal.error is None,
        "error": removal.error,
    }


def last_line(left: Sequence[Finding]) -> str:
    """Names what may still bill, with its price per hour."""
    total = total_price([finding.price_per_hour for finding in left])
    return f"May still bill {usd(total)}: {', '.join(finding.title for finding in left)}."


def in_brief(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For programs: what may bill."""
    return [
        {"name": finding.name, "cluster_id": finding.cluster_id, "price_per_hour": finding.price_per_hour}
        for finding in findings
    ]
