"""Every scripted case can be played: its answers come over the wire as they are written, in the order of the story."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.field.story import KEY, OFFERS, Story, scripts
from tools.emulator import Emulator

HEADERS = {"X-API-KEY": KEY}
ORDER = "POST /executors/cluster/rent"


def send(emulator: Emulator, story: Story, on: str) -> requests.Response:
    """The request of a step; an order asks for two of the case's machines."""
    method, path = on.split(" ")
    body = None
    if on == ORDER:
        templates = requests.get(emulator.base_url + "/templates", headers=HEADERS, timeout=10).json()
        body = {
            "pod_name": "train-a",
            "template_id": templates[0]["id"],
            "executor_uuids": [machine["id"] for machine in story.machines()[:2]],
            "user_public_key": ["ssh-ed25519 AAAA ana"],
        }
    return requests.request(method, emulator.base_url + path, json=body, headers=HEADERS, timeout=10)


@pytest.mark.parametrize(("case", "name"), list(scripts()))
def test_a_story_is_told_step_by_step(emulator: Emulator, case: str, name: str) -> None:
    story = Story(case, name)
    story.play(emulator)
    for step in story.steps:
        answer: dict[str, Any] = step["answer"]
        if "fault" in answer:
            with pytest.raises(requests.ConnectionError):
                send(emulator, story, step["on"])
            continue
        got = send(emulator, story, step["on"])
        assert got.status_code == answer["status"]
        if "raw" in answer:
            assert got.text == answer["raw"]
            assert got.headers["Content-Type"] == answer["content_type"]
        else:
            assert got.json() == answer["json"]


@pytest.mark.parametrize("case", ["B08", "B10"])
def test_an_order_that_commits_behind_its_error_makes_one_cluster(emulator: Emulator, case: str) -> None:
    story = Story(case)
    story.play(emulator)
    for _ in range(sum(step["on"] == ORDER for step in story.steps)):
        try:
            send(emulator, story, ORDER)
        except requests.ConnectionError:
            continue
    assert len(emulator.state()["clusters"]) == 1
    first = next(row for row in emulator.journal() if row["path"] == "/executors/cluster/rent")
    assert first["committed"] is True


def test_members_stay_pending_as_long_as_the_case_says(virtual_emulator: Emulator) -> None:
    story = Story("B35")
    virtual_emulator.reset(story.scenario())
    send(virtual_emulator, story, ORDER)
    virtual_emulator.advance(story.told["pending_seconds"] - 1)
    assert {pod["status"] for pod in virtual_emulator.state()["pods"]} == {"PENDING"}
    virtual_emulator.advance(1)
    assert {pod["status"] for pod in virtual_emulator.state()["pods"]} == {"RUNNING"}


def test_an_offer_is_told_where_the_case_only_orders(emulator: Emulator) -> None:
    story = Story("B10")
    story.play(emulator)
    offers = send(emulator, story, OFFERS).json()
    assert [offer["fabric_id"] for offer in offers] == [story.order["fabric_id"]]
    assert len(offers[0]["nodes"]) == story.order["nodes"]
