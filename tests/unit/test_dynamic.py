"""The shell: what is stored of it, what an error looks like, which key is used."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from typing import Any

import dill
import pytest
from pulumi.dynamic import Config, ConfigureRequest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.output import Unknown
from pulumi.runtime import rpc

import pulumi_lium.dynamic as shell
from pulumi_lium.api import InvalidArgument
from pulumi_lium.api.errors import LiumError
from pulumi_lium.dynamic import LiumClusterProvider, LiumClusterReadyProvider
from pulumi_lium.lifecycle.accounts import settings_for
from pulumi_lium.lifecycle.values import UNKNOWN
from tests.support.world import World, wanted

MARKER = "sk_marker_5f1e0c7d9b"


@pytest.fixture(autouse=True)
def _shell_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    limit = getattr(sys, "tracebacklimit", None)
    monkeypatch.setattr(shell, "_config", None)
    monkeypatch.setattr(shell, "_contexts", {})
    monkeypatch.setattr(shell, "_secrets", set())
    yield
    if limit is None:
        sys.__dict__.pop("tracebacklimit", None)
    else:
        sys.tracebacklimit = limit


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The service behind the shell."""
    world = World()
    monkeypatch.setattr(shell, "_new_context", lambda account: world.ctx)
    return world


STORED = [
    (
        LiumClusterProvider,
        b"\x80\x04\x952\x00\x00\x00\x00\x00\x00\x00"
        b"\x8c\x13pulumi_lium.dynamic\x94\x8c\x13LiumClusterProvider\x94\x93\x94)\x81\x94.",
    ),
    (
        LiumClusterReadyProvider,
        b"\x80\x04\x957\x00\x00\x00\x00\x00\x00\x00"
        b"\x8c\x13pulumi_lium.dynamic\x94\x8c\x18LiumClusterReadyProvider\x94\x93\x94)\x81\x94.",
    ),
]
"""What stands in the state of everybody who uses it: two names, and neither may ever change."""


@pytest.mark.parametrize(("provider", "stored"), STORED, ids=lambda value: getattr(value, "__name__", ""))
def test_two_names_are_stored_and_nothing_else(provider: type[Any], stored: bytes) -> None:
    text = serialize_provider(provider())
    assert base64.b64decode(text) == stored
    assert len(text) < 120
    assert type(dill.loads(stored)) is provider
    assert vars(provider()) == {}
    assert provider.serialize_as_secret_always is False


def test_a_person_sees_the_message_and_no_traceback(world: World) -> None:
    LiumClusterProvider().configure(ConfigureRequest(Config({"lium:apiKey": MARKER}, "web")))
    assert sys.tracebacklimit == 0
    inputs = wanted(nodes=4, country="NO", idempotency_key="k" * 8, name="n")
    with pytest.raises(shell.Failed) as error:
        LiumClusterProvider().create(inputs)
    assert str(error.value).startswith("No fabric on sale fits 4 nodes")
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_a_fault_of_ours_says_so_and_where(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("fabric")

    monkeypatch.setattr("pulumi_lium.lifecycle.order.order", fail)
    with pytest.raises(shell.Failed, match=r"KeyError: 'fabric' \(test_dynamic\.py:\d+\).*please report"):
        LiumClusterProvider().create(wanted())


def test_no_error_repeats_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shell._configure(ConfigureRequest(Config({"lium:apiKey": MARKER, "lium:baseUrl": "http://127.0.0.1:1/api"}, "web")))

    def fail(ctx: Any, *_: Any) -> None:
        raise LiumError(f"the key {ctx.api.settings.api_key.get_secret_value()} is bad")

    monkeypatch.setattr("pulumi_lium.lifecycle.order.order", fail)
    with pytest.raises(shell.Failed) as error:
        LiumClusterProvider().create(wanted())
    assert str(error.value) == "the key *** is bad"


def test_no_report_repeats_the_key(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shell, "_secrets", {MARKER})
    shell._report(f"about {MARKER}")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "about ***\n")


def test_unknown_values_of_the_engine_go_in_and_out(world: World) -> None:
    news = {**wanted(), "max_price_per_hour": Unknown(), "machines": [Unknown(), "a1"], "__provider": "x"}
    result = LiumClusterProvider().check({}, news)
    assert result.failures == []
    assert result.inputs["max_price_per_hour"] == rpc.UNKNOWN
    assert result.inputs["machines"] == [rpc.UNKNOWN, "a1"]
    assert shell._received({"a": [Unknown(), rpc.UNKNOWN, {"b": Unknown()}]}) == {
        "a": [UNKNOWN, UNKNOWN, {"b": UNKNOWN}]
    }


def test_failures_name_their_properties(world: World) -> None:
    result = LiumClusterProvider().check({}, wanted(nodes=1.0, nodez=2.0))
    assert [failure.reason.partition(":")[0] for failure in result.failures] == ["nodes", "nodez"]


def test_the_walk_of_a_cluster_through_the_shell(world: World) -> None:
    order, ready = LiumClusterProvider(), LiumClusterReadyProvider()
    inputs = order.check({}, wanted(nodes=2.0)).inputs
    created = order.create(inputs)
    state = created.outs
    assert created.id == state["cluster_id"]
    child = ready.check({}, {"cluster_id": created.id, "members": state["members"], "nodes": 2.0}).inputs
    waited = ready.create(child)
    assert waited.id == created.id

    difference = order.diff(created.id, state, order.check(inputs, wanted(nodes=2.0)).inputs)
    assert (difference.changes, difference.replaces, difference.delete_before_replace) == (False, [], True)
    assert ready.diff(waited.id, waited.outs, child).changes is False

    replaced = order.diff(created.id, state, {**inputs, "nodes": 3.0})
    assert (replaced.changes, replaced.replaces) == (True, ["nodes"])
    assert ready.diff(waited.id, waited.outs, {**child, "cluster_id": Unknown()}).replaces == ["cluster_id"]

    updated = order.update(created.id, state, {**inputs, "ttl": "2h"})
    assert updated.outs["expires_at"]
    assert {name for name in state if name not in updated.outs} == set()

    read = order.read(created.id, updated.outs)
    assert (read.id, read.outs["status"]) == (created.id, "rented")
    assert read.inputs is not None
    assert read.inputs["ttl"] == "2h"
    assert ready.read(waited.id, waited.outs).outs == waited.outs

    ready.delete(waited.id, waited.outs)
    assert len(world.listed()) == 2
    order.delete(created.id, updated.outs)
    assert world.listed() == []
    world.pass_time(600)
    for gone in (order.read(created.id, state), ready.read(waited.id, waited.outs)):
        assert (gone.id, gone.outs) == ("", {})


# Which key.


def test_the_stack_s_configuration_comes_before_the_environment() -> None:
    config = {"lium:apiKey": "sk_config", "lium:baseUrl": "http://one.test/api"}
    environ = {"LIUM_API_KEY": "sk_environ", "LIUM_BASE_URL": "http://two.test/api"}
    settings = settings_for(config.get, environ, None)
    assert (settings.api_key.get_secret_value(), settings.base_url) == ("sk_config", "http://one.test/api")
    assert settings_for({}.get, environ, None).api_key.get_secret_value() == "sk_environ"


def test_an_account_has_its_own_key_and_never_another_s() -> None:
    environ = {"LIUM_API_KEY": "sk_default", "LIUM_API_KEY_TEAM_B": "sk_b"}
    assert settings_for({"lium:apiKey-a": "sk_a"}.get, environ, "a").api_key.get_secret_value() == "sk_a"
    assert settings_for({}.get, environ, "team-b").api_key.get_secret_value() == "sk_b"
    assert settings_for({}.get, environ, "team-b").account == "team-b"
    with pytest.raises(InvalidArgument) as error:
        settings_for({"lium:apiKey": "sk_default"}.get, environ, "c")
    assert "lium:apiKey-c" in str(error.value)
    assert "LIUM_API_KEY_C" in str(error.value)


def test_a_resource_of_an_account_is_read_with_that_account(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def new_context(account: str | None) -> Any:
        asked.append(account)
        return World().ctx

    monkeypatch.setattr(shell, "_new_context", new_context)
    LiumClusterProvider().read("c-1", {"requested": {"account": "research"}})
    LiumClusterProvider().read("c-1", {"requested": {"account": "research"}})
    LiumClusterProvider().read("c-1", {})
    assert asked == ["research", None]


def test_a_missing_key_says_how_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(shell.Failed, match="pulumi config set --secret lium:apiKey"):
        LiumClusterProvider().create(wanted())
