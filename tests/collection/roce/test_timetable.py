"""The timetable: complete, disjoint, short, and no more than what is missing."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import (
    LinkTest,
    Meeting,
    Round,
    circle,
    pack,
    timetable,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st


def names(n: int) -> list[str]:
    return [f"gpu{number:03}" for number in range(n)]


def one_rail(n: int) -> dict[str, list[int]]:
    return {name: [0] for name in names(n)}


def assert_disjoint(rounds: list[Round]) -> None:
    """No host, so no card and no port, is used twice at one time."""
    for meetings in rounds:
        busy = [host for meeting in meetings for host in meeting[:2]]
        assert len(busy) == len(set(busy))


def pairs_of(rounds: list[Round]) -> list[frozenset[str]]:
    return [frozenset(meeting[:2]) for meetings in rounds for meeting in meetings]


@given(st.integers(0, 512))
@example(2)
@example(3)
@example(127)
@example(128)
@example(511)
@example(512)
@settings(max_examples=12, deadline=None)
def test_each_pair_once_in_the_fewest_rounds(n: int) -> None:
    rounds = timetable(one_rail(n))
    assert_disjoint(rounds)
    met = pairs_of(rounds)
    assert len(met) == len(set(met)) == n * (n - 1) // 2
    assert len(rounds) == (0 if n < 2 else n if n % 2 else n - 1)


@pytest.mark.parametrize("n", range(3, 66))
def test_each_host_is_the_server_in_half_of_its_pairs(n: int) -> None:
    servers = [meeting.server for meetings in timetable(one_rail(n)) for meeting in meetings]
    for name in names(n):
        assert abs(2 * servers.count(name) - (n - 1)) <= 1


@given(st.integers(2, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_only_what_is_missing_is_measured(n: int, data: st.DataObject) -> None:
    every = [meeting.tests[0] for meetings in timetable(one_rail(n)) for meeting in meetings]
    proven = data.draw(st.lists(st.sampled_from(every), unique=True))
    swapped = data.draw(st.booleans())
    shown = [LinkTest(test.client, test.server, test.rail) for test in proven] if swapped else proven
    rounds = timetable(one_rail(n), proven=shown)
    assert_disjoint(rounds)
    assert set(pairs_of(rounds)) == {frozenset(test[:2]) for test in every if test not in proven}
    assert len(rounds) <= len(timetable(one_rail(n)))


@pytest.mark.parametrize("n", [2, 3, 16, 127, 300])
def test_a_joining_host_adds_only_its_own_pairs(n: int) -> None:
    proven = [meeting.tests[0] for meetings in timetable(one_rail(n)) for meeting in meetings]
    rounds = timetable({**one_rail(n), "new": [0]}, proven=proven)
    assert len(rounds) == n
    assert all(len(meetings) == 1 and "new" in meetings[0][:2] for meetings in rounds)


def test_two_joining_hosts_work_at_the_same_time() -> None:
    proven = [meeting.tests[0] for meetings in timetable(one_rail(32)) for meeting in meetings]
    rounds = timetable({**one_rail(32), "new1": [0], "new2": [0]}, proven=proven)
    assert len(pairs_of(rounds)) == 65
    assert len(rounds) <= 34


@given(st.integers(2, 12), st.integers(1, 8), st.booleans())
@example(512, 1, True)
@example(511, 2, False)
@settings(max_examples=30, deadline=None)
def test_rails_and_directions(n: int, rails: int, both: bool) -> None:
    hosts = {name: range(rails) for name in names(n)}
    rounds = timetable(hosts, both_directions=both)
    assert_disjoint(rounds)
    assert len(rounds) == (n if n % 2 else n - 1)
    ran = [test for meetings in rounds for meeting in meetings for test in meeting.tests]
    directions = itertools.permutations(names(n), 2) if both else itertools.combinations(names(n), 2)
    wanted = {(frozenset(pair), rail) if not both else (*pair, rail) for pair in directions for rail in range(rails)}
    assert {(frozenset(test[:2]), test.rail) if not both else tuple(test) for test in ran} == wanted
    assert len(ran) == len(wanted)


def test_a_rail_that_only_one_host_has_is_not_measured() -> None:
    rounds = timetable({"a": [0, 1], "b": [1], "c": [2]})
    assert [meeting for meetings in rounds for meeting in meetings] == [Meeting("b", "a", (LinkTest("b", "a", 1),))]


def test_the_platforms_rail_only() -> None:
    rounds = timetable({name: range(8) for name in names(4)}, wanted_rails=[0])
    assert {test.rail for meetings in rounds for meeting in meetings for test in meeting.tests} == {0}


def test_a_direction_is_proven_by_itself_only() -> None:
    left = timetable(one_rail(2), both_directions=True, proven=[LinkTest("gpu000", "gpu001", 0)])
    assert [meeting.tests for meetings in left for meeting in meetings] == [(LinkTest("gpu001", "gpu000", 0),)]


def test_a_host_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice: a"):
        circle(["a", "b", "a"])


@given(st.integers(3, 24), st.data())
@settings(max_examples=40, deadline=None)
def test_packing_stays_within_its_bound(n: int, data: st.DataObject) -> None:
    every = [Meeting(*pair, ()) for pair in itertools.combinations(names(n), 2)]
    some = data.draw(st.lists(st.sampled_from(every), unique=True))
    rounds = pack(some)
    assert_disjoint(rounds)
    assert sorted(pairs_of(rounds), key=sorted) == sorted((frozenset(meeting[:2]) for meeting in some), key=sorted)
    most = max((sum(name in meeting[:2] for meeting in some) for name in names(n)), default=0)
    assert len(rounds) <= max(0, 2 * most - 1)
