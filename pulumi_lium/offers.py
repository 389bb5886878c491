"""`get_offers`: what is on sale, as plain data. Runs in a program (in previews too) and outside of one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulumi_lium.api import LiumApi, Settings


@dataclass(frozen=True)
class Machine:
    """A free machine. `price_per_hour` is USD for the whole machine, None when the service gives none."""

    id: str
    gpu_model: str
    gpu_count: int
    price_per_hour: float | None
    country: str | None
    country_code: str | None
    city: str | None
    public_ip: str


@dataclass(frozen=True)
class Offer:
    """A fabric from which a cluster can be ordered now."""

    fabric_id: str
    fabric_type: str
    """`infiniband` or `roce`."""
    link_rate: str | None
    gpu_type: str
    """Short name: `H100`."""
    gpu_model: str
    gpus_per_node: int
    node_count: int
    """Machines of the whole fabric, rented ones included."""
    machines: list[Machine]
    """The machines that were chosen (`nodes` of them), or all free ones; cheapest first."""
    free_count: int
    price_per_hour: float | None
    """USD for all of `machines`; None when one has no known price."""


def get_offers(
    *,
    nodes: int | None = None,
    gpu_type: str | None = None,
    gpus_per_node: int | None = None,
    fabric_type: str | None = None,
    country: str | None = None,
    max_price_per_hour: float | None = None,
    fabric_id: str | None = None,
    machines: Sequence[str] | None = None,
    account: str | None = None,
    settings: Settings | None = None,
    api: LiumApi | None = None,
) -> list[Offer]:
    """Offers from which `nodes` machines that satisfy the selectors can be ordered now, cheapest first.

    Selectors are those of `LiumCluster`; `nodes` is by default as many as `machines` names, else 2. The key comes from
    `settings`, else from the stack's configuration (`lium:apiKey`), else from `LIUM_API_KEY`. Raises `LiumError`: an
    empty list means that nothing fits, never that nothing could be read.
    """
    from pulumi_lium.api import LiumApi
    from pulumi_lium.lifecycle.errors import InvalidInputs
    from pulumi_lium.lifecycle.inputs import parse_selectors
    from pulumi_lium.lifecycle.selection import every_pick

    wanted, failures = parse_selectors(
        {
            "nodes": default_nodes(machines) if nodes is None else nodes,
            "gpu_type": gpu_type,
            "gpus_per_node": gpus_per_node,
            "fabric_type": fabric_type,
            "country": country,
            "max_price_per_hour": max_price_per_hour,
            "fabric_id": fabric_id,
            "machines": machines,
        }
    )
    if wanted is None:
        raise InvalidInputs(failures)
    service = api or LiumApi(settings or _settings(account))
    return [
        Offer(
            fabric_id=pick.offer.fabric_id,
            fabric_type=pick.offer.fabric_type,
            link_rate=pick.offer.link_rate,
            gpu_type=pick.offer.gpu_type,
            gpu_model=pick.offer.gpu_model,
            gpus_per_node=pick.offer.gpus_per_node,
            node_count=pick.offer.node_count or pick.offer.free_count,
            machines=[
                Machine(
                    id=node.id,
                    gpu_model=node.gpu_model,
                    gpu_count=node.gpu_count,
                    price_per_hour=node.price_per_hour,
                    country=node.country,
                    country_code=node.country_code,
                    city=node.city,
                    public_ip=node.public_ip,
                )
                for node in pick.nodes
            ],
            free_count=pick.offer.free_count,
            price_per_hour=pick.price_per_hour,
        )
        for pick in every_pick(service.offers.list(), wanted)
    ]


def default_nodes(machines: Sequence[str] | None) -> int:
    """How many nodes are meant where only `machines` says so."""
    return len(machines) if machines and isinstance(machines, (list, tuple)) else 2


def _settings(account: str | None) -> Settings:
    from pulumi_lium.lifecycle.accounts import settings_for

    return settings_for(_program_config, os.environ, account)


def _program_config(key: str) -> str | None:
    """A value of the stack's configuration; None outside of a program."""
    import pulumi

    namespace, name = key.split(":", 1)
    return pulumi.Config(namespace).get(name)
