"""Field cases of the API client: B10, B26, B27, B29."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from pulumi_lium.api import (
    ClusterOrder,
    Conflict,
    LiumApi,
    RedirectRefused,
    RequestsTransport,
    ServerError,
    Settings,
    TransportError,
    UndecodableAnswer,
)
from tests.field.story import CASES, KEY, Story
from tests.support.fake_clock import FakeClock
from tests.support.loopback import LoopbackService, Reply, ok
from tools.emulator import Emulator

B10, B27 = Story("B10"), Story("B27")
CLUSTER = "c1a50000-0000-4000-8000-0000000000a1"
LONGEST_WAIT = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def transport() -> Iterator[RequestsTransport]:
    transport = RequestsTransport()
    yield transport
    transport.close()


def client(base_url: str, transport: RequestsTransport, clock: FakeClock) -> LiumApi:
    return LiumApi(Settings(base_url, SecretStr(KEY)), transport=transport, clock=clock, rng=random.Random(1))


def order_of(story: Story, api: LiumApi) -> ClusterOrder:
    return ClusterOrder(
        pod_name=story.order["name"],
        template_id=api.templates.list()[0].id,
        executor_uuids=[machine["id"] for machine in story.machines()],
        user_public_key=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMP ana@build01"],
    )


def test_b10_an_order_whose_answer_was_lost_is_sent_again_under_one_key(
    emulator: Emulator, transport: RequestsTransport, clock: FakeClock
) -> None:
    B10.play(emulator)
    api = client(emulator.base_url, transport, clock)
    order = order_of(B10, api)
    assert api.pods.list() == []

    with pytest.raises(TransportError) as lost:
        api.clusters.order(order, idempotency_key="key-of-this-order")
    assert lost.value.outcome_unknown is True

    with pytest.raises(Conflict) as running:
        api.clusters.order(order, idempotency_key="key-of-this-order")
    assert (running.value.code, running.value.outcome_unknown) == ("idempotency_in_progress", True)

    answer = api.clusters.order(order, idempotency_key="key-of-this-order")
    assert sorted(answer.pod_ids) == sorted(pod.id for pod in api.pods.list())

    orders = [entry for entry in emulator.journal() if entry["path"].endswith("/executors/cluster/rent")]
    assert [entry["idempotency_key"] for entry in orders] == ["key-of-this-order"] * 3
    assert len(emulator.state()["clusters"]) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", json.loads((CASES / "B26" / "headers.json").read_text()), ids=str)
def test_b26_every_form_of_retry_after_leads_to_a_bounded_wait(
    headers: dict[str, str], status: int, transport: RequestsTransport, clock: FakeClock
) -> None:
    with LoopbackService(Reply(status, b"{}", headers), ok([])) as service:
        assert client(service.base_url, transport, clock).pods.list() == []
    (wait,) = clock.sleeps
    wish = headers.get("Retry-After")
    if wish == "7":
        assert wait == 7.0
    elif wish in ("Fri, 31 Dec 2027 23:59:59 GMT", "99999999999"):
        assert wait == LONGEST_WAIT
    else:
        assert 1.0 <= wait <= 1.5


def test_b27_a_web_page_is_an_error_and_never_an_empty_list(
    emulator: Emulator, transport: RequestsTransport, clock: FakeClock
) -> None:
    B27.play(emulator)
    api = client(emulator.base_url, transport, clock)

    # The 502 is tried again; the page that comes with 200 is an error at once.
    with pytest.raises(UndecodableAnswer, match="web page") as page:
        api.pods.list()
    assert len(clock.sleeps) == 1
    assert page.value.outcome_unknown is False

    with pytest.raises(ServerError, match="web page") as unknown:
        api.clusters.delete(CLUSTER)
    assert unknown.value.outcome_unknown is True
    assert [entry["method"] for entry in emulator.journal()].count("DELETE") == 1

    assert [pod.cluster_id for pod in api.pods.list()] == [CLUSTER, CLUSTER]


def test_b27_a_gateway_that_stays_down_ends_in_a_typed_error(transport: RequestsTransport, clock: FakeClock) -> None:
    first = B27.told["steps"][0]["answer"]
    page = Reply(first["status"], first["raw"].encode(), {"Content-Type": first["content_type"]})
    with LoopbackService(page) as service, pytest.raises(ServerError) as error:
        client(service.base_url, transport, clock).pods.list()
    assert len(service.seen) == 3
    assert error.value.status == 502
    assert "<" not in str(error.value)


@pytest.mark.parametrize(
    "case", json.loads((CASES / "B29" / "redirects.json").read_text()), ids=lambda case: case["on"]
)
def test_b29_the_key_reaches_no_other_origin(case: dict, transport: RequestsTransport, clock: FakeClock) -> None:
    with LoopbackService(ok([])) as other:
        target = case["location"].replace("{other_port}", other.origin.rpartition(":")[2])
        redirect = Reply(case["status"], b"", {"Location": target})
        with LoopbackService(redirect, ok([])) as service:
            api = client(service.base_url, transport, clock)
            if target.startswith("/"):
                assert api.pods.list() == []
                assert [seen.path for seen in service.seen] == ["/api/pods", "/pods/"]
            else:
                with pytest.raises(RedirectRefused, match="is not sent there"):
                    send(case["on"], api)
                assert len(service.seen) == 1
    assert other.seen == []


def send(call: str, api: LiumApi) -> None:
    if call == "GET /pods":
        api.pods.list()
        return
    assert call == "POST /executors/cluster/rent"
    order = ClusterOrder(
        pod_name="a", template_id="t", executor_uuids=["n-1", "n-2"], user_public_key=["ssh-ed25519 A"]
    )
    api.clusters.order(order, idempotency_key="k")
