"""The life of a cluster as the real engine runs it: preview, up, change, refresh, destroy. Each ends at the ledger."""

from __future__ import annotations

import json

import pytest

from tests.engine.conftest import MakeStack
from tests.support.clusters import bills, cluster, live, market, orders, program, said
from tests.support.pulumi_stack import Stack
from tools.emulator import Emulator


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def stack(make_stack: MakeStack, engine_env: dict[str, str]) -> Stack:
    return make_stack(program(cluster()), env=engine_env)


def test_preview_shows_machines_and_price_and_orders_nothing(stack: Stack, emulator: Emulator) -> None:
    outcome = stack.preview()
    assert outcome.changes == {"create": 3}
    assert "2 × 8 H100" in said(outcome)
    assert "$32.00 an hour" in said(outcome)
    assert orders(emulator) == []
    bills(emulator, 0)


def test_up_orders_once_and_the_outputs_are_what_a_job_needs(stack: Stack, emulator: Emulator) -> None:
    stack.set_program(
        program(cluster(), exports=("cluster_id", "hostfile", "torchrun_args", "master_addr", "nodes_info", "name"))
    )
    outputs = stack.up().outputs
    pods = live(emulator)
    assert outputs["cluster_id"] == pods[0]["cluster_id"]
    assert outputs["name"] == pods[0]["pod_name"]
    assert outputs["master_addr"] == "10.42.0.1"
    assert outputs["hostfile"] == "10.42.0.1 slots=8\n10.42.0.2 slots=8\n"
    assert outputs["torchrun_args"][1] == ("--nnodes 2 --nproc_per_node 8 --node_rank 1 --master_addr 10.42.0.1")
    assert [node["pod_id"] for node in outputs["nodes_info"]] == [pod["id"] for pod in pods]
    assert all(node["ssh_command"].startswith("ssh ") and node["ssh_port"] for node in outputs["nodes_info"])
    assert len(orders(emulator)) == 1
    bills(emulator, 2)


def test_a_second_up_and_a_refresh_change_nothing(stack: Stack, emulator: Emulator) -> None:
    first = stack.up()
    assert stack.up().changes == {"same": 3}
    refreshed = stack.refresh()
    assert set(refreshed.changes) <= {"same", "refresh"}
    assert stack.up("--refresh").changes == {"same": 3}
    assert stack.outputs() == first.outputs
    assert len(orders(emulator)) == 1
    bills(emulator, 2)


def test_destroy_leaves_nothing_and_may_be_repeated(stack: Stack, emulator: Emulator) -> None:
    stack.up()
    assert stack.destroy().changes == {"delete": 3}
    assert live(emulator) == []
    stack.destroy()
    bills(emulator, 0)


def test_ttl_changes_in_place_and_goes_away(stack: Stack, emulator: Emulator) -> None:
    stack.set_program(program(cluster(ttl="2h"), exports=("expires_at",)))
    first = stack.up().outputs["expires_at"]
    assert {pod["removal_scheduled_at"] is None for pod in live(emulator)} == {False}
    stack.set_program(program(cluster(ttl="4h"), exports=("expires_at",)))
    changed = stack.up()
    assert changed.changes["update"] >= 1
    assert "replace" not in json.dumps(changed.changes)
    assert changed.outputs["expires_at"] > first
    stack.set_program(program(cluster(), exports=("expires_at",)))
    assert stack.up().outputs.get("expires_at") is None
    assert {pod["removal_scheduled_at"] for pod in live(emulator)} == {None}
    assert len(orders(emulator)) == 1
    bills(emulator, 2)


def test_a_change_that_the_running_cluster_satisfies_replaces_nothing(stack: Stack, emulator: Emulator) -> None:
    stack.set_program(program(cluster(max_price_per_hour=40.0, country="NO")))
    before = stack.up().outputs["cluster_id"]
    stack.set_program(program(cluster(max_price_per_hour=90.0)))
    assert stack.up().outputs["cluster_id"] == before
    assert len(orders(emulator)) == 1
    bills(emulator, 2)


def test_a_replacement_never_has_two_clusters_at_one_moment(stack: Stack, emulator: Emulator) -> None:
    # Three of four machines: the new cluster fits only once the old one is gone.
    stack.set_program(program(cluster(nodes=3)))
    old = stack.up().outputs["cluster_id"]
    stack.set_program(program(cluster(nodes=4)))
    replaced = stack.up()
    assert replaced.outputs["cluster_id"] != old
    state = emulator.state()
    gone = max(pod["gone_at"] for pod in state["pods"] if pod["cluster_id"] == old)
    made = min(pod["created_at"] for pod in state["pods"] if pod["cluster_id"] != old)
    assert gone <= made
    bills(emulator, 4)
    stack.destroy()
    bills(emulator, 0)


def test_the_reason_for_a_replacement_is_shown_in_the_preview(stack: Stack, emulator: Emulator) -> None:
    stack.up()
    stack.set_program(program(cluster(nodes=3)))
    outcome = stack.preview()
    assert "replace" in json.dumps(outcome.changes)
    assert "nodes" in said(outcome)
    bills(emulator, 2)


def test_adopt_takes_a_running_cluster_over_and_changes_nothing(
    stack: Stack, make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    pods = live(emulator)
    other = make_stack(program(cluster("taken", adopt=cluster_id, ssh_public_keys=None)), env=engine_env)
    adopted = other.up()
    assert adopted.outputs["cluster_id"] == cluster_id
    assert live(emulator) == pods
    assert len(orders(emulator)) == 1
    # Without adopt the resource is the same: what was adopted stays.
    other.set_program(program(cluster("taken")))
    assert other.up().outputs["cluster_id"] == cluster_id
    other.set_program(program(cluster("taken", nodes=3, adopt=cluster_id, ssh_public_keys=None)))
    wrong = other.up(ok=False)
    assert "nodes" in said(wrong)
    bills(emulator, 2)
    other.destroy()
    bills(emulator, 0)


def test_plain_import_says_what_to_use_instead(stack: Stack, emulator: Emulator) -> None:
    cluster_id = stack.up().outputs["cluster_id"]
    text = program(cluster("other", opts="OPTS")).replace("'OPTS'", f"pulumi.ResourceOptions(import_={cluster_id!r})")
    stack.set_program(text)
    outcome = stack.up(ok=False)
    assert f"adopt='{cluster_id}'" in said(outcome)
    assert "KeyError" not in outcome.text
    bills(emulator, 2)


def test_bad_inputs_are_all_named_before_anything_is_ordered(stack: Stack, emulator: Emulator) -> None:
    bad = {
        "nodes": 2.5,
        "gpus_per_node": True,
        "ttl": "soon",
        "fabric_type": "ethernet",
        "ssh_public_keys": ["none"],
        "wait_for_ready": "no",
        "ready_timeout": "1h",
        "on_start_failure": "ignore",
        "delete_timeout": 0,
    }
    stack.set_program(program(cluster(**bad)))
    outcome = stack.up("--skip-preview", ok=False)
    for name in bad:
        assert f"has a problem: {name}: " in said(outcome)
    assert orders(emulator) == []
    bills(emulator, 0)


def test_the_key_stands_nowhere(make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator) -> None:
    env = {name: value for name, value in engine_env.items() if name != "LIUM_API_KEY"}
    stack = make_stack(program(cluster()), env=env)
    stack.set_config("lium:apiKey", "sk_emulator_owner", secret=True)
    outcomes = [stack.preview("--diff"), stack.up(), stack.refresh(), stack.up("--diff")]
    texts = [outcome.text + json.dumps(outcome.events) for outcome in outcomes]
    texts += [json.dumps(stack.export()), json.dumps(stack.checkpoint())]
    texts += [path.read_text(errors="replace") for path in stack.root.rglob("*.y*ml")]
    assert len(live(emulator)) == 2
    assert not any("sk_emulator_owner" in text for text in texts)
    stack.destroy()
    bills(emulator, 0)


def test_twenty_clusters_in_one_program(stack: Stack, emulator: Emulator) -> None:
    emulator.reset(market(hosts=10, fabrics=4))
    many = [cluster(f"train-{number}", "first" if number == 0 else "_") for number in range(20)]
    stack.set_program(program(*many))
    outcome = stack.up()
    assert outcome.changes == {"create": 41}
    clusters = {pod["cluster_id"] for pod in live(emulator)}
    assert len(clusters) == 20
    assert len({pod["executor"]["id"] for pod in live(emulator)}) == 40
    bills(emulator, 40)
    assert stack.up().changes == {"same": 41}
    stack.destroy()
    bills(emulator, 0)
