"""What each call puts on the wire, and that no public method is missing from this table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from typing import Any, NamedTuple

import pytest

from pulumi_lium.api import (
    ClusterOrder,
    ClusterRemoval,
    InvalidArgument,
    LiumApi,
    OrderAnswer,
    PodEvent,
    ServiceVersion,
    SshKey,
)
from tests.support.loopback import ok

ORDER = ClusterOrder(
    pod_name="train", template_id="t-1", executor_uuids=["n-1", "n-2"], user_public_key=["ssh-ed25519 AAAA a@b"]
)
AT = datetime(2026, 11, 30, 16, 0, tzinfo=timezone(timedelta(hours=1)))


class Call(NamedTuple):
    run: Callable[[LiumApi], Any]
    request: str
    body: Any
    answer: Any
    result: Callable[[Any], bool]


CALLS = {
    "offers.list": Call(
        lambda api: api.offers.list(),
        "GET /api/executors/infiniband-clusters",
        None,
        [{"fabric_id": "f", "nodes": [{"id": "n-1"}]}],
        lambda offers: [offer.fabric_id for offer in offers] == ["f"] and offers[0].nodes[0].id == "n-1",
    ),
    "clusters.order": Call(
        lambda api: api.clusters.order(ORDER, idempotency_key="k-1"),
        "POST /api/executors/cluster/rent",
        {
            "pod_name": "train",
            "template_id": "t-1",
            "executor_uuids": ["n-1", "n-2"],
            "user_public_key": ["ssh-ed25519 AAAA a@b"],
            "initial_port_count": None,
            "enable_volume_encryption": True,
            "enable_backups": True,
        },
        {"success": True, "pod_ids": ["p-1", "p-2"]},
        lambda answer: answer == OrderAnswer(pod_ids=["p-1", "p-2"], replayed=False),
    ),
    "clusters.delete": Call(
        lambda api: api.clusters.delete("c/1"),
        "DELETE /api/clusters/c%2F1",
        None,
        {"success": False, "pods": [{"pod_id": "p-1", "cluster_node_index": 0, "success": False, "message": "no"}]},
        lambda removal: isinstance(removal, ClusterRemoval) and [row.message for row in removal.refused] == ["no"],
    ),
    "pods.list": Call(
        lambda api: api.pods.list(),
        "GET /api/pods",
        None,
        [{"id": "p-1", "status": "running"}],
        lambda pods: [pod.status for pod in pods] == ["RUNNING"],
    ),
    "pods.get": Call(
        lambda api: api.pods.get("p 1"),
        "GET /api/pods/p%201",
        None,
        {"id": "p 1", "pod_name": "train"},
        lambda pod: (pod.id, pod.name) == ("p 1", "train"),
    ),
    "pods.events": Call(
        lambda api: api.pods.events("p-1"),
        "GET /api/pods/p-1/events",
        None,
        [{"event_type": "pod-create", "to_status": "PENDING"}],
        lambda events: events == [PodEvent(event_type="pod-create", to_status="PENDING")],
    ),
    "pods.delete": Call(
        lambda api: api.pods.delete("p-1"),
        "DELETE /api/pods/p-1",
        None,
        {"success": True},
        lambda nothing: nothing is None,
    ),
    "pods.schedule_removal": Call(
        lambda api: api.pods.schedule_removal("p-1", AT),
        "POST /api/pods/p-1/schedule-removal",
        {"removal_scheduled_at": "2026-11-30T15:00:00+00:00"},
        {"success": True},
        lambda nothing: nothing is None,
    ),
    "pods.cancel_removal": Call(
        lambda api: api.pods.cancel_removal("p-1"),
        "DELETE /api/pods/p-1/schedule-removal",
        None,
        {"success": True},
        lambda nothing: nothing is None,
    ),
    "templates.list": Call(
        lambda api: api.templates.list(),
        "GET /api/templates",
        None,
        [{"id": "t-1", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"}],
        lambda templates: [template.tag_order for template in templates] == [(0, 0, 10)],
    ),
    "ssh_keys.list": Call(
        lambda api: api.ssh_keys.list(),
        "GET /api/ssh-keys",
        None,
        [{"id": "s-1", "name": "ana", "public_key": "ssh-ed25519 AAAA"}],
        lambda keys: [key.name for key in keys] == ["ana"],
    ),
    "ssh_keys.create": Call(
        lambda api: api.ssh_keys.create("ana", "ssh-ed25519 AAAA"),
        "POST /api/ssh-keys",
        {"name": "ana", "public_key": "ssh-ed25519 AAAA"},
        {"id": "s-1"},
        lambda key: key == SshKey(id="s-1", name="ana", public_key="ssh-ed25519 AAAA"),
    ),
    "service.version": Call(
        lambda api: api.service.version(),
        "GET /api/version",
        None,
        {"version": "2026.11.3", "features": ["rent_idempotency", 7]},
        lambda found: found == ServiceVersion(version="2026.11.3", features=frozenset({"rent_idempotency"})),
    ),
    "users.me": Call(
        lambda api: api.users.me(),
        "GET /api/users/me",
        None,
        {"id": "u-1", "balance": 412.5, "workspace": {"id": "w-1", "name": "Research"}},
        lambda user: user.balance == 412.5 and user.workspace.name == "Research",
    ),
}
NOUNS = ("offers", "clusters", "pods", "templates", "ssh_keys", "service", "users")


def test_every_public_method_is_in_the_table(connect) -> None:
    api = connect("http://127.0.0.1:9/api")
    nouns = {name: value for name, value in vars(api).items() if type(value).__name__.endswith("Client")}
    assert set(nouns) == set(NOUNS)
    methods = {
        f"{noun}.{method}"
        for noun, client in nouns.items()
        for method, function in vars(type(client)).items()
        if callable(function) and not method.startswith("_")
    }
    assert methods == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_request_and_result(name: str, serve, connect) -> None:
    call = CALLS[name]
    service = serve(ok(call.answer))
    assert call.result(call.run(connect(service)))
    (seen,) = service.seen
    assert f"{seen.method} {seen.path}" == call.request
    assert seen.document == call.body
    assert seen.headers["x-api-key"] == "sk_test_0123456789abcdef"
    assert seen.headers["x-source"] == "sdk"
    assert seen.headers["x-pulumi-lium-version"] == version("pulumi-lium")
    assert seen.headers.get("idempotency-key") == ("k-1" if name == "clusters.order" else None)
    assert ("content-type" in seen.headers) == (call.body is not None)
    assert "authorization" not in seen.headers


def test_a_replayed_order_is_told(serve, connect) -> None:
    service = serve(ok({"pod_ids": ["p-1", "p-2"]}, Idempotent_Replayed="true"))
    assert connect(service).clusters.order(ORDER, idempotency_key="k-1").replayed is True


def test_a_whole_float_goes_out_as_a_whole_number(serve, connect) -> None:
    service = serve(ok({}))
    order = ORDER.model_copy(
        update=ClusterOrder.model_validate({**ORDER.model_dump(), "initial_port_count": 5.0}).__dict__
    )
    connect(service).clusters.order(order, idempotency_key="k-1")
    assert b'"initial_port_count": 5,' in service.seen[0].body


@pytest.mark.parametrize(
    ("change", "key", "named"),
    [
        ({"pod_name": ""}, "k", "pod_name"),
        ({"template_id": ""}, "k", "template_id"),
        ({"executor_uuids": ["n-1"]}, "k", "executor_uuids names fewer than two"),
        ({"executor_uuids": ["n-1", "n-1"]}, "k", "executor_uuids names a machine twice"),
        ({"executor_uuids": ["n-1", ""]}, "k", "executor_uuids has an empty id"),
        ({"user_public_key": [" "]}, "k", "user_public_key"),
        ({}, "", "idempotency_key"),
        ({}, "a\r\nX-Evil: 1", "idempotency_key"),
    ],
)
def test_a_wrong_order_is_not_sent(change, key, named, serve, connect) -> None:
    service = serve(ok({}))
    with pytest.raises(InvalidArgument, match=named) as caught:
        connect(service).clusters.order(ORDER.model_copy(update=change), idempotency_key=key)
    assert service.seen == []
    assert caught.value.outcome_unknown is False


@pytest.mark.parametrize("bad", ["", "  ", ".", "..", None, 7])
@pytest.mark.parametrize(
    "call",
    [
        lambda api, bad: api.clusters.delete(bad),
        lambda api, bad: api.pods.delete(bad),
        lambda api, bad: api.pods.get(bad),
        lambda api, bad: api.pods.cancel_removal(bad),
    ],
)
def test_no_call_with_what_is_no_id(call, bad, serve, connect) -> None:
    service = serve(ok({}))
    with pytest.raises(InvalidArgument, match="_id"):
        call(connect(service), bad)
    assert service.seen == []


def test_a_removal_time_without_zone_is_refused(serve, connect) -> None:
    service = serve(ok({}))
    with pytest.raises(InvalidArgument, match="time zone"):
        connect(service).pods.schedule_removal("p-1", datetime(2026, 11, 30))
    assert service.seen == []


def test_one_client_serves_several_threads(serve, connect) -> None:
    service = serve(lambda seen: ok({"id": seen.path.rsplit("/", 1)[1]}))
    api, wrong = connect(service), []

    def work(thread: int) -> None:
        for number in range(25):
            pod_id = f"{thread}-{number}"
            if api.pods.get(pod_id).id != pod_id:
                wrong.append(pod_id)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(service.seen) == 100


def test_the_bodies_are_compact_json_of_the_contract(serve, connect) -> None:
    service = serve(ok({}))
    connect(service).ssh_keys.create("Zoë", "ssh-ed25519 AAAA")
    assert json.loads(service.seen[0].body) == {"name": "Zoë", "public_key": "ssh-ed25519 AAAA"}
