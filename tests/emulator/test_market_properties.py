"""What holds in every market, whatever is done to it and in whatever order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pulumi_lium.emulator.events import EventError
from pulumi_lium.emulator.market import Market, load_scenario
from pulumi_lium.emulator.refusal import Refusal
from pulumi_lium.emulator.wire import epoch, iso
from tests.support.market import (
    ANA,
    ANA_RENTER,
    ANA_TEAM,
    BOB,
    CLUSTER_TEMPLATE,
    OTHER_TEMPLATE,
    PUBLIC_KEY,
    START,
    host,
    order_body,
    scenario,
)

KEYS = [ANA, ANA_RENTER, ANA_TEAM, BOB]
IB = ["a1", "a2", "a3", "a4"]
ROCE = ["r1", "r2", "r3", "r4"]
SINGLE = ["lone", "whole"]
HOSTS = [*IB, *ROCE, *SINGLE]
BILLED = {"RUNNING", "REBOOT_PENDING", "REBOOT_FAILED"}
PAIRS = [[a, b, None if (a, b) == ("r3", "r4") else 190.0] for i, a in enumerate(ROCE) for b in ROCE[i + 1 :]]
GOOD = {frozenset(pair[:2]) for pair in PAIRS if pair[2]}

keys = st.sampled_from(KEYS)
seconds = st.sampled_from([0.0, 0.5, 1.0, 5.0, 29.999, 30.0, 61.7, 180.0, 300.0, 3600.0, 86_400.0])
hosts = st.sampled_from(HOSTS)


def start() -> Market:
    """Two fabrics, of which the RoCE one has a failed pair, and some trouble that comes by itself."""
    base = scenario(
        boot={"seconds": [5, 90]},
        settings={"rate_limit": False},
        events=[
            {"at_s": 100, "event": "pod_fails", "rank": 1},
            {"at_s": 400, "event": "rival_order", "fabric": "ib", "nodes": 1},
            {"at_s": 4000, "event": "machine_lost", "host": "r2"},
        ],
    )
    rack = base["providers"][0]
    rack["fabrics"][1]["measured"] = {"pairs": PAIRS}
    rack["hosts"] = [*(host(n, "ib", min_gpu_count_for_rental=1) for n in IB), *(host(n, "roce") for n in ROCE),
                     host("lone", min_gpu_count_for_rental=1), host("whole")]  # fmt: skip
    return Market(load_scenario(base), START)


def merge(stored: dict[str, Any], changes: dict[str, Any]) -> None:
    """What a store does with the changes: records put and dropped, the meta replaced."""
    stored["meta"] = changes["meta"]
    for table, records in changes["put"].items():
        stored["tables"].setdefault(table, {}).update(records)
    for table, names in changes["drop"].items():
        for name in names:
            stored["tables"].get(table, {}).pop(name, None)


class Twins(RuleBasedStateMachine):
    """One market, and beside it another that is restored from a snapshot now and then and does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.one = start()
        self.two = Market.restore(json.loads(json.dumps(self.one.snapshot())), track_changes=True)
        self.stored = json.loads(json.dumps(self.two.snapshot()))

    def both(self, verb: str, *arguments: Any) -> Any:
        """Do the same to both; they answer the same."""
        answers: list[Any] = []
        for market in (self.one, self.two):
            try:
                answers.append(getattr(market, verb)(*arguments))
            except Refusal as refusal:
                answers.append((refusal.to_record(), refusal.headers))
            except EventError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
        return answers[0]

    def listed(self, key: str) -> list[dict[str, Any]]:
        return list(self.both("list_pods", key))

    @rule(step=seconds)
    def time_passes(self, step: float) -> None:
        self.both("advance_to", self.one.now + step)

    def ordered(self, key: str, nodes: list[str], idempotency: str | None) -> Any:
        """Order. All or nothing: either every node is the caller's, or no row and no host has changed."""
        before = {row["id"] for row in self.listed(key)}
        free = {row["id"]: row["free_gpus"] for row in self.one.state()["hosts"]}
        answer = self.both("order_cluster", key, order_body(nodes), idempotency)
        after = [row for row in self.listed(key) if row["id"] not in before]
        if getattr(answer, "committed", False):
            assert sorted(row["executor"]["id"] for row in after) == sorted(nodes)
            assert {row["cluster_overlay_ip"] for row in after} == {f"10.42.0.{i + 1}" for i in range(len(nodes))}
            assert len({row["cluster_id"] for row in after}) == 1
            assert all(free[name] == 8 for name in nodes)
        else:
            assert after == []
            assert free == {row["id"]: row["free_gpus"] for row in self.one.state()["hosts"]}
        return answer

    @rule(key=keys, nodes=st.lists(hosts, min_size=1, max_size=5), seen=st.integers(0, 5))
    def order(self, key: str, nodes: list[str], seen: int) -> None:
        self.ordered(key, nodes, f"idem-{seen}")

    @rule(key=keys, data=st.data(), refuses=st.booleans())
    def order_an_offer(self, key: str, data: st.DataObject, refuses: bool) -> None:
        """What is offered can be rented, unless money or a refusal in mid-order stands against it."""
        offers = self.both("offers", key)
        if not offers:
            return
        nodes = [node["id"] for node in data.draw(st.sampled_from(offers))["nodes"]]
        chosen = data.draw(st.lists(st.sampled_from(nodes), min_size=2, max_size=len(nodes), unique=True))
        if refuses:
            self.both("apply_event", {"event": "refuse_order", "host": chosen[-1]})
        answer = self.ordered(key, chosen, None)
        if isinstance(answer, tuple) and isinstance(answer[0], dict) and "code" in answer[0]:
            assert answer[0]["code"] in ("insufficient_balance", "executor_unavailable")
        else:
            assert answer.committed
            assert not refuses

    @rule(key=keys, name=st.sampled_from([*SINGLE, "a1"]), gpus=st.sampled_from([None, 1, 3, 8]))
    def rent(self, key: str, name: str, gpus: int | None) -> None:
        template = OTHER_TEMPLATE if gpus else CLUSTER_TEMPLATE
        body = {"pod_name": "solo", "template_id": template, "user_public_key": [PUBLIC_KEY], "gpu_count": gpus}
        self.both("rent_host", key, name, body)

    @rule(owner=keys, caller=keys, data=st.data(), single=st.booleans())
    def delete(self, owner: str, caller: str, data: st.DataObject, single: bool) -> None:
        rows = self.listed(owner)
        if not rows:
            return
        row = data.draw(st.sampled_from(rows))
        if single or row["cluster_id"] is None:
            self.both("delete_pod", caller, row["id"])
        else:
            self.both("delete_cluster", caller, row["cluster_id"])

    @rule(key=keys, data=st.data(), step=seconds)
    def schedule(self, key: str, data: st.DataObject, step: float) -> None:
        rows = self.listed(key)
        if rows:
            pod = data.draw(st.sampled_from(rows))["id"]
            self.both("schedule_removal", key, pod, {"removal_scheduled_at": iso(self.one.now + step)})

    @rule(key=keys, data=st.data())
    def reboot_or_cancel(self, key: str, data: st.DataObject) -> None:
        rows = self.listed(key)
        if rows:
            pod = data.draw(st.sampled_from(rows))["id"]
            self.both(data.draw(st.sampled_from(["reboot_pod", "cancel_removal", "pod_events", "get_pod"])), key, pod)

    @rule(kind=st.sampled_from(["machine_taken", "machine_freed", "machine_lost", "machine_back"]), name=hosts)
    def trouble_at_a_host(self, kind: str, name: str) -> None:
        self.both("apply_event", {"event": kind, "host": name})

    @rule(name=hosts, times=st.integers(0, 2))
    def host_refuses(self, name: str, times: int) -> None:
        self.both("apply_event", {"event": "refuse_order", "host": name, "times": times})

    @rule(kind=st.sampled_from(["pod_fails", "pod_stuck", "pod_lost", "refuse_delete"]), rank=st.integers(0, 2))
    def trouble_at_a_rank(self, kind: str, rank: int) -> None:
        self.both("apply_event", {"event": kind, "rank": rank})

    @rule(amount=st.sampled_from([0.0, 10.0, 1e6]), account=st.sampled_from(["ana", "bob"]))
    def balance(self, amount: float, account: str) -> None:
        self.both("apply_event", {"event": "balance", "account": account, "balance": amount})

    @rule()
    def restore(self) -> None:
        """A snapshot that went through JSON is the same market, byte for byte."""
        text = json.dumps(self.two.snapshot())
        self.two = Market.restore(json.loads(text), track_changes=True)
        assert json.dumps(self.two.snapshot()) == text
        self.stored = json.loads(text)

    @rule()
    def restore_from_changes(self) -> None:
        """The changes, put together as a store does, are the whole market too; only the time may be older."""
        self.two.note_clock()
        changes = self.two.take_changes()
        assert changes is not None
        merge(self.stored, json.loads(json.dumps(changes)))
        kept = Market.restore(self.stored).snapshot()
        now = self.two.snapshot()
        for account in (*kept["tables"]["accounts"].values(), *now["tables"]["accounts"].values()):
            account.pop("listings")
        assert kept == now

    @invariant()
    def hosts_are_never_over_occupied(self) -> None:
        state = self.one.state()
        holders: dict[str, int] = {}
        for pod in state["pods"]:
            if pod["gone_at"] is None and pod["status"] not in ("CREATION_FAILED", "FAILED"):
                holders[pod["executor"]["id"]] = holders.get(pod["executor"]["id"], 0) + int(pod["gpu_count"])
        for row in state["hosts"]:
            assert 0 <= row["free_gpus"] <= row["gpu_count"]
            assert (
                row["taken_by_others"] + sum(int(pod["gpu_count"]) for pod in state["pods"] if pod["id"] in row["pods"])
                <= row["gpu_count"]
            )
            # A row that failed and is being deleted holds nothing, so the rows may say more than the host.
            assert holders.get(row["id"], 0) >= len(row["pods"])

    @invariant()
    def offers_hold_only_free_hosts_and_proven_pairs(self) -> None:
        free = {row["id"]: row["free_gpus"] == row["gpu_count"] for row in self.one.state()["hosts"]}
        for offer in self.one.offers(ANA):
            nodes = [node["id"] for node in offer["nodes"]]
            assert len(nodes) >= 2
            assert all(free[name] for name in nodes)
            assert len({(node["machine_name"], node["gpu_count"]) for node in offer["nodes"]}) == 1
            if offer["fabric_type"] == "roce":
                assert all(frozenset((a, b)) in GOOD for i, a in enumerate(nodes) for b in nodes[i + 1 :])

    @invariant()
    def the_ledger_explains_every_balance(self) -> None:
        state = self.one.state()
        for account in state["accounts"]:
            spent = sum(round(row["usd"] * 1e6) for row in state["ledger"] if row["account"] == account["id"])
            assert round(account["balance"] * 1e6) == 1000 * 10**6 - spent

    @invariant()
    def no_second_of_a_pod_is_charged_twice(self) -> None:
        ends: dict[str, float] = {}
        for row in self.one.state()["ledger"]:
            if row["kind"] == "charge":
                begin, end = epoch(row["from"]), epoch(row["to"])
                assert ends.get(row["pod"], 0.0) <= begin < end
                ends[row["pod"]] = end

    @invariant()
    def every_pod_costs_its_price_for_its_time(self) -> None:
        """To a millionth of a USD, and the microsecond that the ledger's times are written with."""
        state = self.one.state()
        price = {pod["id"]: pod["price"] for pod in state["pods"]}
        spent: dict[str, float] = {}
        lasted: dict[str, float] = {}
        for row in state["ledger"]:
            if row["kind"] == "charge":
                spent[row["pod"]] = spent.get(row["pod"], 0.0) + row["usd"]
                lasted[row["pod"]] = lasted.get(row["pod"], 0.0) + epoch(row["to"]) - epoch(row["from"])
        for pod, usd in spent.items():
            assert abs(usd - price[pod] * lasted[pod] / 3600) < 2e-6

    @invariant()
    def exactly_the_running_bill(self) -> None:
        state = self.one.state()
        live = {pod["id"] for pod in state["pods"] if pod["gone_at"] is None and pod["status"] in BILLED}
        assert set(state["billing"]["pods"]) == live

    def end_trouble(self) -> None:
        """Every machine is there, and free for all that others do."""
        for event in ("machine_back", "machine_freed"):
            for name in HOSTS:
                self.both("apply_event", {"event": event, "host": name})

    def teardown(self) -> None:
        """At the end all is deleted: nothing bills, and no host is held."""
        self.end_trouble()
        for key in (ANA, ANA_TEAM, BOB):
            for row in self.listed(key):
                for _ in range(8):
                    self.both("delete_pod", key, row["id"])
        self.both("advance_to", self.one.now + 10)
        self.end_trouble()  # what came in those ten seconds
        state = self.one.state()
        stubborn = {row["id"] for key in (ANA, ANA_TEAM, BOB) for row in self.listed(key)}
        assert set(state["billing"]["pods"]) <= stubborn
        assert sum(row["gpu_count"] - row["free_gpus"] for row in state["hosts"]) == sum(
            int(pod["gpu_count"]) for pod in state["pods"] if pod["id"] in stubborn
        )
        assert self.one.snapshot() == self.two.snapshot()


Twins.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Hypothesis looks for the shortest failing case for up to 300 s, and tells it only then.
TestTwins = pytest.mark.timeout(420)(Twins.TestCase)
