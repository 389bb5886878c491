"""`pulumi-lium emulator`: the service on this machine (design 4.2)."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..emulator.asgi import Emulator
from ..emulator.clock import EmulatorClock
from ..emulator.control import ControlPlane
from ..emulator.scenario import ScenarioError, load_scenario
from ..emulator.server import AddressInUse, base_url, listen, serve
from ..emulator.service import Service
from ..emulator.store import Store, StoreError
from ._edge import json_option


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8321, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What the market holds (YAML or JSON); default: a built-in one.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that keeps the market across restarts; where it holds one, it wins over --scenario.",
)
@click.option(
    "--clock",
    type=click.Choice(["real", "virtual"]),
    default="real",
    show_default=True,
    help="A virtual clock moves only by POST /_emulator/clock.",
)
@json_option
def emulator(host: str, port: int, scenario: Path | None, state: Path | None, clock: str, as_json: bool) -> None:
    """Run the Lium API on this machine.

    The first line on standard output is the API's address, once it answers; with --json an object with `base_url`. The
    built-in scenario's first key is sk_emulator_owner. The control plane (faults, clock, journal, state) is under
    /_emulator; /docs describes all.
    """
    try:
        parsed = load_scenario(scenario.read_text(encoding="utf-8") if scenario else None)
    except (ScenarioError, OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{scenario}: {error}") from error
    emulator_clock = EmulatorClock(virtual=clock == "virtual")
    try:
        sock = listen(host, port)
        service = Service(parsed, emulator_clock, Store(state) if state else None)
    except (AddressInUse, StoreError) as error:
        raise click.ClickException(str(error)) from error
    if service.resumed:
        ignored = f"; {scenario} is not used" if scenario else ""
        click.echo(f"state: going on with the market in {state}{ignored}", err=True)
    url = base_url(host, sock)
    try:
        serve(
            Emulator(service, ControlPlane(service, emulator_clock)),
            sock,
            ready=lambda: click.echo(json.dumps({"base_url": url}) if as_json else f"Lium API emulator: {url}"),
        )
    finally:
        service.close()
