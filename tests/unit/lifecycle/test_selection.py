"""Which machines: the cheapest that satisfy, and why the others do not."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.api import Offer
from pulumi_lium.lifecycle.errors import NothingMatches
from pulumi_lium.lifecycle.facts import same_gpu
from pulumi_lium.lifecycle.inputs import Selectors
from pulumi_lium.lifecycle.selection import every_pick, select


def offer(name: str, prices: list[float | None], **more: Any) -> Offer:
    row = {
        "fabric_id": name,
        "fabric_type": "roce",
        "node_count": 8,
        "nodes": [
            {
                "id": f"{name}-{i}",
                "machine_name": more.get("gpu", "NVIDIA H100 80GB HBM3"),
                "gpu_count": more.get("gpus", 8),
                "price_per_gpu": price,
                "location": more.get("location", {"country": "Germany", "country_code": "DE"}),
            }
            for i, price in enumerate(prices)
        ],
    }
    row.update({name: value for name, value in more.items() if name in ("fabric_type", "node_count")})
    return Offer.model_validate(row)


def test_the_cheapest_machines_of_the_cheapest_fabric() -> None:
    pick = select([offer("b", [2.0, 3.0, 2.0]), offer("a", [2.5, 1.0, 2.5])], Selectors(nodes=2))
    assert pick.machine_ids == ("a-1", "a-0")
    assert pick.price_per_hour == 28.0


def test_a_tie_is_broken_the_same_way_each_time() -> None:
    offers = [offer("b", [2.0, 2.0]), offer("a", [2.0, 2.0])]
    assert select(offers, Selectors(nodes=2)).machine_ids == ("a-0", "a-1")
    assert select(offers[::-1], Selectors(nodes=2)).machine_ids == ("a-0", "a-1")
    listed_otherwise = offers[1].model_copy(update={"nodes": offers[1].nodes[::-1]})
    assert select([listed_otherwise], Selectors(nodes=2)).machine_ids == ("a-0", "a-1")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"nodes": 4}, "free 3 of 8, asked 4"),
        ({"gpu_type": "H200"}, "NVIDIA H100 80GB HBM3, H200 wanted"),
        ({"gpus_per_node": 4}, "8 GPUs per node, 4 wanted"),
        ({"fabric_type": "infiniband"}, "roce, infiniband wanted"),
        ({"fabric_id": "other"}, "fabric 'fab', 'other' wanted"),
        ({"country": "US"}, "in Germany, US wanted"),
        ({"max_price_per_hour": 31.0}, "$32.00 an hour, above max_price_per_hour $31.00 an hour"),
        ({"machines": ("fab-0", "gone-1")}, "machines not free in it: gone-1"),
    ],
)
def test_what_is_ruled_out_is_told(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(NothingMatches) as error:
        select([offer("fab", [2.0, 2.0, 2.0])], Selectors(**{"nodes": 2, **wanted}))
    assert reason in str(error.value)
    assert "Nothing was ordered" in str(error.value)


def test_the_closest_fabric_comes_first_and_every_one_is_named() -> None:
    offers = [
        offer("far", [2.0, 2.0], gpu="NVIDIA H200", location={"country": "Peru"}),
        offer("near", [2.0, 2.0], location={"country": "Germany"}),
    ]
    with pytest.raises(NothingMatches) as error:
        select(offers, Selectors(nodes=2, gpu_type="H100", country="Norway"))
    text = str(error.value)
    assert text.index("Closest: 'near'") < text.index("Also ruled out: 'far'")


def test_however_many_there_are_each_is_named_and_one_reason_is_told_once() -> None:
    offers = [offer(f"small-{number:02}", [2.0, 2.0]) for number in range(30)]
    offers += [offer(f"old-{number}", [2.0, 2.0, 2.0], gpu="NVIDIA A100") for number in range(3)]
    with pytest.raises(NothingMatches) as error:
        select(offers, Selectors(nodes=3, gpu_type="H100"))
    text = str(error.value)
    assert all(repr(one.fabric_id) in text for one in offers)
    assert text.count("free 2 of 8, asked 3") == 1
    assert "Closest: 'old-0' (roce, 8 A100 a node): NVIDIA A100, H100 wanted" in text
    assert "ruled out: 'old-1', 'old-2' (roce, 8 A100 a node): NVIDIA A100, H100 wanted" in text


def test_a_gpu_that_nobody_sells_is_answered_with_those_on_sale() -> None:
    offers = [offer("a", [2.0, 2.0], gpu="NVIDIA H200"), offer("b", [2.0, 2.0])]
    with pytest.raises(NothingMatches, match="GPUs on sale: H100, H200"):
        select(offers, Selectors(nodes=2, gpu_type="H10O"))
    with pytest.raises(NothingMatches) as error:
        select(offers, Selectors(nodes=3, gpu_type="H100"))
    assert "GPUs on sale" not in str(error.value)


def test_nothing_on_sale_says_so() -> None:
    with pytest.raises(NothingMatches, match="No fabric is on sale now"):
        select([], Selectors(nodes=2))


@pytest.mark.parametrize("country", ["DE", "de", "Germany", "germany"])
def test_a_country_by_name_or_code(country: str) -> None:
    assert select([offer("a", [1.0, 1.0])], Selectors(nodes=2, country=country)).offer.fabric_id == "a"


def test_a_machine_of_unknown_place_is_in_no_country() -> None:
    with pytest.raises(NothingMatches, match="in an unknown place, DE wanted"):
        select([offer("a", [1.0, 1.0], location={})], Selectors(nodes=2, country="DE"))


def test_a_price_that_is_not_known_breaks_a_cap_and_comes_last() -> None:
    offers = [offer("a", [None, 1.0]), offer("b", [9.0, 9.0])]
    assert select(offers, Selectors(nodes=2)).offer.fabric_id == "b"
    assert select(offers[:1], Selectors(nodes=2)).price_per_hour is None
    with pytest.raises(NothingMatches, match="price is not known"):
        select(offers[:1], Selectors(nodes=2, max_price_per_hour=100.0))


def test_a_gpu_without_a_name_is_none_that_was_asked_for() -> None:
    with pytest.raises(NothingMatches, match="an unnamed GPU"):
        select([offer("a", [1.0, 1.0], gpu="")], Selectors(nodes=2, gpu_type="H100"))


def test_machines_that_others_mean_to_take_are_left() -> None:
    offers = [offer("a", [1.0, 1.0, 2.0])]
    assert select(offers, Selectors(nodes=2), taken={"a-0"}).machine_ids == ("a-1", "a-2")
    with pytest.raises(NothingMatches, match="1 more are meant for other clusters"):
        select(offers, Selectors(nodes=3), taken={"a-0"})


def test_what_could_be_had_of_each_offer() -> None:
    offers = [offer("a", [2.0, 2.0]), offer("b", [1.0, 1.0]), offer("c", [1.0])]
    assert [pick.offer.fabric_id for pick in every_pick(offers, Selectors(nodes=2))] == ["b", "a"]


@pytest.mark.parametrize(
    ("wanted", "model", "same"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100", "NVIDIA H100 80GB HBM3", True),
        ("H200", "NVIDIA H100 80GB HBM3", False),
        ("H10", "NVIDIA H100 80GB HBM3", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX4090", "NVIDIA GeForce RTX 4090", True),
        ("NVIDIA H100 80GB HBM3", "H100", True),
        ("NVIDIA H200", "H100", False),
    ],
)
def test_short_and_full_names(wanted: str, model: str, same: bool) -> None:
    assert same_gpu(wanted, model) is same
