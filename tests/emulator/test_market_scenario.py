"""Scenarios: what is wrong is named with its place (design 4.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from pulumi_lium.emulator.market import Market, load_scenario
from pulumi_lium.emulator.scenario import ScenarioError, builtin_scenario
from tests.support.market import ANA, START, host, market, scenario

DESIGN_EXAMPLE = """
seed: 7
boot: {seconds: [20, 40]}                 # PENDING until then
settings: {cancel_in_flight_creates: true, idempotency: true, delete_seconds: 5}
accounts:
  - {id: ana, email: ana@example.com, balance: 500.0, keys: [{key: sk_emulator_ana, scopes: [read, rent, manage]}]}
templates: [{name: Multi-node cluster, docker_image: daturaai/lium-cluster, docker_image_tag: 0.0.10}]
providers:
  - name: dallas-1
    location: {country: United States, country_code: US, city: Dallas}
    fabrics:
      - {name: ib0, type: infiniband, subnet_manager: "0x3", link_rate: "400 Gb/sec (4X NDR)", udp_51820: open}
      - {name: roce0, type: roce, segment: 10.20.30.0/24, link_rate: "200 Gb/sec", measured: all}
    hosts:
      - {id: h1, gpu_model: NVIDIA H100 80GB HBM3, gpu_count: 8, price_per_gpu: 2.0, public_ip: 192.0.2.11,
         fabric: ib0, free: true}
"""


def test_the_designs_example_is_read_as_it_stands() -> None:
    here = Market(load_scenario(DESIGN_EXAMPLE), START)
    assert here.me("sk_emulator_ana") == {
        "id": "ana",
        "email": "ana@example.com",
        "balance": 500.0,
        "stripe_customer_id": None,
    }
    assert [row["id"] for row in here.executors({})] == ["h1"]


def test_json_is_as_good_as_yaml() -> None:
    data = yaml.safe_load(DESIGN_EXAMPLE)
    assert load_scenario(json.dumps(data)) == load_scenario(DESIGN_EXAMPLE) == load_scenario(data)


def test_the_built_in_scenario_is_package_data() -> None:
    assert load_scenario() == load_scenario(builtin_scenario())


def rack(**change: Any) -> dict[str, Any]:
    provider = scenario()["providers"][0] | change
    return {"providers": [provider]}


IB = {"name": "ib", "type": "infiniband", "subnet_manager": "0x3"}
ROCE = {"name": "roce", "type": "roce", "segment": "10.20.30.0/24"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"acounts": []}, "acounts: unknown key, did you mean accounts?"),
        ({"accounts": []}, "accounts: list should have at least 1 item"),
        ({"accounts": [{"id": "x", "keys": []}]}, "accounts[0].keys: list should have at least 1 item"),
        (
            {"accounts": [{"id": "x", "keys": [{"kay": "k"}]}]},
            "accounts[0].keys[0].kay: unknown key, did you mean key?",
        ),
        ({"accounts": [{"id": "x", "keys": [{"key": "k", "scopes": ["root"]}]}]}, "accounts[0].keys[0].scopes[0]: "),
        (
            {"accounts": [{"id": "x", "keys": [{"key": "k", "scopes": ["billing", "read"]}]}]},
            "accounts[0].keys[0].scopes: billing must be the only scope of its key",
        ),
        (
            {"accounts": [{"id": "x", "keys": [{"key": "sk_same"}]}, {"id": "y", "keys": [{"key": "sk_same"}]}]},
            "accounts[1].keys[0].key: is used already at accounts[0].keys[0].key",
        ),
        ({"accounts": [{"id": "x", "balance": 1e300, "keys": [{"key": "k"}]}]}, "accounts[0].balance: "),
        ({"accounts": [{"id": "x", "keys": [{"key": "clé secrète"}]}]}, "accounts[0].keys[0].key: "),
        ({"boot": {"seconds": [0, 1e300]}}, "boot.seconds[1]: "),
        ({"settings": {"delete_seconds": 1e300}}, "settings.delete_seconds: "),
        (rack(hosts=[host("a", price_per_gpu=1e300)]), "providers[0].hosts[0].price_per_gpu: "),
        ({"events": [{"at_s": 1e300, "event": "machine_lost", "host": "a1"}]}, "events[0].at_s: "),
        ({"events": [{"at_s": 1, "event": "balance", "account": "ana", "balance": -1e300}]}, "events[0].balance: "),
        ({"seed": "seven"}, "seed: "),
        ({"boot": {"seconds": [40, 20]}}, "boot.seconds: the first number must not be above the second"),
        ({"boot": {"seconds": [-1, 20]}}, "boot.seconds[0]: "),
        ({"settings": {"delete_second": 5}}, "settings.delete_second: unknown key, did you mean delete_seconds?"),
        ({"templates": [{"name": "x"}]}, "templates[0].docker_image: is missing"),
        ({"templates": [{"name": "x", "docker_image": "y", "owner": "z"}]}, "templates[0].owner: no account 'z'"),
        (rack(hosts=[host("a", "nowhere")]), "providers[0].hosts[0].fabric: provider 'rack' has no fabric 'nowhere'"),
        (
            rack(hosts=[host("a"), host("a")]),
            "providers[0].hosts[1].id: 'a' is used already at providers[0].hosts[0].id",
        ),
        (rack(hosts=[host("a", gpu_cuont=8)]), "providers[0].hosts[0].gpu_cuont: unknown key, did you mean gpu_count?"),
        (rack(hosts=[host("a", free_gpus=9)]), "providers[0].hosts[0]: free_gpus 9 is more than gpu_count 8"),
        (rack(hosts=[host("a", price_per_gpu=float("nan"))]), "providers[0].hosts[0].price_per_gpu: "),
        (
            rack(fabrics=[IB | {"subnet_manager": None}], hosts=[]),
            "providers[0].fabrics[0]: an infiniband fabric needs",
        ),
        (
            rack(fabrics=[ROCE | {"segment": "10.0.0.1/24"}], hosts=[]),
            "providers[0].fabrics[0]: segment must be an IPv4",
        ),
        (rack(fabrics=[IB | {"udp_51820": "shut"}], hosts=[]), "providers[0].fabrics[0].udp_51820: "),
        (
            rack(fabrics=[IB, IB | {"name": "two"}], hosts=[]),
            "providers[0].fabrics[1]: 'infiniband 0x3' is used already",
        ),
        (
            rack(fabrics=[ROCE | {"measured": {"pairs": [["a", "b", 1.0]]}}], hosts=[host("a", "roce")]),
            "providers[0].fabrics[0].measured.pairs[0]: no host 'b' on this fabric",
        ),
        (rack(fabrics=[ROCE | {"measured": "some"}], hosts=[]), "providers[0].fabrics[0].measured: "),
        (
            rack(fabrics=[ROCE], hosts=[host("a", "roce", fabric_ip="10.9.9.9")]),
            "providers[0].hosts[0].fabric_ip: 10.9.9.9 is no address of 10.20.30.0/24",
        ),
        ({"events": [{"event": "machine_lost", "host": "a1"}]}, "events[0].at_s: is missing"),
        ({"events": [{"at_s": 1, "event": "machine_lost", "host": "zz"}]}, "events[0].host: no host 'zz'"),
        ({"events": [{"at_s": 1, "event": "flood"}]}, "events[0].event: one of balance, "),
        ({"events": [{"at_s": 1, "event": "balance", "account": "ana"}]}, "events[0].balance: is missing"),
    ],
)
def test_a_fault_is_named_with_its_path(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(scenario(**change))
    assert any(problem.startswith(line) for problem in caught.value.problems), caught.value.problems
    assert "sk_same" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "5", "a: [", "providers: {}"])
def test_what_is_no_scenario_at_all_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError):
        load_scenario(text)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(scenario(seeds=1, boots=2))
    assert len(caught.value.problems) == 2


def test_boot_may_be_instant() -> None:
    here = market(boot={"seconds": [0, 0]}, settings={"delete_seconds": 0})
    here.order_cluster(
        ANA,
        {
            "pod_name": "now",
            "template_id": scenario()["templates"][0]["id"],
            "executor_uuids": ["a1", "a2"],
            "user_public_key": ["k"],
        },
    )
    here.advance_to(here.now)
    rows = here.list_pods(ANA)
    assert {row["status"] for row in rows} == {"RUNNING"}
    here.delete_cluster(ANA, rows[0]["cluster_id"])
    here.advance_to(here.now)
    assert here.list_pods(ANA) == []


def test_seeds_decide_ids_and_boots() -> None:
    def story(seed: int) -> Any:
        here = market(seed=seed, boot={"seconds": [10, 100]})
        here.order_cluster(
            ANA,
            {
                "pod_name": "x",
                "template_id": scenario()["templates"][0]["id"],
                "executor_uuids": ["a1", "a2"],
                "user_public_key": ["k"],
            },
        )
        return here.list_pods(ANA)

    assert story(1) == story(1)
    assert {row["id"] for row in story(1)}.isdisjoint(row["id"] for row in story(2))
    assert len({row["estimated_ready_seconds"] for row in story(1)}) == 2
