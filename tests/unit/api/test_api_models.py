"""How rows of the service become models."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pulumi_lium.api import ClusterOrder, Node, Offer, Pod, Template, User, short_gpu_type

UTC = timezone.utc
NODE: dict[str, Any] = {
    "id": "n-1",
    "machine_name": "NVIDIA H100 80GB HBM3",
    "gpu_count": 8,
    "available_gpu_count": 8,
    "min_gpu_count_for_rental": None,
    "price_per_gpu": 2.0,
    "status": "active",
    "tier": "secure",
    "executor_ip_address": "192.0.2.11",
    "location": {"country": "United States", "country_code": "US", "city": "Dallas"},
    "specs": {"gpu": {"count": 8, "driver": "570.86.10", "details": [{"name": "NVIDIA H100 80GB HBM3"}]}},
    "effective_download_speed_mbps": 950.0,
    "a_field_of_tomorrow": {"x": 1},
}
POD: dict[str, Any] = {
    "id": "p-1",
    "pod_name": "train",
    "status": "running",
    "ssh_connect_cmd": "ssh root@192.0.2.11 -p 20022",
    "ports_mapping": {"22": 20022, "8000": "20023"},
    "created_at": "2026-11-30T09:00:00Z",
    "price": 16.0,
    "gpu_count": "8",
    "executor": NODE,
    "template": {"id": "t-1", "template_name": "Multi-node cluster", "docker_image": "daturaai/lium-cluster"},
    "removal_scheduled_at": None,
    "cluster_id": "c-1",
    "cluster_node_index": 1,
    "cluster_overlay_ip": "10.42.0.2",
}


def test_node() -> None:
    node = Node.model_validate(NODE)
    assert (node.id, node.gpu_type, node.gpu_model, node.gpu_count) == ("n-1", "H100", "NVIDIA H100 80GB HBM3", 8)
    assert (node.price_per_gpu, node.price_per_hour) == (2.0, 16.0)
    assert (node.country, node.country_code, node.city) == ("United States", "US", "Dallas")
    assert (node.public_ip, node.tier, node.driver_version) == ("192.0.2.11", "secure", "570.86.10")
    assert Node.model_validate(node.model_dump()) == node


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ({"gpu_count": 8.0}, 8),
        ({"gpu_count": "8"}, 8),
        ({"gpu_count": None, "specs": {"gpu": {"count": 4, "details": [1]}}}, 4),
        ({"specs": {"gpu": {"count": None, "details": [{}, {}]}}}, 2),
        ({"specs": {"gpu": {"details": []}}}, 1),
        ({"specs": None}, 1),
        ({"specs": "none"}, 1),
        ({}, 1),
    ],
)
def test_gpu_count(row, count) -> None:
    assert Node.model_validate(row).gpu_count == count


@pytest.mark.parametrize("count", [2.5, True, -1, "eight", "2.5", "inf", "nan", 2**60, 1e300, [], {}])
def test_no_gpu_count(count) -> None:
    with pytest.raises(ValidationError):
        Node.model_validate({"gpu_count": count})


@pytest.mark.parametrize("price", [None, "", "two", True, -1, float("inf"), 1e300, [], {}])
def test_an_unreadable_price_is_unknown_not_free(price) -> None:
    node = Node.model_validate({**NODE, "price_per_gpu": price})
    assert node.price_per_gpu is None
    assert node.price_per_hour is None


def test_a_numeric_string_is_a_number_not_a_repeated_text() -> None:
    assert Node.model_validate({**NODE, "price_per_gpu": "2.0"}).price_per_hour == 16.0


@pytest.mark.parametrize(
    "field", ["tier", "status", "reliability_score", "location", "last_verified_at", "machine_name"]
)
@pytest.mark.parametrize("value", [[], {}, 7.5j, "?", -1, None])
def test_informational_fields_break_nothing(field, value) -> None:
    assert Node.model_validate({**NODE, field: value}).id == "n-1"


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
        ("NVIDIA RTX PRO 6000D", "RTXPRO6000D"),
        ("NVIDIA RTX A6000", "A6000"),
        ("Tesla T4", "T4"),
        ("Some Accelerator", "ACCELERATOR"),
        ("h100", "H100"),
        ("", ""),
        ("  ", ""),
    ],
)
def test_short_gpu_type(model, short) -> None:
    assert short_gpu_type(model) == short


def test_offer() -> None:
    offer = Offer.model_validate(
        {"fabric_id": "f", "fabric_type": "RoCE", "link_rate": "400 Gb/sec", "fabric_measured": True, "node_count": 4.0,
         "nodes": [NODE, {**NODE, "id": "n-2"}, {**NODE, "id": "n-3"}]}
    )  # fmt: skip
    assert (offer.fabric_type, offer.node_count, offer.free_count) == ("roce", 4, 3)
    assert (offer.gpu_type, offer.gpu_model, offer.gpus_per_node) == ("H100", "NVIDIA H100 80GB HBM3", 8)
    assert Offer.model_validate(offer.model_dump()) == offer


def test_offer_defaults() -> None:
    offer = Offer.model_validate({"nodes": None, "fabric_type": None, "node_count": None, "fabric_measured": None})
    assert (offer.fabric_id, offer.fabric_type, offer.fabric_measured) == ("", "infiniband", False)
    assert (offer.node_count, offer.nodes, offer.gpu_type, offer.gpus_per_node) == (0, [], "", 0)
    assert Offer.model_validate({"node_count": 0, "nodes": [NODE]}).node_count == 1
    assert Offer.model_validate({"fabric_measured": "maybe"}).fabric_measured is False


@pytest.mark.parametrize("nodes", ["x", {}, [None], [{"id": 7}], [{"id": ""}], [{}], 0])
def test_offer_with_unreadable_nodes(nodes) -> None:
    with pytest.raises(ValidationError):
        Offer.model_validate({"fabric_id": "f", "nodes": nodes})


def test_pod() -> None:
    pod = Pod.model_validate(POD)
    assert (pod.id, pod.name, pod.status, pod.rank, pod.overlay_ip) == ("p-1", "train", "RUNNING", 1, "10.42.0.2")
    assert (pod.price_per_hour, pod.gpu_count, pod.cluster_id) == (16.0, 8, "c-1")
    assert (pod.ssh_host, pod.ssh_port, pod.ports) == ("192.0.2.11", 20022, {"22": 20022, "8000": 20023})
    assert pod.node is not None
    assert pod.template is not None
    assert (pod.node.gpu_type, pod.template.name) == ("H100", "Multi-node cluster")
    assert pod.created_at == datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
    assert (pod.is_ready, pod.is_billable, pod.is_terminal) == (True, True, False)
    assert Pod.model_validate(pod.model_dump()) == pod


def test_the_least_that_a_pod_can_be() -> None:
    pod = Pod.model_validate({"id": "p-1", "pod_name": None, "executor": None, "status": None})
    assert (pod.name, pod.status, pod.price_per_hour, pod.rank, pod.cluster_id) == ("", "UNKNOWN", None, None, None)
    assert (pod.is_ready, pod.is_billable, pod.is_terminal) == (False, True, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 7}, {"id": None}, {"id": ""}, {"status": 5}, {"cluster_id": 5}, {"pod_name": 5},
        {"cluster_node_index": -1}, {"cluster_node_index": 1.5}, {"cluster_node_index": True},
    ],
)  # fmt: skip
def test_a_pod_whose_decisive_fields_are_wrong(wrong) -> None:
    with pytest.raises(ValidationError):
        Pod.model_validate({**POD, **wrong})


@pytest.mark.parametrize(
    "strange",
    [
        {"executor": 7}, {"executor": {"gpu_count": "x"}}, {"template": []}, {"ports_mapping": []}, {"price": {}},
        {"ports_mapping": {"22": "x"}}, {"created_at": "yesterday"}, {"removal_scheduled_at": 1e300}, {"phase": 3},
        {"estimated_ready_seconds": "soon"}, {"gpu_count": "many"}, {"ssh_connect_cmd": 22}, {"api_key_id": 1},
    ],
)  # fmt: skip
def test_a_strange_detail_keeps_no_pod_out_of_the_listing(strange) -> None:
    assert Pod.model_validate({**POD, **strange}).id == "p-1"


@pytest.mark.parametrize("price", [16, "16.0", 16.0])
def test_price_of_a_pod_as_number_or_text(price) -> None:
    assert Pod.model_validate({**POD, "price": price}).price_per_hour == 16.0


def test_without_a_price_of_its_own_the_machine_s_counts() -> None:
    assert Pod.model_validate({**POD, "price": None}).price_per_hour == 16.0
    assert Pod.model_validate({**POD, "price": 0}).price_per_hour == 0.0


@pytest.mark.parametrize(
    ("status", "billable", "terminal"),
    [
        ("PENDING", False, False), ("RUNNING", True, False), ("REBOOT_PENDING", True, False), ("STARTING", True, False),
        ("CREATION_FAILED", False, True), ("BROKEN", False, True), ("REBOOT_FAILED", True, True),
        ("DELETING", False, True), ("FAILED", False, True), ("STOPPED", False, True), ("ERROR", False, True),
        ("TERMINATED", False, True), ("DELETED", False, True), ("REMOVED", False, True), ("CANCELLED", False, True),
        ("A_STATUS_OF_TOMORROW", True, False),
    ],
)  # fmt: skip
def test_status_classes(status, billable, terminal) -> None:
    pod = Pod.model_validate({"id": "p", "status": f" {status.lower()} "})
    assert (pod.status, pod.is_billable, pod.is_terminal) == (status, billable, terminal)


@pytest.mark.parametrize(
    ("command", "host", "port"),
    [
        ("ssh root@192.0.2.11 -p 20022", "192.0.2.11", 20022),
        ("ssh root@node.example", "node.example", 22),
        ("ssh root@2001:db8::1 -p 22", "2001:db8::1", 22),
        ("ssh -p 20022 root@192.0.2.11", None, None),
        ("ssh root@192.0.2.11 -p 20022; rm -rf /", None, None),
        ("ssh root@192.0.2.11 -o ProxyCommand=x", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_ssh_command(command, host, port) -> None:
    pod = Pod.model_validate({**POD, "ssh_connect_cmd": command})
    assert (pod.ssh_host, pod.ssh_port) == (host, port)


def test_ready_needs_an_ssh_command() -> None:
    assert Pod.model_validate({**POD, "ssh_connect_cmd": None}).is_ready is False
    assert Pod.model_validate({**POD, "status": "PENDING"}).is_ready is False


@pytest.mark.parametrize(
    "text", ["2026-11-30T09:00:00Z", "2026-11-30T09:00:00+00:00", "2026-11-30T09:00:00", "2026-11-30T11:00:00+02:00"]
)
def test_times_become_aware_utc(text) -> None:
    pod = Pod.model_validate({**POD, "created_at": text})
    assert pod.created_at == datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
    assert pod.created_at is not None
    assert pod.created_at.utcoffset() == timedelta(0)


def test_a_time_beyond_the_calendar_is_unknown() -> None:
    assert Pod.model_validate({**POD, "created_at": "0001-01-01T00:00:00+14:00"}).created_at is None


def test_tags_sort_by_number() -> None:
    tags = ["0.0.7", "0.0.10", "latest", "0.0.10-rc1", None, "1.²"]
    ordered = sorted(tags, key=lambda tag: Template(docker_image_tag=tag).tag_order)
    assert ordered == ["latest", None, "0.0.7", "0.0.10", "0.0.10-rc1", "1.²"]
    assert Template(docker_image="daturaai/lium-cluster-x").is_cluster_image
    assert not Template(docker_image="ubuntu").is_cluster_image


def test_user() -> None:
    assert User.model_validate({"id": "u", "balance": None}).balance is None
    assert User.model_validate({"id": "u", "balance": "12.5"}).balance == 12.5
    assert User.model_validate({"id": "u"}).workspace is None


@pytest.mark.parametrize("ports", [2.5, True, "x", -0.5])
def test_order_counts_are_whole(ports) -> None:
    with pytest.raises(ValidationError):
        ClusterOrder(
            pod_name="a", template_id="t", executor_uuids=["a", "b"], user_public_key=["k"], initial_port_count=ports
        )


def test_models_are_immutable() -> None:
    with pytest.raises(ValidationError):
        Pod.model_validate(POD).status = "DELETED"


def test_every_pod_row_of_the_field_cases_is_read() -> None:
    folder = Path(__file__).parents[2] / "field" / "cases"
    stories = [json.loads(path.read_text()) for name in ("api*", "variant*") for path in folder.glob(f"B*/{name}.json")]
    rows = [
        row
        for story in stories
        for step in story.get("steps", [])
        if step["on"] == "GET /pods" and isinstance(step["answer"].get("json"), list)
        for row in step["answer"]["json"]
    ]
    assert len(rows) > 40
    assert [Pod.model_validate(row).id for row in rows] == [row["id"] for row in rows]
