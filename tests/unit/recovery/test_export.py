"""`pulumi stack export` as it is read: what it owns, what was cut off, and every way in which it can be wrong."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pulumi_lium.recovery.export import BadExport, StackExport, parse_export, read_export

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=timezone.utc)
URN = "urn:pulumi:dev::web::pulumi-python:dynamic/lium:Cluster::train"
TYPE = "pulumi-python:dynamic/lium:Cluster"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:AAAA"}


def inputs(**more: Any) -> dict[str, Any]:
    return {
        "__provider": "gASV",
        "name": "train-060c2d-29defe",
        "idempotency_key": "60d3e503-7ce4-4785-84df-4f5ab5d0b6e9",
        "nodes": 2,
        "owner": "acme/web/dev/train",
        "planned": {"price_per_hour": 32, "machines": ["a", "b"]},
        "ssh_public_keys": SECRET,
        **more,
    }


def operation(**more: Any) -> dict[str, Any]:
    return {"type": "creating", "resource": {"urn": URN, "custom": True, "type": TYPE, "inputs": inputs(**more)}}


def resource(**more: Any) -> dict[str, Any]:
    outputs = {"name": "train-a", "price_per_hour": 48.5, "requested": {"owner": "acme/web/dev/train"}}
    return {"urn": URN, "custom": True, "id": "c-1", "type": TYPE, "outputs": outputs, **more}


def export(resources: Any = (), pending: Any = (), saved: str | None = "2026-11-30T11:59:50.123456789Z") -> str:
    manifest = {"manifest": {"time": saved}} if saved else {}
    deployment = {**manifest, "resources": list(resources), "pending_operations": list(pending)}
    return json.dumps({"version": 3, "deployment": deployment})


def parse(text: str) -> StackExport:
    return parse_export(text, "stack.json", base_url="http://lium.test/api", now=NOW)


def test_what_the_state_holds_is_owned() -> None:
    (owned,) = parse(export([resource(), {"type": "pulumi:pulumi:Stack", "urn": "u"}])).clusters
    assert (owned.cluster_id, owned.name, owned.price_per_hour, owned.owner) == (
        "c-1",
        "train-a",
        48.5,
        "acme/web/dev/train",
    )


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({"holder": {"user": "u-1", "workspace": "w-1"}}, {"user": "u-1", "workspace": "w-1"}),
        ({"holder": {"user": "u-1"}}, {"user": "u-1"}),
        ({"holder": {"user": 7, "more": "x"}}, {}),
        ({"holder": "u-1"}, {}),
        ({}, {}),
    ],
)
def test_whose_key_ordered_is_read_or_known_to_be_missing(told: dict[str, Any], read: dict[str, str]) -> None:
    text = export(pending=[operation(**told)])
    (create,) = parse(text).pending
    assert create.intent.holder == read
    (vouched,) = parse_export(text, "s", base_url="http://lium.test/api", now=NOW, same_key=True).pending
    assert vouched.intent.holder == (read or None)


def test_a_create_that_was_cut_off_is_an_intent() -> None:
    (create,) = parse(export(pending=[operation()])).pending
    intent = create.intent
    assert (intent.pod_name, intent.nodes, intent.price_per_hour) == ("train-060c2d-29defe", 2, 32.0)
    assert (intent.owner, intent.account, intent.stage) == ("acme/web/dev/train", None, "sent")
    assert intent.base_url == "http://lium.test/api"
    assert (create.urn, create.place) == (URN, 0)


@pytest.mark.parametrize(
    ("saved", "sent"),
    [
        (None, NOW),
        ("nonsense", NOW),
        ("2026-11-30T11:59:50.123456789Z", NOW),
        ("2026-11-30T13:00:00+02:00", NOW),
        ("2026-11-29T12:00:00Z", NOW - timedelta(hours=23)),
    ],
)
def test_its_order_may_have_left_until_it_is_certain_that_none_will(saved: str | None, sent: datetime) -> None:
    (create,) = parse(export(pending=[operation()], saved=saved)).pending
    assert create.intent.sent_at == sent


def test_other_operations_and_types_are_not_looked_at() -> None:
    other = {"type": "creating", "resource": {"urn": "urn:pulumi:a::b::c:d:E::f", "type": "c:d:E", "inputs": {}}}
    deleting = {**operation(), "type": "deleting"}
    assert parse(export(pending=[other, deleting, operation(adopt="c-9")])).pending == ()


def test_a_deleted_one_that_waits_for_its_replacement_is_not_owned() -> None:
    assert parse(export([resource(pendingReplacement=True)])).clusters == ()


def test_a_checkpoint_and_a_bare_deployment_are_taken_too() -> None:
    deployment = json.loads(export([resource()], [operation()]))["deployment"]
    for document in (deployment, {"version": 3, "checkpoint": {"stack": "s", "latest": deployment}}):
        found = parse(json.dumps(document))
        assert (len(found.clusters), len(found.pending)) == (1, 1)


def test_an_empty_stack_has_nothing() -> None:
    found = parse('{"version": 3, "deployment": {"manifest": {}, "resources": null}}')
    assert (found.clusters, found.pending, found.owners) == ((), (), frozenset())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "deployment is missing"),
        ('{"deployment": 3}', "deployment is no object"),
        ('{"checkpoint": {"latest": []}}', "checkpoint.latest is no object"),
        ('{"deployment": {"resources": {}}}', "deployment.resources is no list"),
        ('{"deployment": {"resources": [1]}}', "deployment.resources[0] is no object"),
        (export([{"urn": URN}]), "deployment.resources[0].type is missing"),
        (export([resource(id=None)]), "deployment.resources[0].id is missing"),
        (export([resource(id="")]), "deployment.resources[0].id is no text, or an empty one"),
        (export([resource(outputs=[])]), "deployment.resources[0].outputs is no object"),
        (export(pending=["x"]), "deployment.pending_operations[0] is no object"),
        (export(pending=[{"type": "creating"}]), "deployment.pending_operations[0].resource.urn is missing"),
        (export(pending=[{"resource": {"urn": URN}}]), "deployment.pending_operations[0].type is missing"),
        (export(pending=[operation(name=None)]), "deployment.pending_operations[0].resource.inputs.name is missing"),
        (export(pending=[operation(name=SECRET)]), "pending_operations[0].resource.inputs.name is a secret"),
        (export(pending=[operation(nodes="2")]), "pending_operations[0].resource.inputs.nodes is '2'"),
        (export(pending=[operation(owner=SECRET)]), "pending_operations[0].resource.inputs.owner is a secret"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_field(text: str, says: str) -> None:
    with pytest.raises(BadExport) as caught:
        parse(text)
    assert "stack.json" in str(caught.value)
    assert says in str(caught.value)
    assert "AAAA" not in str(caught.value)


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, says in (("none", "cannot be read"), ("bytes", "no text in UTF-8"), (".", "cannot be read")):
        with pytest.raises(BadExport, match=says):
            read_export(tmp_path / name, base_url="http://lium.test/api", now=NOW)


def test_no_secret_of_the_export_is_kept_in_an_intent() -> None:
    (create,) = parse(export(pending=[operation()])).pending
    assert "ciphertext" not in repr(create.intent)
