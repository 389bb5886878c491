"""The SDK in process: orders, lost answers, waits and removals (contract 5.3 to 5.8, 8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lium.sdk import (
    Cluster,
    ClusterNotListedError,
    Lium,
    LiumAuthError,
    LiumError,
    LiumNotFoundError,
    LiumPermissionError,
    LiumServerError,
    PodStartError,
)

from tests.conformance.client import requests, scenario
from tools.emulator import Emulator

ORDER = "POST /executors/cluster/rent"
LIST = "GET /pods"
NO_REPLAYS = {"settings": {"idempotency": False}}
Sdk = Callable[..., Lium]


def order(lium: Lium, name: str = "job", *, nodes: int = 2, wait: bool = False, timeout: int = 900) -> Cluster:
    """Order the cheapest machines of the first fabric."""
    offer = lium.clusters()[0]
    cheapest = [node.id for node in offer.cheapest(nodes)]
    return lium.up_cluster(cheapest, name=name, wait=wait, timeout=timeout)


def orders(emulator: Emulator) -> list[dict[str, object]]:
    return [row for row in emulator.journal() if row["path"] == "/executors/cluster/rent"]


def clusters(emulator: Emulator) -> int:
    return len(emulator.state()["clusters"])


def test_an_offer_as_the_client_reads_it(virtual_emulator: Emulator, sdk: Sdk) -> None:
    offer = sdk().clusters()[0]
    assert (offer.gpu_type, offer.gpus_per_node, offer.free_count, offer.node_count) == ("H100", 8, 4, 4)
    assert offer.price_per_node_hour == min(node.price_per_hour for node in offer.nodes)
    prices = [node.price_per_hour for node in offer.cheapest(3)]
    assert prices == sorted(node.price_per_hour for node in offer.nodes)[:3]
    with pytest.raises(ValueError, match="Only 4 of 4"):
        offer.cheapest(5)


def test_the_newest_cluster_template_is_taken(virtual_emulator: Emulator, sdk: Sdk) -> None:
    template = sdk().cluster_template()
    assert (template.docker_image, template.docker_image_tag) == ("daturaai/lium-cluster", "0.0.10")


def test_an_order_is_followed_until_every_member_runs(virtual_emulator: Emulator, sdk: Sdk) -> None:
    cluster = order(sdk(), wait=True)
    assert (cluster.status, cluster.size, cluster.master_addr) == ("RUNNING", 2, "10.42.0.1")
    assert [member.ssh_cmd is not None for member in cluster.pods] == [True, True]
    assert {pod["status"] for pod in virtual_emulator.state()["pods"]} == {"RUNNING"}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("drop_after_commit", {}),
        ("not_json", {}),
        ("status", {"code": 504, "commit": True}),
        ("status", {"code": 500, "commit": True}),
        ("status", {"code": 200, "body": "", "commit": True}),
    ],
)
@pytest.mark.parametrize("replays", [True, False])
def test_a_lost_answer_ends_in_exactly_one_cluster(
    virtual_emulator: Emulator, sdk: Sdk, kind: str, fields: dict[str, object], replays: bool
) -> None:
    virtual_emulator.reset(scenario() if replays else scenario(**NO_REPLAYS))
    virtual_emulator.fault(ORDER, kind, **fields)
    cluster = order(sdk())
    assert {pod["cluster_id"] for pod in virtual_emulator.state()["pods"]} == {cluster.id}
    sent = orders(virtual_emulator)
    assert len(sent) == (2 if replays else 1)
    assert len({row["idempotency_key"] for row in sent}) == 1
    assert [row["committed"] for row in sent][:1] == [True]
    assert not any(row["committed"] for row in sent[1:])


@pytest.mark.parametrize("kind", ["drop_before_commit", "refused"])
def test_an_order_that_got_lost_on_its_way_is_made_by_the_resend(
    virtual_emulator: Emulator, sdk: Sdk, kind: str
) -> None:
    virtual_emulator.fault(ORDER, kind)
    order(sdk())
    assert [row["committed"] for row in orders(virtual_emulator)] == [False, True]
    assert clusters(virtual_emulator) == 1


def test_nothing_found_after_a_lost_order_is_no_invitation_to_retry(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.reset(scenario(**NO_REPLAYS))
    virtual_emulator.fault(ORDER, "drop_before_commit")
    with pytest.raises(ClusterNotListedError) as caught:
        order(sdk())
    assert caught.value.confirmed is False
    assert requests(virtual_emulator)[-4:] == ["GET /version", LIST, LIST, LIST]


def test_an_older_cluster_of_the_same_name_is_not_handed_back(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.reset(scenario(**NO_REPLAYS))
    lium = sdk()
    older = order(lium)
    virtual_emulator.fault(ORDER, "status", code=504, commit=True)
    newer = order(lium)
    assert newer.id != older.id
    assert clusters(virtual_emulator) == 2


def test_a_failing_snapshot_keeps_the_order_back(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "status", code=503, times=3)
    with pytest.raises(LiumServerError):
        order(sdk())
    assert requests(virtual_emulator)[-3:] == [LIST] * 3
    assert orders(virtual_emulator) == []


def test_a_lagging_listing_is_asked_again(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "stale_list", after=1, n=2)
    cluster = order(sdk())
    assert cluster.size == 2
    assert requests(virtual_emulator)[-3:] == [LIST] * 3


def test_a_listing_that_stays_short_names_what_was_confirmed(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "hide_member", rank=0, times=0)
    with pytest.raises(ClusterNotListedError) as caught:
        order(sdk())
    assert caught.value.confirmed is True
    rented = {pod["id"]: pod["cluster_node_index"] for pod in virtual_emulator.state()["pods"]}
    assert set(caught.value.pod_ids) == set(rented)
    assert [rented[pod] for pod in caught.value.listed] == [1]


def test_a_listing_that_fails_after_the_order_is_tried_three_times(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "status", code=503, after=1, times=0)
    with pytest.raises(ClusterNotListedError) as caught:
        order(sdk())
    assert caught.value.confirmed is True
    assert len(virtual_emulator.state()["pods"]) == 2


def test_rate_limits_are_waited_out_with_the_same_key(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(ORDER, "status", code=429, times=2)
    order(sdk())
    sent = orders(virtual_emulator)
    assert [row["status"] for row in sent] == [429, 429, 200]
    assert len({row["idempotency_key"] for row in sent}) == 1


def test_refusals_are_definite(virtual_emulator: Emulator, sdk: Sdk) -> None:
    lium = sdk()
    fabrics = [offer for offer in lium.clusters() if offer.fabric_type == "infiniband"]
    mixed = [fabrics[0].nodes[0].id, fabrics[1].nodes[0].id]
    foreign = next(t.id for t in lium.templates() if not t.docker_image.startswith("daturaai/lium-cluster"))
    whole = [node.id for node in fabrics[0].nodes[:2]]
    for machines, template in ((mixed, None), (whole, foreign), ([whole[0], "no-such-machine"], None)):
        with pytest.raises(LiumError):
            lium.up_cluster(machines, name="job", template_id=template)
        assert requests(virtual_emulator)[-1] == ORDER, "a definite refusal is followed by no lookup"
    assert virtual_emulator.state()["pods"] == []


def test_a_machine_that_refuses_late_leaves_nothing_rented(virtual_emulator: Emulator, sdk: Sdk) -> None:
    lium = sdk()
    host = lium.clusters()[0].cheapest(2)[1].id
    virtual_emulator.event("refuse_order", host=host)
    with pytest.raises(LiumError):
        order(lium)
    assert lium.ps() == []
    assert lium.clusters()[0].free_count == 4


def test_a_member_that_fails_ends_the_wait(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    with pytest.raises(PodStartError) as caught:
        order(sdk(), wait=True)
    assert caught.value.status == "CREATION_FAILED"
    statuses = {pod["cluster_node_index"]: pod["status"] for pod in virtual_emulator.state()["pods"]}
    assert statuses[1] == "CREATION_FAILED"
    assert statuses[0] in ("PENDING", "RUNNING"), "the others are not rolled back"


def test_a_member_that_vanishes_ends_the_wait(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "hide_member", rank=1, after=2)
    with pytest.raises(PodStartError, match="vanished"):
        order(sdk(), wait=True)


def test_a_stuck_member_is_named_at_the_deadline(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.event("pod_stuck", rank=1)
    with pytest.raises(TimeoutError, match="job=PENDING"):
        order(sdk(), wait=True, timeout=120)


def test_a_listing_that_fails_meanwhile_is_outlived(virtual_emulator: Emulator, sdk: Sdk) -> None:
    virtual_emulator.fault(LIST, "status", code=503, after=3, times=6)
    assert order(sdk(), wait=True).status == "RUNNING"


def test_removal_is_one_call_and_then_asynchronous(virtual_emulator: Emulator, sdk: Sdk) -> None:
    lium = sdk()
    cluster = order(lium, wait=True)
    before = len(virtual_emulator.journal())
    rows = lium.rm_cluster(cluster)
    assert [(row["node_rank"], row["success"], row["message"]) for row in rows] == [
        (0, True, "Pod deletion started"),
        (1, True, "Pod deletion started"),
    ]
    assert requests(virtual_emulator)[before:] == [f"DELETE /clusters/{cluster.id}"]
    assert {pod.status for pod in lium.ps()} == {"DELETING"}
    again = lium.rm_cluster(cluster)
    assert {row["message"] for row in again} == {"Pod deletion is in progress"}
    virtual_emulator.advance(60)
    assert lium.ps() == []
    with pytest.raises(LiumNotFoundError):
        lium.rm_cluster(cluster)


def test_a_cluster_of_another_account(virtual_emulator: Emulator, sdk: Sdk) -> None:
    cluster = order(sdk())
    with pytest.raises(LiumPermissionError):
        sdk("sk_emulator_other").rm_cluster(cluster)
    with pytest.raises(LiumNotFoundError):
        sdk("sk_emulator_research").rm_cluster(cluster)
    assert {pod["status"] for pod in virtual_emulator.state()["pods"]} == {"PENDING"}


def test_a_wrong_key(virtual_emulator: Emulator, sdk: Sdk) -> None:
    with pytest.raises(LiumAuthError):
        sdk("sk_nobody").ps()


@pytest.mark.parametrize("code", [409, 404, 403, 500])
def test_a_removal_that_is_refused_is_sent_once(virtual_emulator: Emulator, sdk: Sdk, code: int) -> None:
    lium = sdk()
    cluster = order(lium)
    virtual_emulator.fault("DELETE /clusters/*", "status", code=code)
    with pytest.raises(LiumError):
        lium.rm_cluster(cluster)
    deletes = [call for call in requests(virtual_emulator) if call.startswith("DELETE")]
    assert len(deletes) == 1


def test_billing_is_per_node_and_second(virtual_emulator: Emulator, sdk: Sdk) -> None:
    lium = sdk()
    before = lium.balance()
    cluster = order(lium, wait=True)
    virtual_emulator.advance(3600)
    lium.rm_cluster(cluster)
    virtual_emulator.advance(60)
    assert lium.ps() == []
    spent = before - lium.balance()
    price = sum(pod["price"] for pod in virtual_emulator.state()["pods"])
    # An hour, what the wait took beyond the boot, and the removal: under a minute and a half more.
    assert price <= spent < price * (1 + 90 / 3600)
    assert sum(row["usd"] for row in virtual_emulator.state()["ledger"]) == pytest.approx(spent)
