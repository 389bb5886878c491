"""Which machines of which fabric: the cheapest that satisfy the selectors (contract 3.2, 7.1)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_lium.api import Node, Offer
from pulumi_lium.api.nodes import short_gpu_type

from .errors import NothingMatches
from .facts import Facts, in_country, same_gpu, unmet
from .inputs import Selectors
from .values import usd


@dataclass(frozen=True)
class Pick:
    """Machines of one fabric, in rank order. `price_per_hour` is USD for all of them, None when one has no price."""

    offer: Offer
    nodes: tuple[Node, ...]

    @property
    def machine_ids(self) -> tuple[str, ...]:
        return tuple(node.id for node in self.nodes)

    @property
    def price_per_hour(self) -> float | None:
        return _total(self.nodes)

    def plan(self) -> dict[str, Any]:
        """The input `planned`: it informs and is never compared."""
        return {
            "fabric_id": self.offer.fabric_id,
            "fabric_type": self.offer.fabric_type,
            "gpu_type": self.offer.gpu_type,
            "gpus_per_node": self.offer.gpus_per_node,
            "machines": list(self.machine_ids),
            "price_per_hour": self.price_per_hour,
        }

    def describe(self) -> str:
        """`4 × 8 H100 on fabric … (infiniband, 400 Gb/sec), $64.00 an hour`."""
        offer = self.offer
        wire = ", ".join(filter(None, (offer.fabric_type, offer.link_rate)))
        cards = f"{len(self.nodes)} × {offer.gpus_per_node} {offer.gpu_type}"
        return f"{cards} on fabric {offer.fabric_id!r} ({wire}), {usd(self.price_per_hour)}"


@dataclass(frozen=True)
class _Verdict:
    offer: Offer
    pick: Pick | None
    reasons: tuple[str, ...]


def select(offers: Sequence[Offer], wanted: Selectors, *, taken: Collection[str] = ()) -> Pick:
    """The cheapest machines that satisfy `wanted`, `taken` ones left out. Raises `NothingMatches` with all reasons."""
    verdicts = _judge_all(offers, wanted, taken)
    fitting = _picks(verdicts)
    if not fitting:
        raise NothingMatches(_explain(verdicts, wanted))
    return fitting[0]


def every_pick(offers: Sequence[Offer], wanted: Selectors) -> list[Pick]:
    """What could be ordered of each offer, cheapest first."""
    return _picks(_judge_all(offers, wanted, ()))


def _judge_all(offers: Sequence[Offer], wanted: Selectors, taken: Collection[str]) -> list[_Verdict]:
    return [_judge(offer, wanted, frozenset(taken)) for offer in offers if offer.nodes]


def _picks(verdicts: Sequence[_Verdict]) -> list[Pick]:
    picks = [verdict.pick for verdict in verdicts if verdict.pick]
    return sorted(picks, key=lambda pick: (_or_infinite(pick.price_per_hour), pick.offer.fabric_id))


def _judge(offer: Offer, wanted: Selectors, taken: frozenset[str]) -> _Verdict:
    facts = Facts(
        gpu_model=offer.gpu_model or "an unnamed GPU",
        gpus_per_node=offer.gpus_per_node,
        fabric_type=offer.fabric_type,
        fabric_id=offer.fabric_id,
    )
    # How many, which and where is judged machine by machine below; a machine of unknown place is in no country.
    by_offer = replace(wanted, country=None, machines=None, max_price_per_hour=None)
    reasons = [reason for _, reason in unmet(by_offer, facts)]
    here = [node for node in offer.nodes if node.id and _is_in(node, wanted.country)]
    free = [node for node in here if node.id not in taken]
    if wanted.country and not here:
        reasons.append(f"in {_places(offer)}, {wanted.country} wanted")
    elif wanted.machines is None:
        chosen = sorted(free, key=lambda node: (_or_infinite(node.price_per_hour), node.id))[: wanted.nodes]
        if len(chosen) < wanted.nodes:
            reasons.append(_short(offer, len(free), len(here), wanted.nodes))
    else:
        by_id = {node.id: node for node in free}
        chosen = [by_id[machine] for machine in wanted.machines if machine in by_id]
        if missing := [machine for machine in wanted.machines if machine not in by_id]:
            reasons.append(f"machines not free in it: {', '.join(missing)}")
    if reasons:
        return _Verdict(offer, None, tuple(reasons))
    pick, limit = Pick(offer, tuple(chosen)), wanted.max_price_per_hour
    if limit is not None and pick.price_per_hour is None:
        return _Verdict(offer, None, ("a machine's price is not known, so max_price_per_hour cannot be kept",))
    if limit is not None and _or_infinite(pick.price_per_hour) > limit + 1e-9:
        return _Verdict(offer, None, (f"{usd(pick.price_per_hour)}, above max_price_per_hour {usd(limit)}",))
    return _Verdict(offer, pick, ())


def _is_in(node: Node, country: str | None) -> bool:
    return country is None or in_country(country, node.country, node.country_code)


def _places(offer: Offer) -> str:
    return ", ".join(sorted({node.country or node.country_code or "an unknown place" for node in offer.nodes}))


def _short(offer: Offer, free: int, here: int, asked: int) -> str:
    text = f"free {free} of {offer.node_count or offer.free_count}, asked {asked}"
    if free < here:
        text += f" ({here - free} more are meant for other clusters of this program)"
    return text


def _explain(verdicts: Sequence[_Verdict], wanted: Selectors) -> str:
    asked = f"{wanted.nodes} nodes"
    if wanted.gpu_type or wanted.gpus_per_node:
        cards = " ".join(str(part) for part in (wanted.gpus_per_node, wanted.gpu_type) if part)
        asked += f" with {cards}"
    if not verdicts:
        return (
            f"No fabric is on sale now, {asked} wanted. Nothing was ordered. Try again later: a fabric is offered"
            " while at least two of its machines are free"
        )
    ranked = sorted(verdicts, key=lambda verdict: (len(verdict.reasons), verdict.offer.fabric_id))
    lines = [f"No fabric on sale fits {asked}. Nothing was ordered. Closest: {_named(ranked[:1])}"]
    alike: dict[str, list[_Verdict]] = {}
    for verdict in ranked[1:]:
        alike.setdefault(_why(verdict), []).append(verdict)
    lines += [f"Also ruled out: {_named(group)}" for group in alike.values()]
    models = {verdict.offer.gpu_model for verdict in verdicts if verdict.offer.gpu_model}
    if wanted.gpu_type and not any(same_gpu(wanted.gpu_type, model) for model in models):
        lines.append(f"GPUs on sale: {', '.join(sorted(map(short_gpu_type, models)))}")
    return "\n  ".join(lines)


def _named(alike: Sequence[_Verdict]) -> str:
    """The fabrics that one reason rules out, each by its id."""
    return f"{', '.join(repr(verdict.offer.fabric_id) for verdict in alike)} {_why(alike[0])}"


def _why(verdict: _Verdict) -> str:
    offer = verdict.offer
    return f"({offer.fabric_type}, {offer.gpus_per_node} {offer.gpu_type} a node): {'; '.join(verdict.reasons)}"


def _total(nodes: Sequence[Node]) -> float | None:
    prices = [node.price_per_hour for node in nodes]
    known = [price for price in prices if price is not None]
    return round(sum(known), 6) if len(known) == len(prices) else None


def _or_infinite(price: float | None) -> float:
    return math.inf if price is None else price
