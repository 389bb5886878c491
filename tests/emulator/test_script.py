"""Scripts: the story that a client meets, however often it lists (rules: the field cases' README)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from pulumi_lium.emulator.exchange import Cut, Request
from pulumi_lium.emulator.faults import Ending
from pulumi_lium.emulator.script import Script, ScriptStory

LIST = "GET /pods"
ORDER = "POST /executors/cluster/rent"
DELETE = "DELETE /clusters/c1"


def story(*steps: tuple[str, Any]) -> Script:
    """A script whose answers are 200 with the given JSON, or the given answer where it is a dict with a known key."""

    def answer(value: Any) -> Any:
        return value if isinstance(value, dict) else {"status": 200, "json": value}

    return Script.of(ScriptStory.model_validate({"steps": [{"on": on, "answer": answer(a)} for on, a in steps]}))


def ask(script: Script, on: str) -> Ending | None:
    method, path = on.split(" ")
    return script.tell(Request(method, tuple(path[1:].split("/"))))


def told(script: Script, on: str) -> Any:
    ending = ask(script, on)
    assert ending is not None
    assert ending.answer is not None
    return json.loads(ending.answer.body)


def test_steps_of_a_route_come_in_order_and_the_last_repeats() -> None:
    script = story((LIST, ["a"]), (LIST, ["b"]), (LIST, ["c"]))
    assert [told(script, LIST) for _ in range(5)] == [["a"], ["b"], ["c"], ["c"], ["c"]]


def test_listings_behind_an_order_wait_for_the_order() -> None:
    script = story((LIST, []), (ORDER, {"status": 200, "json": {"success": True}}), (LIST, ["pending"]), (LIST, ["up"]))
    assert [told(script, LIST) for _ in range(3)] == [[], [], []]
    told(script, ORDER)
    assert [told(script, LIST) for _ in range(3)] == [["pending"], ["up"], ["up"]]


def test_a_client_that_never_listed_before_its_order_meets_the_same_story() -> None:
    script = story((LIST, ["old"]), (LIST, ["old"]), (ORDER, {"status": 200, "json": {}}), (LIST, ["new"]))
    told(script, ORDER)
    assert told(script, LIST) == ["new"]


def test_listings_behind_two_deletes_wait_for_both() -> None:
    failed = {"status": 500, "json": {}}
    script = story(
        (DELETE, failed), (DELETE, failed), (LIST, ["both"]), (DELETE, {"status": 200, "json": {}}), (LIST, [])
    )
    assert told(script, LIST) == ["both"], "before its turn the route tells its first step"
    ask(script, DELETE)
    assert told(script, LIST) == ["both"]
    ask(script, DELETE)
    assert [told(script, LIST) for _ in range(2)] == [["both"], ["both"]]
    ask(script, DELETE)
    assert told(script, LIST) == []


def test_listing_early_uses_nothing_up() -> None:
    script = story((DELETE, {"status": 200, "json": {}}), (LIST, ["deleting"]), (LIST, []))
    assert [told(script, LIST) for _ in range(3)] == [["deleting"]] * 3
    ask(script, DELETE)
    assert [told(script, LIST) for _ in range(3)] == [["deleting"], [], []]


def test_other_routes_are_left_to_the_emulator() -> None:
    script = story((LIST, []))
    assert ask(script, "GET /templates") is None
    assert ask(script, "DELETE /clusters/c2") is None


def test_a_gap_lets_the_emulator_answer_in_its_turn() -> None:
    script = story((ORDER, {"status": 503, "json": {}}), (ORDER, {}))
    assert ask(script, ORDER) is not None
    assert ask(script, ORDER) is None


@pytest.mark.parametrize(
    ("fault", "cut", "acts"),
    [
        ("refused", Cut.REFUSED, False),
        ("drop_before_commit", Cut.DROPPED, False),
        ("drop_after_commit", Cut.DROPPED, True),
    ],
)
def test_faults_cut_the_connection(fault: str, cut: Cut, acts: bool) -> None:
    ending = ask(story((ORDER, {"fault": fault})), ORDER)
    assert ending is not None
    assert ending.answer is None
    assert (ending.cut, ending.acts) == (cut, acts)


def test_a_commit_behind_an_error_acts_and_sends_the_raw_body() -> None:
    page = {"status": 504, "raw": "<h1>504</h1>", "content_type": "text/html", "commit": True}
    ending = ask(story((ORDER, page)), ORDER)
    assert ending is not None
    assert ending.acts
    assert ending.committed
    assert ending.answer is not None
    assert ending.answer.body == b"<h1>504</h1>"
    assert ending.answer.headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    ("body", "committed"), [({"success": True}, True), ({"success": False, "message": "taken"}, False), ({}, True)]
)
def test_the_journal_is_told_what_a_scripted_success_claims(body: dict[str, Any], committed: bool) -> None:
    ending = ask(story((ORDER, {"status": 200, "json": body})), ORDER)
    assert ending is not None
    assert ending.committed is committed
    assert not ending.acts


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ([{"on": "pods", "answer": {}}], "steps.0.on"),
        ([{"on": LIST}], "steps.0.answer"),
        ([{"on": LIST, "answer": {"json": []}}], "steps.0.answer"),
        ([{"on": LIST, "answer": {"status": 200, "json": [], "raw": ""}}], "steps.0.answer"),
        ([{"on": LIST, "answer": {"status": 200, "jsn": []}}], "steps.0.answer.jsn"),
        ([{"on": LIST, "answer": {"fault": "explode"}}], "steps.0.answer.fault"),
    ],
)
def test_a_wrong_step_is_named(steps: list[dict[str, Any]], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ScriptStory.model_validate({"steps": steps})
    assert place in [".".join(map(str, fault["loc"])) for fault in caught.value.errors()]


def test_remarks_for_the_reader_change_nothing() -> None:
    read = ScriptStory.model_validate(
        {"note": "x", "pending_seconds": 5, "steps": [{"on": LIST, "guard": "g", "answer": {}}]}
    )
    assert len(read.steps) == 1
