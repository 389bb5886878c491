"""`get_offers`: plain data, for programs and people."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from pulumi_lium import LiumCluster, get_offers
from pulumi_lium.api import ServerError, Settings
from pulumi_lium.commands.offers import offers as offers_command
from pulumi_lium.lifecycle.errors import InvalidInputs
from pulumi_lium.lifecycle.inputs import SELECTORS
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


def test_every_way_to_the_offers_has_the_selectors_of_the_cluster() -> None:
    of_function = set(inspect.signature(get_offers).parameters) - {"account", "settings", "api"}
    of_command = {parameter.name for parameter in offers_command.params} - {"account", "as_json"}
    of_cluster = set(inspect.signature(LiumCluster.__init__).parameters)
    assert of_function == of_command == set(SELECTORS)
    assert set(SELECTORS) | {"account"} <= of_cluster
    assert {"account"} <= {parameter.name for parameter in offers_command.params}


@pytest.mark.parametrize("machines", [["a2", "a1"], ("a2", "a1")])
def test_machines_are_taken_in_their_order_and_count_the_nodes(machines: Sequence[str]) -> None:
    (offer,) = get_offers(machines=machines, api=World().ctx.api)
    assert [machine.id for machine in offer.machines] == ["a2", "a1"]
    assert get_offers(machines=["a1", "no-such-machine"], api=World().ctx.api) == []


@pytest.mark.parametrize(
    ("selectors", "says"),
    [
        ({"machines": ["a1", "a2", "a3"], "nodes": 2}, "names 3 machines for 2 nodes"),
        ({"machines": []}, "names 0 machines for 2 nodes"),
        ({"machines": ["a1"]}, "nodes: is 1"),
        ({"machines": "a1,a2"}, "a list is needed"),
        ({"machines": 7}, "a list is needed"),
        ({"machines": ["a1", 2]}, "entry 1 is 2"),
        ({"nodes": True}, "nodes: is True"),
        ({"nodes": 2.5}, "nodes: is 2.5"),
        ({"nodes": 10**400}, "too large"),
        ({"gpu_type": ""}, "gpu_type: is empty"),
        ({"gpu_type": "H100\n"}, "line break"),
        ({"country": 49}, "country: is 49"),
        ({"max_price_per_hour": float("nan")}, "max_price_per_hour: is nan"),
        ({"max_price_per_hour": -1}, "above 0"),
        ({"fabric_type": "ÏnfiniBand"}, "'infiniband' or 'roce'"),
    ],
    ids=str,
)
def test_each_odd_selector_is_named_and_nothing_is_asked(selectors: dict[str, Any], says: str) -> None:
    world = World()
    before = world.requests()
    with pytest.raises(InvalidInputs, match=re.escape(says)):
        get_offers(api=world.ctx.api, **selectors)
    assert world.requests() == before


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
