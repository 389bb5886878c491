"""`pulumi-lium doctor`: what would stop an order (design 4.2)."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import click

from ..api import CLUSTER_IMAGE, RENT_IDEMPOTENCY, LiumApi, LiumError, Offer, Pod, User
from ..lifecycle.inputs import Selectors
from ..lifecycle.members import total_price
from ..lifecycle.selection import every_pick
from ..lifecycle.values import usd
from ._edge import FAILED, account_option, connect, json_option, print_json

Status = Literal["OK", "WARN", "MUST_FIX", "UNKNOWN"]

_OLDEST_PULUMI = (3, 220)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what it is, how it stands, and what to do about it."""

    check: str
    status: Status
    observed: str
    remedy: str = ""


@click.command()
@account_option
@json_option
def doctor(account: str | None, as_json: bool) -> None:
    """Look at everything that an order needs, without ordering anything.

    Exit code 1 when something would stop an order, or could not be read.
    """
    findings = [*_programs(), *_service(account)]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print_table(findings)
    if any(finding.status in ("MUST_FIX", "UNKNOWN") for finding in findings):
        raise click.exceptions.Exit(FAILED)


def _programs() -> list[Finding]:
    return [
        Finding("python", "OK", f"{platform.python_version()} ({sys.executable})"),
        _package("pulumi-lium"),
        _package("pulumi"),
        _pulumi_cli(),
        _language_host(),
    ]


def _package(name: str) -> Finding:
    try:
        return Finding(f"package {name}", "OK", version(name))
    except PackageNotFoundError:
        return Finding(f"package {name}", "MUST_FIX", "not installed", f"pip install {name}")


def _pulumi_cli() -> Finding:
    check, remedy = "pulumi CLI", "Install the Pulumi CLI, 3.220 or newer, and have it on PATH"
    path = shutil.which("pulumi")
    if path is None:
        return Finding(check, "MUST_FIX", "not on PATH", remedy)
    try:
        done = subprocess.run([path, "version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(check, "UNKNOWN", f"{path}: {error}", remedy)
    text = done.stdout.strip()
    numbers = text.lstrip("v").split("-")[0].split(".")
    if done.returncode or not all(part.isdigit() for part in numbers):
        return Finding(check, "UNKNOWN", f"`pulumi version` says {text or done.stderr.strip()!r}", remedy)
    old = tuple(int(part) for part in numbers[:2]) < _OLDEST_PULUMI
    return Finding(check, "WARN" if old else "OK", f"{text} ({path})", remedy if old else "")


def _language_host() -> Finding:
    check = "pulumi language host for Python"
    path = shutil.which("pulumi-language-python")
    if path is None:
        return Finding(check, "MUST_FIX", "not on PATH", "It comes with the Pulumi CLI: install the whole of it")
    return Finding(check, "OK", path)


def _service(account: str | None) -> list[Finding]:
    try:
        api = connect(account)
    except LiumError as error:
        return [Finding("API key", "MUST_FIX", error.message, error.hint or error.advice)]
    # Asked once each, though two findings rest on them.
    me = functools.cache(api.users.me)
    offers, pods = functools.cache(api.offers.list), functools.cache(api.pods.list)
    key = _asked("API key", lambda: _account(api, me()))
    if key.status != "OK":
        return [key]
    return [
        key,
        _asked("idempotent orders", lambda: _idempotency(api)),
        _asked("cluster template", lambda: _template(api)),
        _asked("offers", lambda: _offers(offers())),
        _asked("running pods", lambda: _running(pods())),
        _asked("balance", lambda: _balance(me(), offers(), pods())),
    ]


def _asked(check: str, ask: Callable[[], Finding]) -> Finding:
    """A call that failed is a finding too: refused is to be fixed, unreadable is unknown."""
    try:
        return ask()
    except LiumError as error:
        refused = error.status is not None and 400 <= error.status < 500 and error.status != 429
        return Finding(check, "MUST_FIX" if refused else "UNKNOWN", error.message, error.hint or error.advice)


def _account(api: LiumApi, me: User) -> Finding:
    workspace = f", workspace {me.workspace.name!r}" if me.workspace else ""
    return Finding("API key", "OK", f"accepted at {api.settings.base_url}{workspace}")


def _balance(me: User, offers: list[Offer], pods: list[Pod]) -> Finding:
    """More than 15 minutes of an order and of every open pod has to be there (contract 7.2.7)."""
    check = "balance"
    open_pods = [pod for pod in pods if pod.is_billable or not pod.is_terminal]
    running = total_price([pod.price_per_hour for pod in open_pods]) if open_pods else 0.0
    picks = every_pick(offers, Selectors(nodes=2))
    cheapest = picks[0].price_per_hour if picks else 0.0
    floor = None if running is None or cheapest is None else (running + cheapest) / 4
    order = f"the cheapest cluster on sale ({usd(cheapest)})" if picks else "an order"
    needs = f"{order} needs more than 15 minutes of its price and of the open pods' ({usd(running)})"
    if me.balance is None:
        return Finding(check, "WARN", f"the service names none; {needs}")
    if me.balance <= (floor or 0.0):
        return Finding(check, "MUST_FIX", f"${me.balance:,.2f}; {needs}", "Add funds, or remove pods")
    if floor is None:
        return Finding(check, "UNKNOWN", f"${me.balance:,.2f}; {needs}", "Look at the prices, and add funds if need be")
    return Finding(check, "OK", f"${me.balance:,.2f}; {needs}")


def _idempotency(api: LiumApi) -> Finding:
    if RENT_IDEMPOTENCY in api.service.version().features:
        return Finding("idempotent orders", "OK", "a lost answer is asked for again with the same key")
    return Finding(
        "idempotent orders", "WARN", "the service does not offer them", "A lost answer is settled by the pod's name"
    )


def _template(api: LiumApi) -> Finding:
    found = [template for template in api.templates.list() if template.is_cluster_image]
    if not found:
        return Finding(
            "cluster template", "MUST_FIX", f"no template with {CLUSTER_IMAGE}", "Set template_id in the program"
        )
    newest = max(found, key=lambda template: template.tag_order)
    return Finding("cluster template", "OK", f"{newest.docker_image}:{newest.docker_image_tag} ({newest.name})")


def _offers(found: list[Offer]) -> Finding:
    if not found:
        return Finding("offers", "WARN", "nothing is on sale now", "Try again later: stock changes by the minute")
    free = sum(offer.free_count for offer in found)
    return Finding("offers", "OK", f"{len(found)} fabrics with {free} free machines (`pulumi-lium offers`)")


def _running(pods: list[Pod]) -> Finding:
    billing = [pod for pod in pods if pod.is_billable]
    total = total_price([pod.price_per_hour for pod in billing])
    return Finding("running pods", "OK", f"{len(billing)} pods bill {usd(total)}" if billing else "nothing bills")


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    styles = {"OK": "green", "WARN": "yellow", "MUST_FIX": "red", "UNKNOWN": "red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    for finding in findings:
        says = finding.observed + (f"\n{finding.remedy.rstrip('.')}." if finding.remedy else "")
        table.add_row(f"[{styles[finding.status]}]{finding.status}", escape(finding.check), escape(says))
    Console().print(table)
