"""The rack from the command line: `python -m tests.rack.cli --help`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import get_args

import click

from tests.rack import packages, template
from tests.rack.errors import RackError
from tests.rack.image import Kind
from tests.rack.rack import INVENTORY, Rack, tree_rack_name
from tests.rack.switch import Action, Protocol, Rule


@click.group()
@click.option("--name", default=tree_rack_name, show_default="one rack a checkout", help="Name of the rack.")
@click.pass_context
def main(context: click.Context, name: str) -> None:
    """Virtual hosts behind a switch, for trying the collection on."""
    context.obj = name


@main.command()
def build() -> None:
    """Make everything that racks start from, so that each is up in seconds."""
    packages.ensure()
    for kind in get_args(Kind):
        template.frozen(kind)


@main.command()
@click.option("--hosts", default=2, show_default=True, help="How many hosts.")
@click.option("--kind", type=click.Choice(["bare", "full"]), default="bare", show_default=True, help="Packages.")
@click.option("--roce/--no-roce", default=True, show_default=True, help="A Soft-RoCE device on eth1.")
@click.option("--inventory", type=click.Path(path_type=Path), default=INVENTORY, help="Where to write the inventory.")
@click.pass_obj
def up(name: str, hosts: int, kind: Kind, roce: bool, inventory: Path) -> None:
    """Start a rack of clean hosts (anew, if it is up) and write its inventory."""
    rack = Rack.up(hosts, name=name, kind=kind, roce=roce)
    path = rack.write_inventory(inventory)
    for host in rack.hosts:
        click.echo(f"{host.name}  {host.address}  fabric {host.fabric_address}")
    click.echo(f"inventory: {os.path.relpath(path)}")


@main.command()
@click.option("--inventory", type=click.Path(path_type=Path), default=INVENTORY, help="The inventory to remove.")
@click.pass_obj
def down(name: str, inventory: Path) -> None:
    """End the rack; nothing of it stays but what is cached."""
    Rack(name).down()
    inventory.unlink(missing_ok=True)


@main.command()
@click.argument("numbers", type=int, nargs=-1)
@click.option("--kind", type=click.Choice(["bare", "full"]), help="Packages; as before unless given.")
@click.option("--roce/--no-roce", default=None, help="A Soft-RoCE device on eth1; as before unless given.")
@click.pass_obj
def reset(name: str, numbers: tuple[int, ...], kind: Kind | None, roce: bool | None) -> None:
    """Make hosts clean again (all, unless NUMBERS are given)."""
    Rack.attach(name).reset(*numbers, kind=kind, roce=roce)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("number", type=int)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def ssh(name: str, number: int, command: tuple[str, ...]) -> None:
    """A shell, or COMMAND, on host NUMBER."""
    arguments = Rack.attach(name).host(number).ssh_command()
    os.execvp(arguments[0], [*arguments, *command])


@main.command()
@click.argument("action", type=click.Choice(["drop", "thin", "delay"]))
@click.argument("amount", type=float, default=1.0)
@click.option("--protocol", type=click.Choice(["udp", "tcp"]), help="All frames unless given.")
@click.option("--port", type=click.IntRange(1, 65535), help="Destination port; all unless given.")
@click.option("--from", "source", type=int, help="Number of the sending host; any unless given.")
@click.option("--to", "target", type=int, help="Number of the receiving host; any unless given.")
@click.pass_obj
def rule(
    name: str,
    action: Action,
    amount: float,
    protocol: Protocol | None,
    port: int | None,
    source: int | None,
    target: int | None,
) -> None:
    """Add a rule to the switch. AMOUNT is the share of packets for thin, seconds for delay."""
    Rack.attach(name).switch.add(Rule(action, protocol, port, source, target, amount))


@main.command()
@click.pass_obj
def clear(name: str) -> None:
    """Take all rules of the switch back."""
    Rack.attach(name).switch.clear()


if __name__ == "__main__":
    try:
        main()
    except RackError as error:
        sys.exit(f"rack: {error}")
