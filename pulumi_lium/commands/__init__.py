"""The commands of `pulumi-lium`, one module each, loaded when used: no command pays for another's imports."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

JSON_FLAG = "--json"
"""Every command has it."""


@dataclass(frozen=True)
class _Entry:
    """Where a command is (module of this package and the click command of the same name), and what it needs."""

    summary: str
    extra: str = "cli"


COMMANDS = {
    "offers": _Entry("Show the fabrics that are on sale."),
    "doctor": _Entry("Look at everything that an order needs."),
    "sweep": _Entry("List what interrupted orders have left; remove it with --yes."),
    "recover": _Entry("Settle creates that were cut off into a stack's state."),
    "teardown": _Entry("Remove all that a stack has, and prove that nothing of it bills."),
    "extend": _Entry("Move the time limit of a running cluster."),
    "emulator": _Entry("Run the Lium API on this machine, faults included.", extra="emulator"),
}


class LazyGroup(click.Group):
    """Loads a command's module on first use; a missing package is one line that says what to install."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            module = importlib.import_module(f"{__name__}.{cmd_name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "pulumi_lium":
                raise
            if ctx.resilient_parsing:  # a shell asks for completions: nobody would read the advice
                return None
            raise click.ClickException(
                f"`pulumi-lium {cmd_name}` needs the package {error.name}: pip install 'pulumi-lium[{entry.extra}]'"
            ) from error
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [
            CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Seen before the command's own parser, since what that refuses is an error for programs too.
        ctx.meta[JSON_FLAG] = JSON_FLAG in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from ._edge import exit_codes

        with exit_codes(as_json=ctx.meta[JSON_FLAG]):
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup)
@click.version_option(package_name="pulumi-lium")
def group() -> None:
    """Multi-node GPU clusters on Lium: what stands beside `pulumi up`."""
