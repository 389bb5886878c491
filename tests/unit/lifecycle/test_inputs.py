"""Inputs: every bad property named, unknown ones passed through."""

from __future__ import annotations

from typing import Any

import pytest

from pulumi_lium.api import InvalidArgument
from pulumi_lium.lifecycle.accounts import settings_for
from pulumi_lium.lifecycle.errors import InvalidInputs
from pulumi_lium.lifecycle.inputs import cluster_args, parse_cluster_inputs
from pulumi_lium.lifecycle.values import UNKNOWN, has_unknown, idempotency_key, owner_digest, parse_ttl, pod_name
from tests.support.world import OWNER, World, public_key, wanted


def failures(**inputs: Any) -> dict[str, str]:
    return dict(parse_cluster_inputs(wanted(**inputs))[1])


def test_whole_numbers_may_travel_as_floats() -> None:
    kept, found = parse_cluster_inputs(wanted(nodes=2.0, gpus_per_node=8.0, ports_per_node=5.0, delete_timeout=60.0))
    assert found == []
    assert [type(kept[name]) for name in ("nodes", "gpus_per_node", "ports_per_node", "delete_timeout")] == [int] * 4


@pytest.mark.parametrize("nodes", [2.5, True, False, "2", "two", 0, 1, -2, 1e300, float("nan"), float("inf"), [2], 255])
def test_what_is_no_number_of_nodes_is_refused_by_name(nodes: Any) -> None:
    assert set(failures(nodes=nodes)) == {"nodes"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_type", ""),
        ("gpu_type", 5),
        ("gpus_per_node", 0),
        ("fabric_type", "ethernet"),
        ("fabric_id", " "),
        ("country", "US\n"),
        ("max_price_per_hour", 0),
        ("max_price_per_hour", -1),
        ("max_price_per_hour", float("nan")),
        ("max_price_per_hour", 10**400),
        ("max_price_per_hour", float("inf")),
        ("nodes", 1e300),
        ("nodes", float("nan")),
        ("ports_per_node", -(10**400)),
        ("max_price_per_hour", True),
        ("max_price_per_hour", "80"),
        ("machines", "a1"),
        ("machines", ["a1", ""]),
        ("machines", ["a1"]),
        ("machines", ["a1", "a1"]),
        ("ttl", "8"),
        ("ttl", "8 hours"),
        ("ttl", "0h"),
        ("ttl", "-1h"),
        ("ttl", "1e3h"),
        ("ttl", "400d"),
        ("ttl", 8),
        ("name", "a,b"),
        ("name", "12"),
        ("name", "all"),
        ("name", " a"),
        ("name", "a" * 129),
        ("template_id", ""),
        ("ports_per_node", 0),
        ("ports_per_node", 1.5),
        ("volume_encryption", "true"),
        ("backups", 1),
        ("delete_timeout", 0),
        ("adopt", ""),
        ("account", 1),
        ("ssh_public_keys", []),
        ("ssh_public_keys", "ssh-ed25519 AAAA"),
        ("ssh_public_keys", [5]),
    ],
)
def test_a_bad_property_is_named(name: str, value: Any) -> None:
    assert set(failures(**{name: value})) == {name}


@pytest.mark.parametrize("nodes", [-5, 0, 1, 1.0])
def test_too_few_nodes_are_told_the_least(nodes: float) -> None:
    assert "at least 2" in failures(nodes=nodes)["nodes"]


def test_every_bad_property_is_named_at_once() -> None:
    found = failures(nodes=1, ttl="soon", fabric_type="x", nodez=2)
    assert set(found) == {"nodes", "ttl", "fabric_type", "nodez"}
    assert "did you mean nodes?" in found["nodez"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("nodez", "nodes"), ("ports", "ports_per_node"), ("gpu", "gpu_type"), ("ssh_keys", "ssh_public_keys")],
)
def test_an_unknown_property_is_refused_with_the_nearest_right_name(wrong: str, right: str) -> None:
    assert f"did you mean {right}?" in failures(**{wrong: 1})[wrong]


def test_missing_properties_are_named() -> None:
    found = dict(parse_cluster_inputs({"owner": OWNER})[1])
    assert set(found) == {"nodes", "ssh_public_keys"}


def test_keys_are_not_needed_to_adopt() -> None:
    assert failures(ssh_public_keys=None, adopt="c-1") == {}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----", "private key"),
        (public_key()[:60], "not a whole ssh-ed25519 key"),
        (public_key() + "\n" + public_key(8), "several lines"),
        ("ssh-ed25519", "not a whole"),
        ("ssh-rsa " + public_key().split()[1], "not a whole ssh-rsa key"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "certificate"),
        ('from="10.0.0.1" ' + public_key(), "does not begin with a key type"),
        ("", "empty"),
    ],
)
def test_a_key_that_could_not_be_used_is_found_before_money_is_spent(key: str, says: str) -> None:
    reason = failures(ssh_public_keys=[public_key(), key])["ssh_public_keys"]
    assert says in reason
    assert "entry 1" in reason
    assert "abc" not in reason


def test_keys_are_trimmed_and_the_same_key_counts_once() -> None:
    kept, found = parse_cluster_inputs(wanted(ssh_public_keys=[public_key() + "\n", public_key(comment="again")]))
    assert found == []
    assert kept["ssh_public_keys"] == [public_key()]


@pytest.mark.parametrize("name", ["nodes", "gpu_type", "ttl", "name", "max_price_per_hour", "machines", "adopt"])
def test_an_unknown_value_passes(name: str) -> None:
    kept, found = parse_cluster_inputs(wanted(**{name: UNKNOWN}))
    assert found == []
    assert kept[name] is UNKNOWN


def test_an_unknown_value_inside_a_list_passes_and_its_neighbours_are_checked() -> None:
    kept, found = parse_cluster_inputs(wanted(ssh_public_keys=[UNKNOWN, public_key()], machines=[UNKNOWN, "a1"]))
    assert found == []
    assert kept["ssh_public_keys"] == [UNKNOWN, public_key()]
    assert set(failures(ssh_public_keys=[UNKNOWN, "x"])) == {"ssh_public_keys"}
    assert has_unknown({"a": [{"b": UNKNOWN}]})
    assert not has_unknown({"a": [{"b": "UNKNOWN"}]})


def test_what_is_still_unknown_cannot_be_ordered() -> None:
    with pytest.raises(InvalidInputs, match="nodes: is not known yet"):
        cluster_args(wanted(nodes=UNKNOWN))


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("8h", 28800), ("1.5d", 129600), (" 2h ", 7200)])
def test_spans_of_time(text: str, seconds: int) -> None:
    assert parse_ttl(text).total_seconds() == seconds


def test_names_are_safe_and_of_no_other_order(world: World) -> None:
    name = pod_name("web/тренинг " + "x" * 60, OWNER, world.ctx.rng)
    first, digest, random_part = name.rsplit("-", 2)
    assert len(first) == 40
    assert first.isascii()
    assert "/" not in name
    assert digest == owner_digest(OWNER)
    assert len(random_part) == 6
    assert pod_name("train", OWNER, world.ctx.rng) != pod_name("train", OWNER, world.ctx.rng)
    assert pod_name("", OWNER, world.ctx.rng).startswith("cluster-")


def test_keys_of_orders_are_random_uuids(world: World) -> None:
    import uuid

    key = idempotency_key(world.ctx.rng)
    assert str(uuid.UUID(key)) == key
    assert uuid.UUID(key).version == 4
    assert uuid.UUID(key).variant == uuid.RFC_4122
    assert idempotency_key(world.ctx.rng) != key


@pytest.mark.parametrize("account", ["sk_live_0123", "SK-live-0123", "x" * 65, " "])
def test_a_key_in_the_place_of_an_account_is_refused_and_not_repeated(account: str) -> None:
    reason = failures(account=account)["account"]
    with pytest.raises(InvalidArgument) as error:
        settings_for(lambda _: None, {}, account)
    assert not account.strip() or account not in reason + str(error.value)
