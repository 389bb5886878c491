"""No body makes a call raise anything but `LiumError`, and an unreadable one never reads as "nothing there"."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulumi_lium.api import LiumApi, LiumError, RawAnswer, Settings, UndecodableAnswer
from tests.support.fake_clock import FakeClock
from tests.support.loopback import Reply, ok, page
from tests.unit.api.conftest import KEY
from tests.unit.api.test_api_requests import AT, CALLS

LISTS = ["offers.list", "pods.list", "pods.events", "templates.list", "ssh_keys.list"]
UNREADABLE = {
    "html": page(200, "<html>maintenance</html>"),
    "text": Reply(200, b"OK"),
    "empty": Reply(200, b""),
    "blank": Reply(200, b" \r\n"),
    "no content": Reply(204),
    "cut": Reply(200, b'[{"id": "p-1"}'),
    "two documents": Reply(200, b"[][]"),
    "latin-1": Reply(200, '["é"]'.encode("latin-1")),
    "deep": Reply(200, b"[" * 200_000),
    "deep and closed": Reply(200, b"[" * 900 + b"]" * 900),
    "long number": Reply(200, b"[" + b"9" * 5000 + b"]"),
    "object": ok({"items": []}),
    "data": ok({"data": []}),
    "number": ok(0),
    "false": ok(False),
    "string": ok("[]"),
    "rows that are none": ok([None]),
    "rows of lists": ok([[]]),
}


@pytest.mark.parametrize("reply", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("name", LISTS)
def test_what_is_no_list_is_never_an_empty_one(name, reply, serve, connect, clock) -> None:
    service = serve(reply)
    with pytest.raises(UndecodableAnswer, match="LIUM_BASE_URL") as caught:
        CALLS[name].run(connect(service))
    assert len(service.seen) == 1
    assert caught.value.outcome_unknown is False
    assert caught.value.path in str(caught.value)


@pytest.mark.parametrize("name", LISTS)
def test_null_is_a_list_nowhere_but_for_offers(name, serve, connect) -> None:
    api = connect(serve(ok(None)))
    if name == "offers.list":
        assert CALLS[name].run(api) == []
    else:
        with pytest.raises(UndecodableAnswer, match="a list was expected, null came"):
            CALLS[name].run(api)


@pytest.mark.parametrize("kind", ["html", "text", "empty", "no content", "number", "rows that are none", "cut"])
@pytest.mark.parametrize("name", ["pods.get", "users.me", "ssh_keys.create", "clusters.delete"])
def test_what_is_no_object(name, kind, serve, connect) -> None:
    with pytest.raises(UndecodableAnswer) as caught:
        CALLS[name].run(connect(serve(UNREADABLE[kind])))
    assert caught.value.outcome_unknown is CALLS[name].request.startswith(("POST", "DELETE"))


@pytest.mark.parametrize(
    "pods", [None, [], {}, "", 0, "x", [None], [{}], [{"pod_id": 7}], [{"pod_id": "p", "success": 1}]]
)
def test_a_removal_without_a_row_per_member_proves_nothing(pods, serve, connect) -> None:
    with pytest.raises(UndecodableAnswer) as caught:
        connect(serve(ok({"success": True, "pods": pods}))).clusters.delete("c-1")
    assert caught.value.outcome_unknown is True


@pytest.mark.parametrize("row", [{"pod_id": "p"}, {"pod_id": "p", "success": None}, {"pod_id": "p", "success": False}])
def test_a_row_that_does_not_say_so_is_not_accepted(row, serve, connect) -> None:
    removal = connect(serve(ok({"success": True, "pods": [row]}))).clusters.delete("c-1")
    assert [refused.pod_id for refused in removal.refused] == ["p"]


def test_commands_take_no_content_and_any_json_but_nothing_else(serve, connect) -> None:
    for reply in (Reply(204), ok(None), ok([]), ok("done"), ok({})):
        api = connect(serve(reply))
        api.pods.delete("p-1")
        api.pods.schedule_removal("p-1", AT)
        api.pods.cancel_removal("p-1")
    for reply in (Reply(200), page(), Reply(200, b"OK")):
        with pytest.raises(UndecodableAnswer) as caught:
            connect(serve(reply)).pods.schedule_removal("p-1", AT)
        assert caught.value.outcome_unknown is True


@pytest.mark.parametrize("document", [None, [], "x", {}, {"features": None}, {"features": "rent_idempotency"}])
def test_a_version_without_features_promises_none(document, serve, connect) -> None:
    assert connect(serve(ok(document))).service.version().features == frozenset()


def test_an_error_names_row_and_field_and_no_value(serve, connect) -> None:
    with pytest.raises(UndecodableAnswer, match=r"row 1, id: Input should be a valid string") as caught:
        connect(serve(ok([{"id": "p-1"}, {"id": 123456789}]))).pods.list()
    assert "123456789" not in str(caught.value)
    assert "123456789" not in str(caught.value.__cause__)


def test_utf16_bom_and_nan_are_read(serve, connect) -> None:
    for body in ('[{"id": "p"}]'.encode("utf-16"), b'\xef\xbb\xbf[{"id": "p"}]', b'[{"id": "p", "price": NaN}]'):
        (pod,) = connect(serve(Reply(200, body))).pods.list()
        assert (pod.id, pod.price) == ("p", None)


class Says:
    """A transport that always answers the same."""

    def __init__(self, answer: RawAnswer) -> None:
        self.answer = answer

    def send(self, method, url, *, headers, body, timeout) -> RawAnswer:
        return self.answer


NAMES = [
    *("id", "pod_name", "status", "price", "gpu_count", "executor", "template", "cluster_id", "cluster_node_index"),
    *(
        "nodes",
        "fabric_id",
        "fabric_type",
        "node_count",
        "machine_name",
        "specs",
        "gpu",
        "details",
        "location",
        "count",
    ),
    *("ports_mapping", "created_at", "removal_scheduled_at", "success", "pod_ids", "pods", "pod_id", "error", "data"),
    *("message", "detail", "validation_errors", "pending_pods", "features", "price_per_gpu", "docker_image_tag"),
    *("code", "hint", "request_id", "loc", "msg", "field", "balance", "workspace"),
]
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(
        [KEY, "RUNNING", "16.0", "nan", "1e999", "0001-01-01T00:00:00+14:00", "2026-11-30T09:00:00", "\ud800"]
    )
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=6),
    max_leaves=12,
)
bodies = documents.map(lambda document: json.dumps(document).encode()) | st.binary()
header_values = st.text(st.characters(max_codepoint=255))
header_sets = st.dictionaries(
    st.sampled_from(["location", "retry-after", "x-request-id", "idempotent-replayed", "content-type"]), header_values
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(CALLS)), st.sampled_from([200, 200, 200]) | st.integers(200, 599), header_sets, bodies)
def test_nothing_but_lium_error(name, status, headers, body) -> None:
    api = LiumApi(
        Settings("http://127.0.0.1:1/api", KEY),
        transport=Says(RawAnswer(status, headers, body)),
        clock=FakeClock(),
        rng=random.Random(1),
    )
    try:
        result = CALLS[name].run(api)
    except LiumError as error:
        shown = f"{error} {error!r} {error.__cause__} {vars(error)}"
    else:
        for row in result if isinstance(result, list) else [result]:
            for attribute in ("price_per_hour", "gpu_type", "is_ready", "ssh_port", "gpus_per_node", "tag_order"):
                getattr(row, attribute, None)
        shown = repr(result)
    assert KEY not in shown
    shown.encode()
