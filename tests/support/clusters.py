"""Programs and markets for tests that run the real engine, and what should bill afterwards."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from pulumi_lium.api import ClusterOrder, LiumApi, Settings
from tests.support.pulumi_stack import Outcome
from tools.emulator import ControlPlane, Emulator

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ana@example"
ORDER = "POST /executors/cluster/rent"


def program(*clusters: str, exports: tuple[str, ...] = ("cluster_id", "status", "price_per_hour", "hostfile")) -> str:
    """The text of a `__main__.py` that declares these clusters (see `cluster`) and exports outputs of the first."""
    lines = ["import pulumi", "import pulumi_lium as lium", *clusters]
    lines += [f"pulumi.export({name!r}, first.{name})" for name in exports]
    return "\n".join(lines) + "\n"


def cluster(name: str = "train", variable: str = "first", **inputs: Any) -> str:
    """One `LiumCluster` of two H100 nodes, with these inputs over it; None leaves one out."""
    wanted = {"nodes": 2, "gpu_type": "H100", "ssh_public_keys": [PUBLIC_KEY], **inputs}
    given = ", ".join(f"{key}={value!r}" for key, value in wanted.items() if value is not None)
    return f"{variable} = lium.LiumCluster({name!r}, {given})"


def unmeasured(hosts: list[str]) -> dict[str, Any]:
    """A market whose only fabric is these hosts on RoCE, of which no pair is measured yet."""
    scenario = market(hosts=len(hosts))
    (provider,) = scenario["providers"]
    provider["fabrics"] = [{"name": "roce0", "type": "roce", "segment": "10.77.0.0/24", "link_rate": "200 Gb/sec"}]
    for host, name in zip(provider["hosts"], hosts, strict=True):
        host.update(id=name, fabric="roce0")
    return scenario


def market(
    *,
    hosts: int = 4,
    fabrics: int = 1,
    boot: tuple[float, float] = (0, 0),
    delete_seconds: float = 0,
    seed: int = 7,
    **settings: Any,
) -> dict[str, Any]:
    """A scenario: InfiniBand fabrics of H100 machines at $16.00 an hour each, all free."""
    return {
        "seed": seed,
        "boot": {"seconds": list(boot)},
        "settings": {"delete_seconds": delete_seconds, **settings},
        "accounts": [
            {
                "id": "owner",
                "email": "owner@example.com",
                "balance": 100000.0,
                "keys": [{"key": "sk_emulator_owner", "scopes": ["read", "rent", "manage"]}],
            }
        ],
        "templates": [{"name": "Multi-node", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"}],
        "providers": [
            {
                "name": f"site-{fabric}",
                "location": {"country": "Norway", "country_code": "NO", "city": "Oslo"},
                "fabrics": [
                    {"name": "ib", "type": "infiniband", "subnet_manager": f"0x{fabric:x}", "link_rate": "400 Gb/sec"}
                ],
                "hosts": [
                    {
                        "id": f"{fabric:08x}-0000-4000-8000-{host:012x}",
                        "gpu_model": "NVIDIA H100 80GB HBM3",
                        "gpu_count": 8,
                        "price_per_gpu": 2.0,
                        "public_ip": f"192.0.2.{fabric * 8 + host + 1}",
                        "fabric": "ib",
                    }
                    for host in range(hosts)
                ],
            }
            for fabric in range(fabrics)
        ],
    }


def bills(emulator: ControlPlane, nodes: int) -> None:
    """Asserts that exactly this many nodes bill now."""
    billing = emulator.billing()
    assert len(billing["pods"]) == nodes, billing
    assert billing["price_per_hour"] == 16.0 * nodes


def live(emulator: ControlPlane) -> list[dict[str, Any]]:
    """Pods that are not gone, by cluster and rank."""
    pods = [pod for pod in emulator.state()["pods"] if not pod.get("gone_at")]
    return sorted(pods, key=lambda pod: (pod["cluster_id"] or "", pod["cluster_node_index"] or 0))


def orders(emulator: ControlPlane) -> list[dict[str, Any]]:
    """The orders that the service got, in order."""
    return [row for row in emulator.journal() if f"{row['method']} {row['path'].removeprefix('/api')}" == ORDER]


def said(outcome: Outcome) -> str:
    """All that was printed, with line breaks and indents folded."""
    return " ".join(outcome.text.split())


def lost_cluster(emulator: Emulator, name: str) -> str:
    """Orders two nodes at $32.00 an hour that no journal and no state knows: the cluster's id."""
    api = LiumApi(Settings(emulator.base_url, SecretStr("sk_emulator_owner")))
    before = {str(pod["cluster_id"]) for pod in live(emulator)}
    free = [machine.id for machine in api.offers.list()[0].nodes if machine.available_gpu_count]
    body = ClusterOrder(
        pod_name=name,
        template_id=api.templates.list()[0].id,
        executor_uuids=sorted(free)[:2],
        user_public_key=[PUBLIC_KEY],
    )
    api.clusters.order(body, idempotency_key=f"key-of-{name}")
    (cluster_id,) = {str(pod["cluster_id"]) for pod in live(emulator)} - before
    return cluster_id
