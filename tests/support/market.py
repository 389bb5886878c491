"""A small market for tests, and what a test says most often to it."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.emulator.idempotency import Reply
from pulumi_lium.emulator.market import Market, load_scenario
from pulumi_lium.emulator.refusal import Refusal

START = 1_790_000_000.0
ANA, ANA_READER, ANA_RENTER, ANA_TEAM = "sk_ana", "sk_ana_reader", "sk_ana_renter", "sk_ana_team"
BOB, BOB_TEAM, BILLER = "sk_bob", "sk_bob_team", "sk_biller"
CLUSTER_TEMPLATE = "5d0c6c3b-7a1f-4a53-9c0e-2f7f5b3e9a10"
OTHER_TEMPLATE = "5d0c6c3b-7a1f-4a53-9c0e-2f7f5b3e9a11"
PUBLIC_KEY = "ssh-ed25519 AAAATEST test@example.com"


def host(name: str, fabric: str | None = None, **more: Any) -> dict[str, Any]:
    """A host of 8 H100 at 2 USD per GPU and hour: 16 USD an hour."""
    return {
        "id": name,
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "gpu_count": 8,
        "price_per_gpu": 2.0,
        "public_ip": f"192.0.2.{sum(name.encode()) % 250}",
        **({"fabric": fabric} if fabric else {}),
        **more,
    }


def scenario(**more: Any) -> dict[str, Any]:
    """Hosts a1 to a4 on InfiniBand, r1 to r4 on measured RoCE, and two lone ones, of which `lone` rents by the GPU."""
    return {
        "seed": 1,
        "boot": {"seconds": [30, 30]},
        "accounts": [
            {
                "id": "ana",
                "email": "ana@example.com",
                "balance": 1000.0,
                "keys": [
                    {"key": ANA, "id": "key-ana", "name": "main"},
                    {"key": ANA_READER, "scopes": ["read"]},
                    {"key": ANA_RENTER, "scopes": ["read", "rent"]},
                    {"key": ANA_TEAM, "workspace": "Team"},
                    {"key": BILLER, "scopes": ["billing"]},
                ],
            },
            {"id": "bob", "balance": 1000.0, "keys": [{"key": BOB}, {"key": BOB_TEAM, "workspace": "Team"}]},
        ],
        "templates": [
            {"id": CLUSTER_TEMPLATE, "name": "Cluster", "docker_image": "daturaai/lium-cluster"},
            {"id": OTHER_TEMPLATE, "name": "PyTorch", "docker_image": "daturaai/pytorch"},
        ],
        "providers": [
            {
                "name": "rack",
                "fabrics": [
                    {"name": "ib", "type": "infiniband", "subnet_manager": "0x3"},
                    {"name": "roce", "type": "roce", "segment": "10.20.30.0/24", "measured": "all"},
                ],
                "hosts": [
                    *(host(f"a{i}", "ib") for i in range(1, 5)),
                    *(host(f"r{i}", "roce") for i in range(1, 5)),
                    host("lone", min_gpu_count_for_rental=1),
                    host("whole"),
                ],
            }
        ],
        **more,
    }


def market(**more: Any) -> Market:
    """A market with the scenario above; `more` replaces its top-level parts."""
    return Market(load_scenario(scenario(**more)), START)


def fabric_market(fabrics: list[dict[str, Any]], hosts: list[dict[str, Any]]) -> Market:
    """A market of one provider with these fabrics and hosts."""
    return market(providers=[{"name": "rack", "fabrics": fabrics, "hosts": hosts}])


def order_body(nodes: list[str], **more: Any) -> dict[str, Any]:
    return {
        "pod_name": "train",
        "template_id": CLUSTER_TEMPLATE,
        "executor_uuids": nodes,
        "user_public_key": [PUBLIC_KEY],
        "initial_port_count": None,
        "enable_volume_encryption": True,
        "enable_backups": True,
        **more,
    }


def order(here: Market, nodes: list[str], key: str = ANA, idempotency: str | None = None, **more: Any) -> Reply:
    return here.order_cluster(key, order_body(nodes, **more), idempotency)


def rent(here: Market, name: str, key: str = ANA, **more: Any) -> str:
    """Rent one host; answers the pod's id."""
    body = {"pod_name": "solo", "template_id": OTHER_TEMPLATE, "user_public_key": [PUBLIC_KEY], **more}
    return str(here.rent_host(key, name, body).body["pod_id"])


def members(here: Market, key: str = ANA) -> list[dict[str, Any]]:
    """Listed pods by rank."""
    return sorted(here.list_pods(key), key=lambda row: (row["cluster_id"] or "", row["cluster_node_index"] or 0))


def running(here: Market, nodes: list[str], key: str = ANA, **more: Any) -> list[dict[str, Any]]:
    """Order a cluster and let it start; answers its rows by rank."""
    order(here, nodes, key, **more)
    here.advance_to(here.now + 30)
    return members(here, key)


def balance(here: Market, key: str = ANA) -> float:
    return float(here.me(key)["balance"])


def charged(here: Market, account: str) -> int:
    """The sum of an account's ledger, in millionths of a USD."""
    return sum(round(row["usd"] * 1e6) for row in here.state()["ledger"] if row["account"] == account)


def statuses(here: Market) -> list[str]:
    """The status of each member, by rank."""
    return [row["status"] for row in members(here)]


def remove(here: Market, cluster_id: str, key: str = ANA) -> list[tuple[int, bool, str]]:
    """Deletes a cluster: rank, success and message of each row of the answer."""
    answer = here.delete_cluster(key, cluster_id)
    return [(row["cluster_node_index"], row["success"], row["message"]) for row in answer["pods"]]


def refusal_of(act: Any, *arguments: Any, **named: Any) -> Refusal:
    """The refusal with which an operation ends."""
    with pytest.raises(Refusal) as caught:
        act(*arguments, **named)
    return caught.value
