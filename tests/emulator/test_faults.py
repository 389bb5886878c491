"""Fault rules: which requests meet them, how often, and what each kind does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from pulumi_lium.emulator.exchange import Cut, Request
from pulumi_lium.emulator.faults import Effects, FaultBox, FaultRule


def box(*rules: dict[str, Any]) -> FaultBox:
    faults = FaultBox()
    for rule in rules:
        faults.add(FaultRule.model_validate(rule))
    return faults


def meet(faults: FaultBox, method: str = "GET", *segments: str) -> Effects:
    return faults.meet(Request(method, segments or ("pods",)), "req-1")


def test_after_and_times_choose_the_requests() -> None:
    faults = box({"on": "GET /pods", "after": 1, "times": 2, "fault": {"kind": "refused"}})
    met = [meet(faults).ending is not None for _ in range(5)]
    assert met == [False, True, True, False, False]
    assert faults.rows() == []


def test_zero_times_is_for_ever() -> None:
    faults = box({"on": "GET /pods", "times": 0, "fault": {"kind": "refused"}})
    assert all(meet(faults).ending for _ in range(50))
    assert faults.rows()[0]["left"] is None


def test_a_star_stands_for_one_segment() -> None:
    faults = box({"on": "DELETE /clusters/*", "times": 0, "fault": {"kind": "refused"}})
    assert meet(faults, "DELETE", "clusters", "a/b").ending is not None
    assert meet(faults, "DELETE", "clusters", "a", "b").ending is None
    assert meet(faults, "GET", "clusters", "a").ending is None


@pytest.mark.parametrize(
    ("fault", "cut", "acts"),
    [
        ({"kind": "refused"}, Cut.REFUSED, False),
        ({"kind": "drop_before_commit"}, Cut.DROPPED, False),
        ({"kind": "drop_after_commit"}, Cut.DROPPED, True),
    ],
)
def test_cuts(fault: dict[str, Any], cut: Cut, acts: bool) -> None:
    ending = meet(box({"on": "GET /pods", "fault": fault})).ending
    assert ending is not None
    assert ending.answer is None
    assert (ending.cut, ending.acts) == (cut, acts)


def test_a_status_without_a_body_has_the_services_envelope() -> None:
    fault = {"kind": "status", "code": 429, "headers": {"Retry-After": "7"}}
    ending = meet(box({"on": "GET /pods", "fault": fault})).ending
    assert ending is not None
    assert not ending.acts
    assert ending.answer is not None
    assert ending.answer.status == 429
    assert ending.answer.headers["retry-after"] == "7"
    assert json.loads(ending.answer.body)["error"] == {
        "code": "rate_limited",
        "message": "Too Many Requests",
        "hint": None,
        "request_id": "req-1",
    }


@pytest.mark.parametrize(("body", "sent"), [({}, b"{}"), ([1], b"[1]"), ("<p>no</p>", b"<p>no</p>")])
def test_a_given_body_goes_out_as_it_is(body: Any, sent: bytes) -> None:
    ending = meet(box({"on": "GET /pods", "fault": {"kind": "status", "code": 503, "body": body}})).ending
    assert ending is not None
    assert ending.answer is not None
    assert ending.answer.body == sent


def test_only_the_services_own_failure_loses_the_outcome() -> None:
    lost = {}
    for code in (500, 502, 503, 504):
        ending = meet(box({"on": "GET /pods", "fault": {"kind": "status", "code": code, "commit": True}})).ending
        assert ending is not None
        assert ending.acts
        lost[code] = ending.lose_outcome
    assert lost == {500: True, 502: False, 503: False, 504: False}


def test_not_json_acts_and_sends_a_page() -> None:
    ending = meet(box({"on": "GET /pods", "fault": {"kind": "not_json"}})).ending
    assert ending is not None
    assert ending.acts
    assert ending.answer is not None
    assert ending.answer.status == 200
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(ending.answer.body)


def test_delays_add_up_and_the_oldest_ending_wins() -> None:
    faults = box(
        {"on": "GET /pods", "fault": {"kind": "delay", "seconds": 1}},
        {"on": "GET /pods", "fault": {"kind": "status", "code": 503}},
        {"on": "GET /pods", "fault": {"kind": "delay", "seconds": 2, "when": "after"}},
        {"on": "GET /pods", "fault": {"kind": "refused"}},
    )
    first = meet(faults)
    assert (first.delay_before, first.delay_after) == (1, 2)
    assert first.ending is not None
    assert first.ending.answer is not None
    second = meet(faults)
    assert second.ending is not None
    assert second.ending.cut is Cut.REFUSED, "the later rule kept its turn"


def test_a_stale_list_lasts_n_listings() -> None:
    faults = box({"on": "GET /pods", "fault": {"kind": "stale_list", "n": 3}})
    assert [meet(faults).stale for _ in range(4)] == [True, True, True, False]


def test_members_are_hidden_together() -> None:
    faults = box(
        {"on": "GET /pods", "times": 0, "fault": {"kind": "hide_member", "rank": 1}},
        {"on": "GET /pods", "fault": {"kind": "hide_member", "rank": 0, "cluster": "c"}},
    )
    assert [(fault.rank, fault.cluster) for fault in meet(faults).hidden] == [(1, None), (0, "c")]
    assert [fault.rank for fault in meet(faults).hidden] == [1]


def test_clear_ends_all() -> None:
    faults = box({"on": "GET /pods", "times": 0, "fault": {"kind": "refused"}})
    faults.clear()
    assert meet(faults).ending is None


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ({"on": "/pods", "fault": {"kind": "refused"}}, "on"),
        ({"on": "GET pods", "fault": {"kind": "refused"}}, "on"),
        ({"on": "GET /pods", "fault": {"kind": "explode"}}, "fault"),
        ({"on": "GET /pods", "fault": {"kind": "status"}}, "fault.status.code"),
        ({"on": "GET /pods", "fault": {"kind": "status", "code": 99}}, "fault.status.code"),
        ({"on": "GET /pods", "fault": {"kind": "delay", "seconds": -1}}, "fault.delay.seconds"),
        ({"on": "GET /pods", "fault": {"kind": "delay", "seconds": 1, "wen": "after"}}, "fault.delay.wen"),
        (
            {"on": "GET /pods", "fault": {"kind": "status", "code": 503, "headers": {"a": "b\r\nc: d"}}},
            "fault.status.headers.a",
        ),
        ({"on": "GET /pods", "times": -1, "fault": {"kind": "refused"}}, "times"),
        ({"on": "GET /pods"}, "fault"),
    ],
)
def test_a_wrong_rule_is_named(rule: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FaultRule.model_validate(rule)
    assert place in [".".join(map(str, fault["loc"])) for fault in caught.value.errors()]
