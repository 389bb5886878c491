"""The pass mark: computed from link, path MTU and slot, and equal to the contract's table where that has a row."""

from __future__ import annotations

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.outliers import outliers
from ansible_collections.lium.cluster.plugins.module_utils._roce.passmark import (
    FAIL,
    OK,
    WARN,
    Rail,
    Slot,
    ceiling,
    mark,
    parse_rate,
    parse_slot,
    slot_gbps,
)


@pytest.mark.parametrize("link", [10, 25, 40, 50, 100, 200, 400, 800])
def test_the_contracts_table(link: int) -> None:
    top = ceiling(Rail(link), Rail(link), 4096)
    statuses = [mark(link * share, top).status for share in (0.97, 0.8801, 0.8799, 0.5001, 0.4999, 0.01)]
    assert statuses == [OK, OK, WARN, WARN, FAIL, FAIL]


@pytest.mark.parametrize(("mtu", "share"), [(4096, 0.98), (2048, 0.96), (1024, 0.92)])
def test_smaller_packets_lower_the_ceiling(mtu: int, share: float) -> None:
    top = ceiling(Rail(100), Rail(100), mtu)
    assert top is not None
    assert top.gigabits_per_second == pytest.approx(100 * share, abs=0.6)
    assert mark(100 * share * 0.91, top).status == OK


def test_an_unknown_mtu_never_fails_a_pair_that_a_known_one_would_pass() -> None:
    assert mark(83.5, ceiling(Rail(100), Rail(100), None)).status == OK


def test_the_slower_end_counts() -> None:
    top = ceiling(Rail(400), Rail(200), 4096)
    assert top is not None
    assert mark(190, top).status == OK


def test_a_narrow_slot_is_the_ceiling_and_is_said() -> None:
    gen4 = Slot(16.0, 16)
    assert slot_gbps(gen4) == pytest.approx(229, abs=1)
    top = ceiling(Rail(400, gen4), Rail(400, Slot(32.0, 16)), 4096)
    assert top is not None
    assert top.limit == "pcie"
    assert "PCIe" in mark(215, top).hint
    assert mark(215, top).status == OK
    assert mark(100, top).status == FAIL


def test_soft_roce_never_fails_on_rate() -> None:
    assert ceiling(Rail(None), Rail(None), 1024) is None
    assert mark(0.18, None).status == OK
    assert mark(0.0, None).status == FAIL
    assert mark(None, None).status == FAIL


@pytest.mark.parametrize(
    ("share", "word"), [(0.5, "half"), (0.25, "quarter"), (0.01, "retransmission"), (0.8, "below the mark")]
)
def test_a_ratio_hints_at_its_cause(share: float, word: str) -> None:
    top = ceiling(Rail(400), Rail(400), 4096)
    assert top is not None
    assert word in mark(share * top.gigabits_per_second, top).hint


def test_outliers_are_relative() -> None:
    assert outliers([195.0, 194.0, 195.5, 194.8, 170.0, None]) == [False] * 4 + [True, False]
    assert outliers([195.0, 150.0]) == [False, False]
    assert not any(outliers([0.18, 0.29, 0.12, 0.21, 0.16], soft=True))
    assert outliers([0.18, 0.19, 0.18, 0.17, 0.01], soft=True) == [False] * 4 + [True]


def test_what_sysfs_says() -> None:
    assert parse_rate("400 Gb/sec (4X NDR)") == 400
    assert parse_rate("2.5 Gb/sec (1X SDR)") == 2.5
    assert parse_rate("") is None
    assert parse_slot("16.0 GT/s PCIe", "16") == (16.0, 16)
    assert parse_slot("Unknown", "16") is None
    assert parse_slot("16.0 GT/s PCIe", "0") is None
