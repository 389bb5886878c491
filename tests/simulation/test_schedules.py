"""Twenty thousand lives of a stack, killed and recovered. The invariants stand in `simulator`; `make soak` has more."""

from __future__ import annotations

import pytest

from tools.soak import replay_command, run_seeds

SCHEDULES, BLOCK = 20_000, 1_000


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_nothing_bills_unowned_whatever_dies_when(first: int) -> None:
    counts, failed = run_seeds(range(first, first + BLOCK))
    for seed, why in failed:
        print(f"seed {seed}: {why}\n  {replay_command(seed)}")
    assert not failed
    assert counts["schedules"] == BLOCK
    assert counts["kills"] > BLOCK / 4
