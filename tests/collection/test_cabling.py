"""Rails whose cables hang on another rail's switch, by what the switches announce over LLDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._cabling import compare_cabling
from ansible_collections.lium.cluster.plugins.plugin_utils._fabric import compare_hosts

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import look, lossless_host

SEGMENT = "10.20.30.0/24"
Heard = dict[str, list[list[str | None]]]


def told(heard: Heard) -> dict[str, str]:
    """What is said of each host; ``heard`` has the switches of each rail's netdevs, ``None`` for what is not heard."""
    facts: dict[str, dict[str, Any]] = {
        host: {
            "lossless": {
                "rails": [
                    {"rail": f"mlx5_{rail}:1", "neighbour": switch} for rail, own in enumerate(rails) for switch in own
                ]
            }
        }
        for host, rails in heard.items()
    }
    found = list(compare_cabling({SEGMENT: list(heard)}, facts))
    assert {(record.id, record.status) for _, record in found} <= {("roce.rails_crossed", "WARN")}
    assert len({host for host, _ in found}) == len(found)
    return {host: record.observed.removeprefix(f"{SEGMENT}: ") for host, record in found}


def test_a_crossed_host_is_named_and_its_neighbours_are_not() -> None:
    straight: list[list[str | None]] = [["plane0"], ["plane1"], ["plane2"]]
    crossed: list[list[str | None]] = [["plane0"], ["plane2"], ["plane1"]]
    assert told({"a": straight, "b": straight, "c": crossed}) == {
        "c": "plane1 carries rail 1 of a, b, rail 2 of c; plane2 carries rail 1 of c, rail 2 of a, b"
    }


def test_of_two_hosts_nobody_knows_which_one_is_crossed() -> None:
    assert set(told({"a": [["x"], ["y"]], "b": [["y"], ["x"]]})) == {"a", "b"}


@pytest.mark.parametrize(
    "heard",
    [
        {"a": [["x"], ["y"]], "b": [["x"], ["y"]]},
        {"a": [["x"], ["y"]], "b": [["v"], ["w"]]},  # racks with switches of their own
        {"a": [["top"], ["top"]], "b": [["top"], ["top"]]},  # one switch for all rails is no plane's
        {"a": [["top"], ["top"]], "b": [[None], ["top"]]},
        {"a": [["x"], ["y"]], "b": [[None], [None]]},
        {"a": [["x", "y"]], "b": [["y", "x"]]},  # the legs of a bond
        {},
    ],
)
def test_what_is_no_crossing(heard: Heard) -> None:
    assert told(heard) == {}


def test_from_lldp_to_the_record(tmp_path: Path) -> None:
    facts = {}
    for name, switches in (("a", ("leaf1", "leaf2")), ("b", ("leaf1", "leaf2")), ("c", ("leaf2", "leaf1"))):
        host = lossless_host(rails=2)
        for netdev, switch in zip(("enp32s0np0", "enp33s0np0"), switches, strict=True):
            neighbour = outputs.lldpcli().replace("leaf01", switch)
            host.answer(f"lldpcli -f json0 show neighbors details ports {netdev}", neighbour)
        facts[name] = dict(look(host, tmp_path / name).facts)
        assert [rail["neighbour"] for rail in facts[name]["lossless"]["rails"]] == list(switches)
    found = {
        host: [record.status for record in records if record.id == "roce.rails_crossed"]
        for host, records in compare_hosts(facts).items()
    }
    assert found == {"a": [], "b": [], "c": ["WARN"]}


def test_without_lldp_no_switch_is_named(tmp_path: Path) -> None:
    host = lossless_host()
    del host.commands["lldpcli -f json0 show neighbors details ports enp32s0np0"]
    (rail,) = look(host, tmp_path).facts["lossless"]["rails"]
    assert rail["neighbour"] is None
