"""A verification report becomes the proof that offers rest on (contract 7.1.5, host-contract 5.6)."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.emulator.market import Market
from pulumi_lium.emulator.measurements import MeasurementError
from tests.support.market import ANA, fabric_market, host

ROCE = {"name": "roce", "type": "roce", "segment": "10.20.30.0/24"}
IB = {"name": "ib", "type": "infiniband", "subnet_manager": "0x3"}


def rack() -> Market:
    """Three RoCE hosts, nothing measured; addresses 10.20.30.11 to .13."""
    return fabric_market([ROCE, IB], [*(host(f"r{i}", "roce") for i in range(1, 4)), host("a1", "ib")])


def record(a: str, b: str, rate: float | None, **more: Any) -> dict[str, Any]:
    return {"schema": 1, "a": a, "b": b, "rail": 0, "direction": "a_to_b", "gigabits_per_second": rate, **more}


def offered(here: Market) -> list[str]:
    return [node["id"] for offer in here.offers(ANA) for node in offer["nodes"]]


def test_exactly_the_proven_hosts_are_offered() -> None:
    here = rack()
    assert offered(here) == []
    answer = here.load_measurements(
        {"pairs": [record("r1", "r2", 97.7, status="OK"), record("r1", "r3", 12.0, status="FAIL"), ["r2", "r3", None]]}
    )
    assert answer == {"success": True, "fabrics": [{"fabric": "rack/roce", "pairs": 3, "proven": 1}]}
    assert offered(here) == ["r1", "r2"]
    fabric = next(item for item in here.state()["fabrics"] if item["id"] == "rack/roce")
    assert ["r1", "r2", 97.7] in fabric["measured"]["pairs"]


@pytest.mark.parametrize("failed", [None, 0])
def test_a_failed_measurement_outweighs_a_good_one_of_the_pair(failed: float | None) -> None:
    here = rack()
    here.load_measurements({"pairs": [["r1", "r2", 90.0], ["r2", "r1", failed]]})
    assert offered(here) == []


def test_of_two_modes_the_newer_one_counts() -> None:
    here = rack()
    full = [record("r1", "r2", None, mode="full", rail=1, measured_at="2026-11-03T10:00:00+00:00", status="FAIL")]
    new = [record("r1", "r2", 90.0, mode="platform", measured_at="2026-11-03T12:00:00+01:00", status="OK")]
    here.load_measurements({"records": new + full})
    assert offered(here) == ["r1", "r2"]
    full[0]["measured_at"] = "2026-11-03T11:00:01+00:00"
    here.load_measurements({"records": new + full})
    assert offered(here) == []
    with pytest.raises(MeasurementError, match=r"records\[0\].measured_at"):
        here.load_measurements({"records": [{**new[0], "measured_at": "yesterday"}]})


def test_a_later_report_replaces_an_earlier_one() -> None:
    here = rack()
    here.load_measurements({"pairs": [["r1", "r2", 90.0], ["r1", "r3", 90.0], ["r2", "r3", 90.0]]})
    assert offered(here) == ["r1", "r2", "r3"]
    here.load_measurements({"records": [["r2", "r3", 90.0]]})
    assert offered(here) == ["r2", "r3"]
    here.load_measurements({"segments": ["10.20.30.0/24"]})
    assert offered(here) == []


@pytest.mark.parametrize(
    ("a", "b"),
    [("r1", "r2"), ("10.20.30.11", "10.20.30.12"), ("r1", "10.20.30.12")],
)
def test_hosts_go_by_id_or_address(a: str, b: str) -> None:
    here = rack()
    here.load_measurements({"pairs": [[a, b, 90.0]]})
    assert offered(here) == ["r1", "r2"]


def test_the_record_of_a_host_with_another_name_is_found_by_its_address() -> None:
    here = rack()
    here.load_measurements(
        {"pairs": [record("gpu01", "gpu02", 90.0, a_address="10.20.30.11", b_address="10.20.30.13", status="WARN")]}
    )
    assert offered(here) == ["r1", "r3"]


@pytest.mark.parametrize(
    "records",
    [
        [record("r1", "r2", 90.0), record("r1", "r2", 0.0, rail=1)],
        [record("r1", "r2", 90.0), record("r1", "r2", None, direction="b_to_a")],
        [record("r1", "r2", 90.0), record("r1", "r2", None)],
        [record("r1", "r2", 90.0, status="NOT_MEASURED")],
        [record("r1", "r2", float("nan"))],
        [record("r1", "r2", -3.0)],
    ],
)
def test_one_bad_rail_direction_or_word_leaves_a_pair_unproven(records: list[Any]) -> None:
    here = rack()
    here.load_measurements({"pairs": records})
    assert offered(here) == []


def test_a_rerun_of_the_same_test_counts() -> None:
    here = rack()
    here.load_measurements({"pairs": [record("r1", "r2", None), record("r2", "r1", 90.0, direction="b_to_a")]})
    assert offered(here) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ({}, "pairs: is missing"),
        ({"pairs": {}}, "pairs: must be a list"),
        ({"pairs": [7]}, "pairs[0]: must be a record"),
        ({"pairs": [["r1", "r2", 1.0], ["r1", "zz", 1.0]]}, "pairs[1].b: no host on a RoCE fabric is called 'zz'"),
        ({"pairs": [["r1", "a1", 1.0]]}, "pairs[0].b: no host on a RoCE fabric"),
        ({"pairs": [["r1", "r1", 1.0]]}, "pairs[0]: 'r1' and 'r1' are no two hosts"),
        ({"pairs": [["r1", "r2", "fast"]]}, "pairs[0].gigabits_per_second: must be a number or null"),
        ({"pairs": [["r1", "r2", True]]}, "pairs[0].gigabits_per_second"),
        ({"segments": ["10.0.0.0/8"]}, "segments: no RoCE fabric has the segment"),
    ],
)
def test_a_bad_report_is_refused_whole(report: dict[str, Any], text: str) -> None:
    here = rack()
    here.load_measurements({"pairs": [["r1", "r3", 90.0]]})
    with pytest.raises(MeasurementError) as caught:
        here.load_measurements(report)
    assert text in str(caught.value)
    assert offered(here) == ["r1", "r3"]
