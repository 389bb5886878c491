"""What every exchange over HTTP keeps to: JSON, envelopes, request ids, keys, bodies (contract 1, 2, 10)."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tools.emulator import Emulator

KEY = {"X-API-KEY": "sk_emulator_owner"}


def call(emulator: Emulator, method: str, path: str, **options: Any) -> requests.Response:
    options.setdefault("headers", KEY)
    return requests.request(method, emulator.base_url + path, timeout=10, allow_redirects=False, **options)


def envelope(answer: requests.Response, status: int, code: str) -> dict[str, Any]:
    """The error envelope of an answer, checked."""
    body = answer.json()
    assert answer.status_code == status, body
    assert body["success"] is False
    assert body["status_code"] == status
    assert body["error"]["code"] == code
    assert body["error"]["request_id"] == answer.headers["X-Request-Id"]
    assert answer.headers["Content-Type"] == "application/json"
    return dict(body)


LISTS = ["/executors", "/executors/infiniband-clusters", "/machines", "/pods", "/ssh-keys", "/templates", "/workspaces",
         "/volumes", "/executors/default-docker-image", "/keys/scopes"]  # fmt: skip


@pytest.mark.parametrize("path", LISTS)
def test_lists_are_bare_arrays(emulator: Emulator, path: str) -> None:
    answer = call(emulator, "GET", path)
    assert answer.status_code == 200
    assert isinstance(answer.json(), list)


@pytest.mark.parametrize("path", ["/executors", "/templates", "/machines", "/keys/scopes", "/version"])
@pytest.mark.parametrize("headers", [{}, {"X-API-KEY": ""}])
def test_browsing_needs_no_key(emulator: Emulator, path: str, headers: dict[str, str]) -> None:
    assert call(emulator, "GET", path, headers=headers).status_code == 200


@pytest.mark.parametrize("key", [None, "", "sk_nobody", "sk_\u00e9"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/pods"),
        ("GET", "/users/me"),
        ("GET", "/executors/infiniband-clusters"),
        ("POST", "/executors/cluster/rent"),
        ("DELETE", "/clusters/x"),
    ],
)
def test_a_key_is_needed(emulator: Emulator, method: str, path: str, key: str | None) -> None:
    headers = {} if key is None else {"X-API-KEY": key.encode("latin-1")}
    envelope(call(emulator, method, path, headers=headers), 401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/nothing", "/pods/", "//users/me", "/pods/a/b/c", "/executors//quote", ""])
def test_unknown_routes_are_404_in_json(emulator: Emulator, path: str) -> None:
    envelope(call(emulator, "GET", path), 404, "not_found")


@pytest.mark.parametrize("path", ["/nowhere", "/pods", "/apipods", "/_emulatorstate", "/"])
def test_a_path_outside_the_api_is_404_in_json(emulator: Emulator, path: str) -> None:
    root = emulator.base_url.removesuffix("/api")
    answer = requests.get(root + path, headers=KEY, timeout=10)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_a_method_that_a_path_lacks_is_405_and_names_those_it_has(emulator: Emulator) -> None:
    answer = call(emulator, "PUT", "/pods")
    envelope(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET"


def test_static_routes_stand_before_ids(emulator: Emulator) -> None:
    assert isinstance(call(emulator, "GET", "/executors/default-docker-image").json(), list)
    assert call(emulator, "POST", "/executors/cluster/rent", json={}).status_code == 422


def test_an_encoded_slash_stays_in_its_id(emulator: Emulator) -> None:
    call(emulator, "DELETE", "/clusters/a%2Fb")
    assert emulator.journal()[-1]["path"] == "/clusters/a/b"
    envelope(call(emulator, "DELETE", "/clusters/a%2Fb"), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "validation_error"),
        (b"{", 422, "validation_error"),
        (b"[]", 422, "validation_error"),
        (b"null", 422, "validation_error"),
        (b"\xff\xfe", 422, "validation_error"),
        (b'{"name": NaN}', 422, "validation_error"),
        (b'{"name": "\\ud800", "public_key": "ssh-ed25519 AAAA"}', 422, "validation_error"),
        (b"[" * 100_000, 422, "validation_error"),
        (b" " * ((1 << 20) + 1), 413, "payload_too_large"),
    ],
)
def test_odd_bodies_are_refused(emulator: Emulator, body: bytes, status: int, code: str) -> None:
    headers = {**KEY, "Content-Type": "application/json"}
    envelope(call(emulator, "POST", "/ssh-keys", headers=headers, data=body), status, code)


def test_a_body_that_is_not_json_is_415(emulator: Emulator) -> None:
    headers = {**KEY, "Content-Type": "text/plain"}
    envelope(call(emulator, "POST", "/ssh-keys", headers=headers, data=b"hello"), 415, "unsupported_media_type")


def test_wrong_fields_are_named(emulator: Emulator) -> None:
    body = {
        "pod_name": 5,
        "executor_uuids": ["a"],
        "user_public_key": [],
        "template_id": "t",
        "initial_port_count": 2.5,
    }
    faults = envelope(call(emulator, "POST", "/executors/cluster/rent", json=body), 422, "validation_error")
    assert {fault["field"] for fault in faults["validation_errors"]} == {
        "pod_name",
        "executor_uuids",
        "user_public_key",
        "initial_port_count",
    }


def test_request_ids_are_the_same_from_reset_to_reset(emulator: Emulator) -> None:
    def ids() -> list[str]:
        emulator.reset()
        return [call(emulator, "GET", "/version").headers["X-Request-Id"] for _ in range(3)]

    first = ids()
    assert len(set(first)) == 3
    assert ids() == first


def test_no_answer_repeats_the_key(emulator: Emulator) -> None:
    secret = "sk_secret_0123456789"
    for path in ("/pods", "/users/me", "/nothing"):
        answer = call(emulator, "GET", path, headers={"X-API-KEY": secret})
        assert secret not in answer.text
        assert secret not in str(answer.headers)
    assert secret not in str(emulator.journal())


def test_a_broken_request_does_not_end_the_server(emulator: Emulator) -> None:
    address = urlsplit(emulator.base_url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as raw:
        raw.sendall(b"NOT HTTP AT ALL\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    assert call(emulator, "GET", "/version").status_code == 200


def test_the_description_is_served(emulator: Emulator) -> None:
    root = emulator.base_url.removesuffix("/api")
    assert requests.get(root + "/docs", timeout=30).headers["Content-Type"].startswith("text/html")
    document = requests.get(root + "/openapi.json", timeout=30).json()
    assert "/api/executors/cluster/rent" in document["paths"]
    assert emulator.journal() == [], "looking at it is no request of the API"
