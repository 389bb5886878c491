"""Offers follow from live occupancy and from what was proven (contract 7.1)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulumi_lium.emulator.events import EventError
from pulumi_lium.emulator.market import Market, load_scenario
from pulumi_lium.emulator.refusal import Refusal
from tests.support.market import ANA, BOB, START, fabric_market, host, market, order, rent, running

IB = {"name": "ib", "type": "infiniband", "subnet_manager": "0x3"}


def offered(here: Market) -> list[list[str]]:
    return [[node["id"] for node in offer["nodes"]] for offer in here.offers(ANA)]


def roce(measured: Any) -> dict[str, Any]:
    return {"name": "roce", "type": "roce", "segment": "10.20.30.0/24", "measured": measured}


def test_an_offer_has_every_field_of_the_contract() -> None:
    offer = market().offers(ANA)[0]
    assert offer["fabric_type"] == "infiniband"
    assert offer["node_count"] == 4
    assert not offer["fabric_id"].isdigit()
    node = offer["nodes"][0]
    assert (node["id"], node["machine_name"], node["gpu_count"], node["available_gpu_count"]) == (
        "a1",
        "NVIDIA H100 80GB HBM3",
        8,
        8,
    )
    assert node["min_gpu_count_for_rental"] is None
    assert isinstance(node["price_per_gpu"], float)
    assert node["specs"]["gpu"]["details"][0] == {"name": "NVIDIA H100 80GB HBM3", "capacity": 81559}


def test_taken_machines_leave_and_one_free_machine_is_no_offer() -> None:
    here = market()
    order(here, ["a1", "a2"], BOB)
    first = here.offers(ANA)[0]
    assert [node["id"] for node in first["nodes"]] == ["a3", "a4"]
    assert first["node_count"] == 4
    rent(here, "a3")
    assert offered(here) == [["r1", "r2", "r3", "r4"]]
    assert "a4" in {row["id"] for row in here.executors({})}


def test_machines_come_back_when_their_pods_are_gone() -> None:
    here = market()
    rows = running(here, ["a1", "a2", "a3"])
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    assert offered(here)[0] == ["r1", "r2", "r3", "r4"], "held until the nodes have confirmed"
    here.advance_to(here.now + 5)
    assert offered(here)[0] == ["a1", "a2", "a3", "a4"]


def test_a_partly_rented_machine_leaves() -> None:
    here = fabric_market([IB], [host(name, "ib", min_gpu_count_for_rental=1) for name in ("a1", "a2", "a3")])
    rent(here, "a2", gpu_count=1)
    assert offered(here) == [["a1", "a3"]]
    assert {row["id"]: row["available_gpu_count"] for row in here.executors({})} == {"a1": 8, "a2": 7, "a3": 8}


def test_two_models_or_counts_on_one_fabric_are_apart() -> None:
    here = fabric_market(
        [IB],
        [
            *(host(f"h{i}", "ib") for i in range(2)),
            *(host(f"k{i}", "ib", gpu_model="NVIDIA H200") for i in range(2)),
            *(host(f"m{i}", "ib", gpu_count=4) for i in range(2)),
        ],
    )
    assert offered(here) == [["h0", "h1"], ["k0", "k1"], ["m0", "m1"]]
    assert len({offer["fabric_id"] for offer in here.offers(ANA)}) == 3


def test_closed_udp_hides_infiniband_and_leaves_roce() -> None:
    hosts = [*(host(f"a{i}", "ib") for i in range(2)), *(host(f"r{i}", "roce") for i in range(2))]
    here = fabric_market([IB | {"udp_51820": "closed"}, roce("all") | {"udp_51820": "closed"}], hosts)
    assert offered(here) == [["r0", "r1"]]


@pytest.mark.parametrize(
    ("pairs", "nodes"),
    [
        ([], []),
        ([["r0", "r1", 190.0]], [["r0", "r1"]]),
        ([["r1", "r0", 190.0]], [["r0", "r1"]]),
        ([["r0", "r1", None]], []),
        ([["r0", "r1", 0.0]], []),
        ([["r0", "r1", 190.0], ["r1", "r0", None]], []),
        ([["r0", "r1", 190.0], ["r1", "r2", 190.0]], [["r0", "r1"], ["r1", "r2"]]),
        ([["r0", "r1", 190.0], ["r0", "r2", 190.0], ["r1", "r2", 190.0]], [["r0", "r1", "r2"]]),
    ],
)
def test_roce_offers_only_a_set_that_is_proven_pair_by_pair(pairs: list[Any], nodes: list[list[str]]) -> None:
    """Where two sets are equally large, either may be offered."""
    here = fabric_market([roce({"pairs": pairs})], [host(f"r{i}", "roce") for i in range(3)])
    now = offered(here)
    assert now == [] if not nodes else now[0] in nodes
    assert all(offer["fabric_measured"] for offer in here.offers(ANA))


def test_a_machine_left_out_returns_when_the_other_of_its_pair_is_taken() -> None:
    names = [f"r{i}" for i in range(4)]
    pairs = [[a, b, 190.0] for i, a in enumerate(names) for b in names[i + 1 :] if (a, b) != ("r2", "r3")]
    here = fabric_market([roce({"pairs": pairs})], [host(name, "roce") for name in names])
    [first] = offered(here)
    assert len(first) == 3
    assert not {"r2", "r3"} <= set(first)
    order(here, ["r2", "r0"], BOB)
    assert offered(here) == [["r1", "r3"]]


def test_the_largest_proven_set_is_found_where_dropping_greedily_would_not() -> None:
    """A star of conflicts beside a cycle of them: the best set keeps every second machine of the cycle and the tips."""
    cycle = [f"c{i}" for i in range(9)]
    star = ["hub", *(f"t{i}" for i in range(4))]
    bad = {frozenset((cycle[i], cycle[(i + 1) % 9])) for i in range(9)} | {frozenset(("hub", tip)) for tip in star[1:]}
    names = [*cycle, *star]
    pairs = [[a, b, None if frozenset((a, b)) in bad else 100.0] for i, a in enumerate(names) for b in names[i + 1 :]]
    here = fabric_market([roce({"pairs": pairs})], [host(name, "roce") for name in names])
    [nodes] = offered(here)
    assert len(nodes) == 4 + 4
    assert not any({a, b} <= set(nodes) for a, b in map(tuple, bad))


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1])))
def test_no_larger_proven_set_exists(bad: set[tuple[int, int]]) -> None:
    names = [f"r{i}" for i in range(8)]
    pairs = [[names[a], names[b], None if (a, b) in bad else 9.0] for a, b in combinations(range(8), 2)]
    here = fabric_market([roce({"pairs": pairs})], [host(name, "roce") for name in names])
    best = max(
        (size for size in range(2, 9) for some in combinations(range(8), size) if not bad & set(combinations(some, 2))),
        default=0,
    )
    assert [len(nodes) for nodes in offered(here)] == ([best] if best else [])


def test_events_move_offers() -> None:
    here = market()
    here.apply_event({"event": "machine_taken", "host": "a1"})
    here.apply_event({"event": "machine_lost", "host": "a2"})
    assert offered(here)[0] == ["a3", "a4"]
    here.apply_event({"event": "rival_order", "fabric": "ib", "nodes": 2})
    assert offered(here) == [["r1", "r2", "r3", "r4"]]
    with pytest.raises(EventError, match="fewer than 2"):
        here.apply_event({"event": "rival_order", "fabric": "rack/ib"})
    for name in ("a1", "a3"):
        here.apply_event({"event": "machine_freed", "host": name})
    here.apply_event({"event": "machine_back", "host": "a2"})
    assert offered(here)[0] == ["a1", "a2", "a3"]


def test_a_scenarios_events_come_in_their_time() -> None:
    here = market(
        events=[
            {"at_s": 60, "event": "machine_taken", "host": "a1"},
            {"at_s": 30, "event": "rival_order", "fabric": "roce", "nodes": 4},
            {"at_s": 90, "event": "rival_order", "fabric": "roce", "nodes": 4},
        ]
    )
    here.advance_to(START + 29.9)
    assert len(here.offers(ANA)) == 2
    here.advance_to(START + 30)
    assert offered(here) == [["a1", "a2", "a3", "a4"]]
    here.advance_to(START + 100)
    assert offered(here) == [["a2", "a3", "a4"]]
    [failed] = here.state()["events"]["failed"]
    assert "fewer than 4" in failed["error"]


def test_the_built_in_market_has_what_the_design_promises() -> None:
    here = Market(load_scenario(None), START)
    owner = here.scenario.accounts[0].keys[0].key
    assert owner == "sk_emulator_owner"
    by_shape = {(o["fabric_type"], o["nodes"][0]["machine_name"]): o for o in here.offers(owner)}
    first = here.offers(owner)[0]
    assert (first["fabric_type"], first["node_count"], len(first["nodes"])) == ("infiniband", 4, 4)
    assert ("infiniband", "NVIDIA H200") in by_shape
    unmeasured = by_shape["roce", "NVIDIA H100 80GB HBM3"]
    assert (unmeasured["node_count"], len(unmeasured["nodes"])) == (4, 3)
    assert len(here.offers(owner)) == 4, "neither the rack with one free machine nor the one with closed UDP"
    assert {"3d904f85-6ea1-404c-9d73-81cfa05e4c01"} <= {row["id"] for row in here.executors({})}
    assert len(here.scenario.accounts) == 2
    assert any(key.workspace for account in here.scenario.accounts for key in account.keys)
    assert any(template["docker_image"] == "daturaai/lium-cluster" for template in here.templates(None))


def test_a_key_that_may_not_read_sees_no_offers() -> None:
    with pytest.raises(Refusal) as refused:
        market().offers("sk_biller")
    assert (refused.value.status, refused.value.code) == (403, "missing_scope")
