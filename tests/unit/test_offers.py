"""`get_offers`: plain data, for programs and people."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pydantic import SecretStr

from pulumi_lium import get_offers
from pulumi_lium.api import ServerError, Settings
from pulumi_lium.lifecycle.errors import InvalidInputs
from tests.support.world import World
from tools.emulator import Emulator


def test_what_could_be_ordered_now_cheapest_first() -> None:
    world = World()
    offers = get_offers(nodes=2, gpu_type="H100", api=world.ctx.api)
    assert [(offer.fabric_type, offer.price_per_hour, offer.free_count) for offer in offers] == [
        ("infiniband", 32.0, 4),
        ("roce", 40.0, 2),
    ]
    assert [machine.id for machine in offers[0].machines] == ["a1", "a2"]
    assert json.loads(json.dumps(dataclasses.asdict(offers[0])))["gpu_type"] == "H100"


@pytest.mark.parametrize(
    ("selectors", "kinds"),
    [
        ({"fabric_type": "roce"}, ["roce"]),
        ({"country": "US"}, ["infiniband"]),
        ({"max_price_per_hour": 39.0}, ["infiniband"]),
        ({"nodes": 3}, ["infiniband"]),
        ({"gpus_per_node": 4}, []),
        ({"gpu_type": "B200"}, []),
    ],
    ids=str,
)
def test_selectors_are_those_of_the_cluster(selectors: dict[str, object], kinds: list[str]) -> None:
    offers = get_offers(api=World().ctx.api, **selectors)  # type: ignore[arg-type]
    assert [offer.fabric_type for offer in offers] == kinds


def test_a_bad_selector_is_named() -> None:
    with pytest.raises(InvalidInputs, match="nodes: is 1"):
        get_offers(nodes=1, api=World().ctx.api)


def test_what_cannot_be_read_is_never_an_empty_list() -> None:
    world = World()
    world.fault("GET /executors/infiniband-clusters", "status", code=503, times=0)
    with pytest.raises(ServerError):
        get_offers(api=world.ctx.api)


def test_settings_come_from_the_environment_or_as_given(
    emulator: Emulator, lium_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = get_offers(settings=Settings(lium_env["LIUM_BASE_URL"], SecretStr(lium_env["LIUM_API_KEY"])))
    for name, value in lium_env.items():
        monkeypatch.setenv(name, value)
    assert get_offers() == given
    assert given
