"""The counter proof with real agents among each other, an emulated perftest and emulated counters."""

from __future__ import annotations

import base64
import json
import signal
import time
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings, perftest
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import incasts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_plan import plan_incasts
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.incast_verdict import Conclusion, conclude
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.planning import OPTIONS
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP, RunFolder

from tests.collection.roce.agents import Agents, children_of
from tests.support.processes import runs
from tools.rehearsal.counters import Counters
from tools.rehearsal.fabric import HostFault

Make = Callable[..., Agents]


def leg(rail: int, **values: Any) -> dict[str, Any]:
    """A rail as lossless_info tells of it."""
    told = {
        "rail": f"mlx5_{rail}:1",
        "netdev": f"rail{rail}",
        "soft": False,
        "verdict": "lossless",
        "confidence": "host_only",
        "priority": 3,
        "traffic_class": 106,
        "ecn_only": False,
    }
    return {**told, **values}


class Run:
    """One counter proof over the agents of a fabric."""

    def __init__(self, agents: Agents, folder: Path, *, rails: int = 1, **options: Any) -> None:
        self.agents = agents
        self.folder = RunFolder(str(folder))
        self.lossless = {
            host: {
                "facts": {
                    "lossless": {
                        "verdict": "lossless",
                        "confidence": "host_only",
                        "rails": [leg(rail) for rail in range(rails)],
                        "switch": {"SONiC": "show pfc counters"},
                    }
                }
            }
            for host in agents.addresses
        }
        self.looks: dict[str, Any] = {
            host: {"facts": {"roce": {"refused": "", "rails": [rail._asdict() for rail in own]}}}
            for host, own in agents.rails(rails).items()
        }
        defaults = {name: option.get("default") for name, option in OPTIONS.items()}
        self.options = {**defaults, "mode": "incast", "prefix_length": 8, "patience_s": 5.0, **options}
        self.ends: dict[str, Any] = {}

    def start(self) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        planned = plan_incasts(self.options, self.looks, self.lossless, self.folder, "run-1", now)
        self.folder.write_plans(SWEEP, planned.plans)
        self.agents.start(planned.plans)
        return planned.plans

    def conclude(self) -> Conclusion:
        self.agents.wait()
        for host in self.agents.processes:
            rows = [line for line in self.agents.lines(host) if "schema" in line]
            text = "\n".join(map(_line, rows))
            self.folder.write_records(SWEEP, host, base64.b64encode(zlib.compress(text.encode())).decode())
            end = self.agents.end(host)
            self.ends[host] = {"ended": end.get("end", "killed"), "why": end.get("why", "")}
        return conclude(self.folder, self.ends, self.lossless)

    def done(self) -> Conclusion:
        self.start()
        return self.conclude()


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row)


def told(done: Conclusion) -> dict[str, tuple[str, str | None]]:
    """By receiver what was proven, and the place."""
    return {row["receiver"]: (row["proven"], row["place"]) for row in done.rows}


def statuses(done: Conclusion, record_id: str) -> dict[str, str]:
    return {
        host: record["status"]
        for host, result in done.results.items()
        for record in result["records"]
        if record["id"] == record_id
    }


@pytest.fixture
def run(make_agents: Make, tmp_path: Path) -> Callable[..., Run]:
    def make(hosts: int, trouble: str = "none", where: str | None = None, *faults: Any, **options: Any) -> Run:
        rails = options.pop("rails", 1)
        floor_s = options.pop("floor_s", 0.1)
        agents = make_agents(hosts, *faults, rails=rails, counters=Counters(trouble, where), floor_s=floor_s)
        folder = tmp_path / "run"
        folder.mkdir()
        return Run(agents, folder, rails=rails, **options)

    return make


def test_a_fabric_that_holds_its_senders_back(run: Callable[..., Run]) -> None:
    proof = run(4)
    done = proof.done()
    assert told(done) == dict.fromkeys(proof.agents.addresses, ("exercised_ok", None))
    for row in done.rows:
        assert len(row["senders"]) == 3
        assert all(rate == pytest.approx(200 / 3, rel=0.05) for rate in row["senders"].values())
        assert row["gigabits_per_second"] == pytest.approx(195, rel=0.03)
        assert row["tclass"] == 106
        # 32-bit counters that came round are no losses, and no losses are read from them.
        receiver = row["counters"][row["receiver"]]
        assert (receiver["sequence"], receiver["ecn"], receiver["pause_sent"]) == (0, 30, 150_000)
    assert set(statuses(done, "roce.loss_counters").values()) == {"OK"}
    assert set(statuses(done, "roce.lossless").values()) == {"OK"}
    for result in done.results.values():
        assert result["facts"]["lossless"]["confidence"] == "exercised"
        assert result["facts"]["lossless"]["rails"][0]["confidence"] == "exercised"
    assert "4 of 4 ports lost nothing under an incast (traffic class 106)" in done.screen
    assert "gpu00: lossless (exercised)" in done.screen
    assert proof.agents.model.server.tests == 12


def test_each_rail_of_each_host_is_loaded_once(run: Callable[..., Run]) -> None:
    done = run(3, rails=2).done()
    assert {(row["receiver"], row["rail"]) for row in done.rows} == {
        (f"gpu{host:02}", f"mlx5_{rail}:1") for host in range(3) for rail in range(2)
    }
    assert {row["proven"] for row in done.rows} == {"exercised_ok"}


@pytest.mark.parametrize(
    ("trouble", "proven", "place", "fix"),
    [
        ("switch", "exercised_loss", "switch", "SONiC: show pfc counters"),
        ("host-buffers", "exercised_loss", "host buffers", "roce.buffers"),
        ("deaf-switch", "exercised_loss", "switch", "SONiC: show pfc counters"),
        ("wrong-class", "not_exercised", "wrong class", "roce.effective_dscp"),
    ],
)
def test_loss_is_found_with_its_place(run: Callable[..., Run], trouble: str, proven: str, place: str, fix: str) -> None:
    done = run(3, trouble, "gpu01").done()
    good = ("exercised_ok", None)
    assert told(done) == {"gpu00": good, "gpu01": (proven, place), "gpu02": good}
    assert statuses(done, "roce.loss_counters") == {"gpu00": "OK", "gpu01": "MUST_FIX", "gpu02": "OK"}
    # The settings looked good; what was seen stands above them.
    assert statuses(done, "roce.lossless")["gpu01"] == "MUST_FIX"
    facts = done.results["gpu01"]["facts"]["lossless"]
    assert (facts["verdict"], facts["confidence"]) == ("lossy", "exercised")
    (row,) = (row for row in done.rows if row["receiver"] == "gpu01")
    assert fix in row["fix"]
    assert place in done.screen
    assert fix in " ".join(done.screen.split())


@pytest.mark.parametrize(
    ("trouble", "proven", "fix"), [("idle", "not_exercised", "queue pairs"), ("unreadable", "unknown", "ethtool -S")]
)
def test_what_was_not_seen_is_not_good(run: Callable[..., Run], trouble: str, proven: str, fix: str) -> None:
    done = run(3, trouble).done()
    assert set(told(done).values()) == {(proven, None)}
    assert set(statuses(done, "roce.loss_counters").values()) == {"UNKNOWN"}
    assert statuses(done, "roce.lossless") == {}
    assert {result["facts"]["lossless"]["confidence"] for result in done.results.values()} == {"host_only"}
    assert all(fix in row["fix"] for row in done.rows)


def test_a_job_without_a_class_is_in_the_wrong_one(run: Callable[..., Run]) -> None:
    done = run(3, tclass=0).done()
    assert set(told(done).values()) == {("not_exercised", "wrong class")}
    assert {row["tclass"] for row in done.rows} == {0}


def test_a_host_whose_rails_were_not_up_at_the_look_gets_no_verdict(run: Callable[..., Run]) -> None:
    proof = run(3)
    proof.lossless["gpu01"]["facts"]["lossless"] |= {"verdict": "unknown", "rails": []}
    done = proof.done()
    assert set(statuses(done, "roce.loss_counters")) == {"gpu00", "gpu01", "gpu02"}
    assert set(statuses(done, "roce.lossless")) == {"gpu00", "gpu02"}


def test_two_hosts_send_both_ways_and_prove_little(run: Callable[..., Run]) -> None:
    proof = run(2)
    plans = proof.start()
    assert {plan["settings"]["bidirectional"] for plan in plans.values()} == {True}
    done = proof.conclude()
    assert set(told(done).values()) == {("not_exercised", None)}


def test_a_sender_that_cannot_send_is_named(run: Callable[..., Run]) -> None:
    done = run(3, "none", None, HostFault("gpu02", "memlock")).done()
    (row,) = (row for row in done.rows if row["receiver"] == "gpu00")
    assert row["senders"]["gpu02"] is None
    assert row["senders"]["gpu01"] > 0
    assert "gpu02: " in row["reason"]
    assert "memlock" in row["fix"]
    (own,) = (row for row in done.rows if row["receiver"] == "gpu02")
    assert own["proven"] == "not_exercised"
    assert set(own["senders"].values()) == {None}
    assert statuses(done, "roce.loss_counters")["gpu02"] == "UNKNOWN"


def test_a_host_is_lost_in_the_middle(run: Callable[..., Run]) -> None:
    proof = run(4, floor_s=1.0)
    proof.start()
    server = proof.agents.model.server
    while server.tests < 4:  # the first incast is over, in the second all send
        time.sleep(0.02)
    victim = proof.agents.processes["gpu03"]
    inner = children_of(victim.pid)
    victim.kill()
    done = proof.conclude()
    seen = told(done)
    assert seen["gpu00"] == ("exercised_ok", None)
    assert seen["gpu03"] == ("not_exercised", None)
    assert seen["gpu02"] == ("exercised_ok", None), "two senders are an incast still"
    assert statuses(done, "roce.loss_counters")["gpu03"] == "UNKNOWN"
    assert statuses(done, "roce.loss_counters")["gpu02"] == "WARN"
    (last,) = (row for row in done.rows if row["receiver"] == "gpu03")
    assert "did not run: gpu03: its agent was killed" in last["reason"]
    (third,) = (row for row in done.rows if row["receiver"] == "gpu02")
    assert third["senders"]["gpu03"] is None
    assert "gpu03: its agent was killed" in third["reason"]
    assert not any(runs(pid) for pid in inner), "perftest outlived its agent"


def test_sigterm_ends_an_incast_and_leaves_no_process(run: Callable[..., Run]) -> None:
    proof = run(3, floor_s=5.0)
    proof.start()
    while proof.agents.model.server.tests < 2:
        time.sleep(0.02)
    inner = [pid for process in proof.agents.processes.values() for pid in children_of(process.pid)]
    assert len(inner) == 4, "two servers and a client of each sender"
    for process in proof.agents.processes.values():
        process.send_signal(signal.SIGTERM)
    done = proof.conclude()
    assert {row["proven"] for row in done.rows} == {"not_exercised"}
    assert not any(runs(pid) for pid in inner)


def test_a_rented_host_is_left_alone(run: Callable[..., Run]) -> None:
    proof = run(4)
    proof.looks["gpu02"]["facts"]["roce"] = {"refused": "a rental runs (pod_x)", "rails": []}
    plans = proof.start()
    assert sorted(plans) == ["gpu00", "gpu01", "gpu03"]
    done = proof.conclude()
    assert sorted(told(done)) == ["gpu00", "gpu01", "gpu03"]
    (record,) = done.results["gpu02"]["records"]
    assert (record["status"], record["observed"]) == ("SKIPPED", "no test ran: a rental runs (pod_x)")


def test_a_host_alone_in_its_segment_is_skipped(run: Callable[..., Run]) -> None:
    proof = run(3, prefix_length=32)
    assert proof.start() == {}
    done = proof.conclude()
    assert set(statuses(done, "roce.loss_counters").values()) == {"SKIPPED"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"iterations": 5000}, "duration_s"),
        ({"duration_s": 0}, "duration_s"),
        ({"image": "probe"}, "image"),
        ({"port": 18613}, "control_port"),
    ],
)
def test_options_that_no_incast_can_have(run: Callable[..., Run], options: dict[str, Any], named: str) -> None:
    proof = run(3, **options)
    with pytest.raises(ValueError, match=f"^{named}"):
        proof.start()


def test_the_command_of_an_incast_is_the_contracts() -> None:
    """Host-contract 4.6, with one port a sender."""
    own = RailAt("mlx5_0", 1, 3, "10.0.0.2")
    settings = Settings(18615, 5000, 10, 4, 106, diagnostic=True, incast=True)
    line = "ib_write_bw -d mlx5_0 -i 1 -x 3 -p 18616 -D 10 -q 4 --tclass=106 -F --report_gbits"
    assert perftest(settings, own, 1, None) == line.split()
    assert perftest(settings._replace(bidirectional=True), own, 1, None) == line.replace("-F", "-b -F").split()


def test_a_rail_that_nobody_else_has_is_no_incast() -> None:
    own = [RailAt(f"mlx5_{rail}", 1, 3, "10.0.0.2") for rail in range(2)]
    planned = incasts({"a": own, "b": own[:1], "c": own[:1]})
    assert [(one.receiver, one.rail, one.senders) for one in planned] == [
        ("a", 0, ("b", "c")),
        ("b", 0, ("a", "c")),
        ("c", 0, ("a", "b")),
    ]
