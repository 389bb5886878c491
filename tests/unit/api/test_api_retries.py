"""Which call is sent again, on what, and after how long."""

from __future__ import annotations

import pytest

from pulumi_lium.api import Conflict, LiumError, RateLimited, ServerError, TransportError
from tests.support.loopback import Drop, ok, page
from tests.unit.api.test_api_requests import AT, CALLS, ORDER

LIMITED = ok({"error": {"code": "rate_limited"}}, 429)
BROKEN = ok({}, 503)

READS = ["offers.list", "pods.list", "pods.get", "templates.list", "ssh_keys.list", "service.version", "users.me"]
LIKE_READS = [*READS, "pods.schedule_removal"]
WRITES = ["clusters.order", "clusters.delete", "pods.delete", "pods.cancel_removal", "ssh_keys.create"]


def test_the_lists_above_are_complete() -> None:
    assert {*LIKE_READS, *WRITES, "pods.events"} == set(CALLS)


@pytest.mark.parametrize("failure", [LIMITED, BROKEN, page(502), Drop()], ids=["429", "503", "502 page", "drop"])
@pytest.mark.parametrize("name", LIKE_READS)
def test_reads_survive_two_failures(name, failure, serve, connect, clock) -> None:
    service = serve(failure, failure, ok(CALLS[name].answer))
    assert CALLS[name].result(CALLS[name].run(connect(service)))
    assert len(service.seen) == 3
    first, second = clock.sleeps
    assert 1.0 <= first <= 1.5
    assert 2.0 <= second <= 2.5


@pytest.mark.parametrize(("failure", "kind"), [(LIMITED, RateLimited), (BROKEN, ServerError), (Drop(), TransportError)])
@pytest.mark.parametrize("name", LIKE_READS)
def test_reads_give_up_after_three(name, failure, kind, serve, connect, clock) -> None:
    service = serve(failure)
    with pytest.raises(kind) as caught:
        CALLS[name].run(connect(service))
    assert len(service.seen) == 3
    assert len(clock.sleeps) == 2
    assert caught.value.outcome_unknown is (name == "pods.schedule_removal")


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_sent_again_on_429_alike(name, serve, connect) -> None:
    service = serve(LIMITED, LIMITED, ok(CALLS[name].answer))
    assert CALLS[name].result(CALLS[name].run(connect(service)))
    assert len(service.seen) == 3
    assert len({(seen.method, seen.path, seen.body, seen.headers.get("idempotency-key")) for seen in service.seen}) == 1


@pytest.mark.parametrize(
    ("failure", "kind"), [(BROKEN, ServerError), (page(502), ServerError), (Drop(), TransportError)]
)
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_sent_once_on_anything_else(name, failure, kind, serve, connect, clock) -> None:
    service = serve(failure)
    with pytest.raises(kind) as caught:
        CALLS[name].run(connect(service))
    assert len(service.seen) == 1
    assert clock.sleeps == []
    assert caught.value.outcome_unknown is True
    assert "may have been carried out" in str(caught.value)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_limited_three_times_has_no_known_outcome(name, serve, connect) -> None:
    service = serve(LIMITED)
    with pytest.raises(RateLimited) as caught:
        CALLS[name].run(connect(service))
    assert len(service.seen) == 3
    assert caught.value.outcome_unknown is True


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 422])
@pytest.mark.parametrize("name", ["pods.list", *WRITES])
def test_refusals_are_final(name, status, serve, connect) -> None:
    service = serve(ok({"error": {"code": "x"}}, status))
    with pytest.raises(LiumError) as caught:
        CALLS[name].run(connect(service))
    assert len(service.seen) == 1
    assert caught.value.status == status
    assert caught.value.outcome_unknown is False


@pytest.mark.parametrize("code", ["idempotency_in_progress", "idempotency_outcome_unknown"])
def test_an_unsettled_order_is_not_a_refusal(code, serve, connect) -> None:
    service = serve(ok({"error": {"code": code}}, 409))
    with pytest.raises(Conflict) as caught:
        connect(service).clusters.order(ORDER, idempotency_key="k-1")
    assert caught.value.outcome_unknown is True
    assert len(service.seen) == 1


@pytest.mark.parametrize("failure", [LIMITED, BROKEN, Drop()])
def test_events_are_asked_for_once(failure, serve, connect) -> None:
    service = serve(failure)
    with pytest.raises(LiumError):
        connect(service).pods.events("p-1")
    assert len(service.seen) == 1


def test_events_of_an_unknown_pod_are_none(serve, connect) -> None:
    assert connect(serve(ok({}, 404))).pods.events("p-1") == []


def test_a_service_that_is_not_there_has_an_outcome(connect, serve) -> None:
    service = serve()
    gone = service.base_url
    service.__exit__(None, None, None)
    with pytest.raises(TransportError, match="cannot be reached") as caught:
        connect(gone).clusters.order(ORDER, idempotency_key="k-1")
    assert caught.value.sent is False
    assert caught.value.outcome_unknown is False


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed_where_it_is_longer(status, serve, connect, clock) -> None:
    service = serve(ok({}, status, Retry_After="7"), ok({}, status, Retry_After="0"), ok([]))
    connect(service).pods.list()
    assert clock.sleeps[0] == 7.0
    assert 2.0 <= clock.sleeps[1] <= 2.5


def test_a_scheduled_removal_keeps_its_time_over_attempts(serve, connect) -> None:
    service = serve(BROKEN, Drop(), ok({"success": True}))
    connect(service).pods.schedule_removal("p-1", AT)
    assert [seen.document for seen in service.seen] == [{"removal_scheduled_at": "2026-11-30T15:00:00+00:00"}] * 3
