"""The API key goes to the origin that was configured, and nowhere else."""

from __future__ import annotations

import pytest

from pulumi_lium.api import LiumError, RedirectRefused, UndecodableAnswer
from pulumi_lium.api._redirect import next_url
from pulumi_lium.api._scrub import Scrubber
from tests.support.loopback import Reply, ok
from tests.unit.api.conftest import KEY
from tests.unit.api.test_api_requests import CALLS, ORDER


def to(location: str, status: int = 302) -> Reply:
    return Reply(status, b"", {"Location": location})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/api/pods/", "pods/", "{origin}/api/pods/", "//127.0.0.1:{port}/api/pods/"])
def test_within_the_origin_a_read_follows(status, location, serve, connect) -> None:
    service = serve(lambda seen: ok([{"id": "p"}]) if seen.path.endswith("/pods/") else to(target, status))
    target = location.format(origin=service.origin, port=service.origin.rpartition(":")[2])
    assert [pod.id for pod in connect(service).pods.list()] == ["p"]
    assert [seen.headers["x-api-key"] for seen in service.seen] == [KEY, KEY]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("name", CALLS)
def test_no_call_reaches_another_port(name, status, serve, connect) -> None:
    other = serve(ok([]))
    service = serve(to(f"{other.origin}/api/pods?x=1", status))
    with pytest.raises(RedirectRefused) as caught:
        CALLS[name].run(connect(service))
    assert other.seen == []
    assert len(service.seen) == 1
    text = str(caught.value)
    assert service.origin in text
    assert other.origin in text
    assert "LIUM_BASE_URL" in text
    is_write = CALLS[name].request.split()[0] != "GET"
    # 307 and 308 are answered before anything is done; after the others the write may have been.
    assert caught.value.outcome_unknown is (is_write and status in (301, 302, 303))


@pytest.mark.parametrize(
    "location",
    [
        "http://elsewhere.example/api",
        "https://{host}/api",
        "http://user:secret@{host}/api",
        "http://{host}@elsewhere.example/api",
        "http://elsewhere.example\\@{host}/api",
        "http:\\\\elsewhere.example/api",
        "\\\\elsewhere.example/api",
        "//elsewhere.example/api",
        "http://{host}.elsewhere.example/",
        "http://[::1/api",
        "http://{host}:99999999/",
        "http://127.0.0.1:port/",
        "http://127.0.0.1/api",
        "ftp://{host}/api",
        "javascript:alert(1)",
        "http://\u0131.example/",
        "/api/pods\u0000",
        " /api/pods x",
        "",
    ],
)
def test_disguised_targets(location, serve) -> None:
    service = serve()
    url, host = f"{service.base_url}/pods", service.origin.removeprefix("http://")
    with pytest.raises(RedirectRefused) as caught:
        next_url(url, location.format(host=host), Scrubber(KEY))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "reached"),
    [
        ("///elsewhere.example/api", "/elsewhere.example/api"),
        ("/\t", None),
        ("/api//elsewhere.example", "/api//elsewhere.example"),
        ("?x=http://elsewhere.example", "/api/pods?x=http://elsewhere.example"),
        ("#elsewhere", "/api/pods"),
        ("HTTP://{host}/x", "/x"),
        ("http://{host}", "/"),
    ],
)
def test_targets_on_our_own_origin(location, reached, serve) -> None:
    service = serve()
    host = service.origin.removeprefix("http://")
    if reached is None:
        with pytest.raises(RedirectRefused):
            next_url(f"{service.base_url}/pods", location, Scrubber(KEY))
    else:
        assert (
            next_url(f"{service.base_url}/pods", location.format(host=host), Scrubber(KEY)) == service.origin + reached
        )


def test_a_key_in_the_target_is_not_repeated(serve, connect) -> None:
    service = serve(to(f"http://elsewhere.example/{KEY}"), to(f"http://{KEY}.example/"))
    for _ in range(2):
        with pytest.raises(RedirectRefused) as caught:
            connect(service).pods.list()
        assert KEY not in str(caught.value)


def test_at_most_five_hops(serve, connect) -> None:
    service = serve(to("/api/pods"))
    with pytest.raises(RedirectRefused, match="more than 5"):
        connect(service).pods.list()
    assert len(service.seen) == 6
    service = serve(*[to("/api/pods")] * 5, ok([]))
    assert connect(service).pods.list() == []


@pytest.mark.parametrize("status", [307, 308])
def test_307_and_308_keep_the_order_and_its_key(status, serve, connect) -> None:
    service = serve(to("/api/orders", status), ok({"pod_ids": ["p-1", "p-2"]}))
    connect(service).clusters.order(ORDER, idempotency_key="k-1")
    first, second = service.seen
    assert (second.method, second.path, second.body) == ("POST", "/api/orders", first.body)
    assert second.headers["idempotency-key"] == "k-1"


@pytest.mark.parametrize("status", [302, 303])
@pytest.mark.parametrize("name", [name for name in CALLS if not CALLS[name].request.startswith("GET")])
def test_no_redirect_turns_a_write_into_a_read(name, status, serve, connect) -> None:
    """The read's answer would pass for the write's: `[]` for a removal time that was set, 404 for a cluster gone."""
    service = serve(to("/login", status), ok({"success": True}))
    with pytest.raises(RedirectRefused, match="answers a write with a redirect") as caught:
        CALLS[name].run(connect(service))
    assert caught.value.outcome_unknown is True
    assert len(service.seen) == 1


def test_301_is_refused_for_a_post(serve, connect) -> None:
    with pytest.raises(RedirectRefused):
        connect(serve(to("/api/x", 301), ok({}))).clusters.order(ORDER, idempotency_key="k-1")


def test_301_keeps_a_delete(serve, connect) -> None:
    service = serve(to("/api/x", 301), ok({"pods": [{"pod_id": "p-1", "success": True}]}))
    connect(service).clusters.delete("c-1")
    assert service.seen[1].method == "DELETE"


@pytest.mark.parametrize("status", [300, 304, 305, 399])
def test_a_status_that_is_neither_success_nor_error(status, serve, connect) -> None:
    service = serve(Reply(status, b"" if status == 304 else b"[]"))
    with pytest.raises(LiumError) as caught:
        connect(service).pods.list()
    assert isinstance(caught.value, UndecodableAnswer)
    assert caught.value.status == status
