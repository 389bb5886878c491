"""`pulumi-lium offers`: the fabrics on sale (design 4.2)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from ..lifecycle.errors import NothingMatches
from ..lifecycle.inputs import parse_selectors
from ..lifecycle.selection import select
from ..offers import Offer, default_nodes, get_offers
from ._edge import account_option, connect, json_option, print_json


def _ids(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [part.strip() for part in value.split(",")]


@click.command()
@click.option(
    "--nodes",
    type=int,
    help="Machines that the cluster shall have; by default as many as --machines names, else 2.",
)
@click.option("--gpu-type", help="Short or full name: H100, 'NVIDIA H100 80GB HBM3'.")
@click.option("--gpus-per-node", type=int, help="GPUs of each machine.")
@click.option("--fabric-type", help="infiniband or roce.")
@click.option("--country", help="Name or two-letter code.")
@click.option("--max-price-per-hour", type=float, help="USD for the whole cluster.")
@click.option("--fabric-id", help="Exactly this fabric.")
@click.option(
    "--machines",
    metavar="ID,ID,…",
    callback=_ids,
    help="Exactly these machines, by executor id, in rank order.",
)
@account_option
@json_option
def offers(as_json: bool, account: str | None, **selectors: Any) -> None:
    """The fabrics from which a cluster can be ordered now, cheapest first.

    The selectors are those of LiumCluster; the price for all nodes is that of the cluster that they would order.
    """
    api = connect(account)
    selectors["nodes"] = default_nodes(selectors["machines"]) if selectors["nodes"] is None else selectors["nodes"]
    found = get_offers(api=api, **selectors)
    if as_json:
        print_json([asdict(offer) for offer in found])
    elif found:
        _print_table(found, selectors["nodes"])
    else:
        click.echo(_why_none(api.offers.list(), selectors))


def _why_none(on_sale: list[Any], selectors: dict[str, Any]) -> str:
    wanted, _ = parse_selectors(selectors)
    try:
        return f"Just now something fits again: {select(on_sale, wanted).describe()}." if wanted else ""
    except NothingMatches as error:
        return error.message


def _print_table(found: list[Offer], nodes: int) -> None:
    """Columns in one line an offer, and its fabric id, which is long, in a line of its own below."""
    heading = ("machine", "free", "wire", "a node", f"{nodes} nodes", "location")
    rows = [
        (
            f"{offer.gpus_per_node} × {offer.gpu_type}",
            f"{offer.free_count} of {offer.node_count}",
            _wire(offer),
            _node_prices(offer),
            _price(offer.price_per_hour),
            _location(offer),
        )
        for offer in found
    ]
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    click.secho(line(heading), bold=True)
    for offer, row in zip(found, rows, strict=True):
        click.echo(line(row))
        click.secho(f"  {offer.fabric_id}", dim=True)


def _wire(offer: Offer) -> str:
    return ", ".join(filter(None, (offer.fabric_type, offer.link_rate)))


def _location(offer: Offer) -> str:
    return ", ".join(
        dict.fromkeys(place for machine in offer.machines for place in (machine.city, machine.country) if place)
    )


def _price(amount: float | None) -> str:
    return "?" if amount is None else f"${amount:,.2f}/h"


def _node_prices(offer: Offer) -> str:
    prices = sorted({machine.price_per_hour for machine in offer.machines if machine.price_per_hour is not None})
    if len(prices) < 2:
        return _price(prices[0] if prices else None)
    return f"${prices[0]:,.2f}-{_price(prices[-1]).lstrip('$')}"
