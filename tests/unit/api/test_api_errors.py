"""From the service's no, in every shape, to one error that says what to do."""

from __future__ import annotations

import json
import pickle

import pytest

from pulumi_lium.api import (
    ApiError,
    Conflict,
    Forbidden,
    InsufficientBalance,
    Invalid,
    InvalidArgument,
    LiumError,
    MissingScope,
    NotFound,
    OrderRefused,
    QuotaExceeded,
    RateLimited,
    Refused,
    ServerError,
    TransportError,
    Unauthorized,
    UndecodableAnswer,
    Violation,
)
from tests.support.loopback import Reply, ok, page
from tests.unit.api.conftest import KEY
from tests.unit.api.test_api_requests import AT, ORDER


def raised(serve, connect, reply: Reply) -> LiumError:
    with pytest.raises(LiumError) as caught:
        connect(serve(reply)).clusters.delete("c-1")
    return caught.value


def envelope(code, message="no", *, status=400, hint=None, **top):
    error = {"code": code, "message": message, "hint": hint, "request_id": "req-1"}
    return {"success": False, "error": error, "message": message, "status_code": status, **top}


@pytest.mark.parametrize(
    ("status", "document", "kind", "message"),
    [
        (400, {"detail": "text"}, Invalid, "text"),
        (400, {"message": "text"}, Invalid, "text"),
        (400, {"detail": "first", "message": "second"}, Invalid, "first"),
        (400, {"error": {"message": "inner"}}, Invalid, "inner"),
        (400, {"message": {"message": "inner"}, "error": {"message": "conflict"}}, Invalid, "inner"),
        (
            409,
            {"detail": {"message": "busy", "active_operation_id": "op-1"}},
            Conflict,
            "busy (active operation: op-1)",
        ),
        (422, {"detail": [{"loc": ["body", "pod_name"], "msg": "too long"}]}, Invalid, "pod_name: too long"),
        (422, {"detail": [{"loc": ["query", 0], "msg": "a"}, {"msg": "b"}]}, Invalid, "query.0: a; b"),
        (422, {"detail": [{"msg": None}, 7, {"loc": 7}]}, Invalid, "The request is not valid"),
        (
            422,
            {"message": "Validation failed", "validation_errors": [{"field": "a", "message": "x"}, {"message": "y"}]},
            Invalid,
            "Validation failed: a: x; y",
        ),
        (422, {"message": {"message": "no"}, "validation_errors": []}, Invalid, "no"),
        (400, "a text", Invalid, "a text"),
        (400, [1, 2], Invalid, "The request is not valid"),
        (400, {}, Invalid, "The request is not valid"),
        (400, {"error": "plain", "message": 7, "detail": None}, Invalid, "The request is not valid"),
        (401, {}, Unauthorized, "The API key is not accepted"),
        (402, {}, QuotaExceeded, "Budget exceeded"),
        (403, {}, Forbidden, "Permission denied"),
        (404, {}, NotFound, "Not found"),
        (404, envelope("not_found", "Cluster not found"), NotFound, "Cluster not found"),
        (409, {}, Conflict, "Conflict"),
        (418, {}, ApiError, "Request failed"),
        (500, {}, ServerError, "The service failed"),
        (599, {"detail": "gone"}, ServerError, "gone"),
        (429, {}, RateLimited, "Rate limit exceeded"),
    ],
)
def test_shapes(status, document, kind, message, serve, connect) -> None:
    error = raised(serve, connect, ok(document, status))
    assert type(error) is kind
    assert error.message == message
    assert (error.status, error.method, error.path) == (status, "DELETE", "/clusters/c-1")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (page(502), "a web page came, not an answer of the API: 502 Bad Gateway"),
        (page(502, "<html>maintenance</html>"), "a web page came, not an answer of the API: it has no title"),
        (page(502, "<title>" * 50_000), "a web page came, not an answer of the API:"),
        (Reply(503, b"upstream connect error\r\n\x1b[31mred"), "upstream connect error [31mred"),
        (Reply(503, b""), "The service failed"),
        (Reply(503, b"\xff\xfe\x00"), "\ufffd\ufffd"),
        (Reply(503, b"x" * 100_000), "x" * 499 + "…"),
    ],
)
def test_bodies_that_are_no_envelope(reply, message, serve, connect) -> None:
    error = raised(serve, connect, reply)
    assert isinstance(error, ServerError)
    assert error.message == message
    assert len(str(error)) < 900


def test_all_facts_are_told(serve, connect) -> None:
    document = envelope("conflict", hint="Ask the support.")
    error = raised(serve, connect, ok(document, 409))
    assert (error.code, error.request_id, error.hint) == ("conflict", "req-1", "Ask the support.")
    assert str(error) == "no [DELETE /clusters/c-1, HTTP 409, code conflict, request req-1]. Ask the support."


def test_the_request_id_may_come_in_a_header(serve, connect) -> None:
    assert raised(serve, connect, ok({}, 404, X_Request_Id="req-9")).request_id == "req-9"
    assert raised(serve, connect, page(502)).request_id is None
    assert raised(serve, connect, ok([], X_Request_Id="req-9")).request_id == "req-9"


def kinds(root: type[LiumError]) -> list[type[LiumError]]:
    """Every class of the client's tree; one of `InvalidArgument` says in its message what to give instead."""
    found = [kind for kind in root.__subclasses__() if kind.__module__ == root.__module__ and kind != InvalidArgument]
    return found + [below for kind in found for below in kinds(kind)]


@pytest.mark.parametrize("kind", kinds(LiumError))
def test_each_kind_says_what_to_do(kind) -> None:
    assert str(kind("No")) == f"No. {kind.advice}"
    assert kind.advice


@pytest.mark.parametrize("status", [405, 410, 418])
def test_a_refusal_of_no_kind_says_what_to_do(status, serve, connect) -> None:
    error = raised(serve, connect, ok(envelope("gone"), status))
    assert type(error) is ApiError
    assert str(error).endswith(ApiError.advice)


def test_pending_pods_are_read_from_the_message(serve, connect) -> None:
    inner = {"message": "A member of this cluster is still being created; try again later.", "pending_pods": ["p-2", 7]}
    error = raised(serve, connect, ok({**envelope("conflict"), "message": inner}, 409))
    assert isinstance(error, Conflict)
    assert error.pending_pods == ("p-2",)
    assert error.message.startswith("A member of this cluster")
    assert error.data == inner
    for strange in (None, "p-2", {"p-2": 1}):
        error = raised(serve, connect, ok({"message": {"pending_pods": strange}}, 409))
        assert isinstance(error, Conflict)
        assert error.pending_pods == ()


def test_data_of_the_error_comes_first(serve, connect) -> None:
    error = raised(serve, connect, ok({"error": {"data": {"a": 1}}, "message": {"b": 2}, "detail": {"c": 3}}, 400))
    assert isinstance(error, ApiError)
    assert error.data == {"a": 1}


@pytest.mark.parametrize(
    ("message", "required", "available"),
    [
        ("Renting this requires at least $8.20 (15 minutes). Your balance is $3.00.", 8.2, 3.0),
        ("Renting this requires at least $1,208.20. Your balance is -$3.", 1208.2, -3.0),
        ("Insufficient balance", None, None),
        ("requires at least $,. balance is $-", None, None),
    ],
)
def test_balance(message, required, available, serve, connect) -> None:
    error = raised(serve, connect, ok(envelope("insufficient_balance", message), 403))
    assert isinstance(error, InsufficientBalance)
    assert (error.required, error.available) == (required, available)


def test_balance_without_a_code(serve, connect) -> None:
    assert isinstance(raised(serve, connect, ok({"detail": "Insufficient Balance"}, 403)), InsufficientBalance)
    assert type(raised(serve, connect, ok(envelope("other", "Insufficient balance"), 403))) is Forbidden


@pytest.mark.parametrize("code", ["api_key_scope", "missing_scope", "insufficient_scope", "scope_required"])
def test_scope_by_code(code, serve, connect) -> None:
    error = raised(serve, connect, ok(envelope(code), 403))
    assert isinstance(error, MissingScope)
    assert error.scope is None


def test_scope_by_text(serve, connect) -> None:
    error = raised(serve, connect, ok({"message": "This key does not have the 'rent' scope"}, 403))
    assert isinstance(error, MissingScope)
    assert error.scope == "rent"


def test_budget(serve, connect) -> None:
    inner = {"message": "daily budget reached", "window": "daily", "budget_usd": 100.0, "spent_usd": "101.3"}
    error = raised(serve, connect, ok({**envelope("API_KEY_BUDGET_EXCEEDED"), "message": inner}, 402))
    assert isinstance(error, QuotaExceeded)
    assert (error.window, error.budget_usd, error.spent_usd) == ("daily", 100.0, 101.3)
    assert error.code == "API_KEY_BUDGET_EXCEEDED"


def test_violations(serve, connect) -> None:
    document = {"validation_errors": [{"field": "executor_uuids", "message": "at least 2 items required"}]}
    error = raised(serve, connect, ok(document, 422))
    assert isinstance(error, Invalid)
    assert error.violations == (Violation("executor_uuids", "at least 2 items required"),)


@pytest.mark.parametrize("document", [{"success": False, "message": "A cluster rental must take whole nodes"}])
def test_a_refused_order(document, serve, connect) -> None:
    service = serve(ok(document))
    with pytest.raises(OrderRefused, match="must take whole nodes") as caught:
        connect(service).clusters.order(ORDER, idempotency_key="k-1")
    assert caught.value.outcome_unknown is False
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"success": 0},
        {"success": "false"},
        {"success": []},
        {"success": False, "pod_ids": ["p-1"]},
        {"pod_ids": "p-1"},
        {"pod_ids": 0},
        {"pod_ids": {}},
        {"pod_ids": [1, 2]},
        {"pod_ids": [""]},
        [],
        None,
        "ok",
    ],
)
def test_an_order_answer_that_proves_nothing(document, serve, connect) -> None:
    with pytest.raises(UndecodableAnswer) as caught:
        connect(serve(ok(document))).clusters.order(ORDER, idempotency_key="k-1")
    assert caught.value.outcome_unknown is True


@pytest.mark.parametrize("document", [{}, {"success": None}, {"success": True, "pod_ids": None}, {"pod_ids": []}])
def test_an_accepted_order_that_names_no_pods(document, serve, connect) -> None:
    assert connect(serve(ok(document))).clusters.order(ORDER, idempotency_key="k-1").pod_ids == []


def test_commands_can_be_refused_in_a_200(serve, connect) -> None:
    reply = ok({"success": False, "error": {"code": "too_late", "request_id": "req-1"}, "message": "is being deleted"})
    for run in (
        lambda pods: pods.delete("p-1"),
        lambda pods: pods.schedule_removal("p-1", AT),
        lambda pods: pods.cancel_removal("p-1"),
    ):
        with pytest.raises(Refused, match="is being deleted") as caught:
            run(connect(serve(reply)).pods)
        assert (caught.value.code, caught.value.request_id) == ("too_late", "req-1")
        assert caught.value.outcome_unknown is False


@pytest.mark.parametrize("form", [KEY, json.dumps({"message": KEY}), f'{{"\\u0073{KEY[1:]}": "\\u0073{KEY[1:]}"}}'])
@pytest.mark.parametrize("status", [200, 302, 401, 403, 409, 422, 502])
def test_a_key_that_the_service_repeats_is_in_no_error(status, form, serve, connect) -> None:
    key = KEY + "+/="
    body = form.replace(KEY, key).replace(KEY[1:], key[1:]).encode()
    headers = {"X-Request-Id": f"req-{key}", "Location": f"http://elsewhere.example/{key}"}
    service = serve(Reply(status, body, headers))
    with pytest.raises(LiumError) as caught:
        connect(service, key=key).clusters.delete("c-1")
    assert KEY not in everything(caught.value)


@pytest.mark.parametrize("document", [{"error": {"code": KEY, "hint": KEY, "request_id": KEY, "data": {KEY: KEY}}}])
@pytest.mark.parametrize("status", [400, 402, 403, 409, 500])
def test_a_key_in_every_place_of_the_envelope(status, document, serve, connect) -> None:
    assert KEY not in everything(raised(serve, connect, ok(document, status)))


def test_a_key_that_the_service_repeats_is_in_no_result(serve, connect) -> None:
    (pod,) = connect(serve(ok([{"id": KEY, "pod_name": f"x{KEY}", "api_key_name": KEY}]))).pods.list()
    assert KEY not in repr(pod)


def test_a_short_key_is_kept_out_of_errors_and_changes_no_id(serve, connect) -> None:
    service = serve(ok([{"id": "train-1", "pod_name": "train"}]))
    assert connect(service, key="train").pods.list()[0].name == "train"
    with pytest.raises(LiumError) as caught:
        connect(
            serve(ok({"message": "train is no key", "error": {"data": {"key": "train"}}}, 401)), key="train"
        ).pods.list()
    assert "train" not in everything(caught.value)


def test_a_refused_removal_without_rows_keeps_the_reason(serve, connect) -> None:
    error = raised(serve, connect, ok({"success": False, "message": "The cluster is locked."}))
    assert isinstance(error, UndecodableAnswer)
    assert "it has no row per member. The cluster is locked [" in str(error)


def everything(error: BaseException | None) -> str:
    """All that an error, and what stands behind it, can say."""
    shown = ""
    while error is not None:
        shown += f"{error} {error!r} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    return shown


def test_errors_survive_pickling() -> None:
    error = Conflict("no", pending_pods=("p-1",), status=409, code="conflict", method="DELETE", path="/x")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.pending_pods == ("p-1",)


def test_the_text_reads_as_sentences() -> None:
    assert str(LiumError("No.")) == "No."
    assert str(LiumError("No.", hint="Do that.")) == "No. Do that."
    assert str(LiumError("No", hint="Do that.")) == "No. Do that."
    assert str(LiumError("No.", status=404)) == "No [HTTP 404]"
    assert str(TransportError("No", outcome_unknown=True)).endswith(
        "The request may have been carried out: look at the listing before you send it again."
    )
