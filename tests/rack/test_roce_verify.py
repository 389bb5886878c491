"""Pair verification on four virtual hosts: real agents, real perftest, real Soft-RoCE, and a switch that drops.

Fabric faults are looked for without Ansible (roce_on_rack.py); each playbook runs once.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.conclusion import Conclusion
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.render import render
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.runfolder import SWEEP

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.rack.fixtures import SessionRack
from tests.rack.rack import Rack
from tests.rack.roce_on_rack import FOLDER, CounterProof, Verification, look

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def _hosts(session_rack: SessionRack) -> Iterator[Rack]:
    rack = session_rack.with_hosts(4, "full")
    yield rack
    rack.switch.clear()
    session_rack.touched(1, 2, 3, 4)


@pytest.fixture(scope="module")
def clean(_hosts: Rack, tmp_path_factory: pytest.TempPathFactory) -> Conclusion:
    """A verification before anything is cut: all later time limits are multiples of what a good test took in it."""
    return Verification(_hosts, tmp_path_factory.mktemp("clean"), pair_timeout_s=150.0).run(reruns=False)


@pytest.fixture
def limit(clean: Conclusion) -> float:
    """Seconds after which a silent test is no longer a slow one on this machine now."""
    return max(20.0, 2 * max(record["duration_ms"] for record in clean.report["records"]) / 1000)


@pytest.fixture
def hosts(_hosts: Rack) -> Rack:
    """Four hosts with perftest. These tests leave nothing on them but an agent's folder."""
    _hosts.switch.clear()
    return _hosts


def statuses(done: Conclusion) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for record in done.report["records"]:
        found.setdefault((record["a"], record["b"]), set()).add(record["status"])
    return found


def classes(done: Conclusion, host: str) -> set[str]:
    return {row["class"] for row in done.report["records"] if host in (row["a"], row["b"]) and row["status"] == "FAIL"}


def accused(done: Conclusion) -> list[tuple[str, tuple[str, ...]]]:
    return [(part.kind, part.hosts) for part in done.fabrics[0].guilty]


def test_all_pairs_of_four_hosts(hosts: Rack, clean: Conclusion) -> None:
    done = clean
    assert set(statuses(done)) == {(f"host{a}", f"host{b}") for a in range(1, 5) for b in range(a + 1, 5)}
    assert len(done.fabrics[0].good) == 6, render(done.fabrics[0])
    assert done.fabrics[0].sellable.hosts == ("host1", "host2", "host3", "host4")
    assert all(record["gigabits_per_second"] > 0 for record in done.report["records"] if record["status"] == "OK")
    for host in hosts.hosts:
        assert host.run("pgrep ib_write_bw", check=False).returncode == 1, "a perftest was left running"


def test_rdma_is_dropped_between_two_hosts(hosts: Rack, tmp_path: Path, limit: float) -> None:
    hosts.switch.drop("udp", 4791, source=1, target=2)
    hosts.switch.drop("udp", 4791, source=2, target=1)
    done = Verification(hosts, tmp_path, pair_timeout_s=limit).run()
    assert "FAIL" in statuses(done)["host1", "host2"], render(done.fabrics[0])
    assert ("path", ("host1", "host2")) in accused(done)
    assert classes(done, "host1") == {"fabric_drop"}
    assert len(done.fabrics[0].sellable.hosts) == 3


def test_rdma_is_dropped_for_one_host(hosts: Rack, tmp_path: Path, limit: float) -> None:
    hosts.switch.drop("udp", 4791, source=3)
    hosts.switch.drop("udp", 4791, target=3)
    done = Verification(hosts, tmp_path, pair_timeout_s=limit).run(reruns=False)
    assert accused(done) == [("host", ("host3",))], render(done.fabrics[0])
    assert done.fabrics[0].sellable.hosts == ("host1", "host2", "host4")
    assert done.fabrics[0].fix_first[0]["sellable"] == 4


def test_one_link_is_thinned(hosts: Rack, tmp_path: Path, limit: float) -> None:
    hosts.switch.thin(0.25, "udp", 4791, target=4)
    done = Verification(hosts, tmp_path, pair_timeout_s=limit).run()
    worst = {pair for pair, seen in statuses(done).items() if seen & {"FAIL", "WARN"}}
    assert worst, render(done.fabrics[0])
    assert all("host4" in pair for pair in worst)
    assert accused(done), render(done.fabrics[0])
    assert all(kind in ("cable", "nic", "host") and named == ("host4",) for kind, named in accused(done))


def test_the_test_port_is_closed_on_one_host(hosts: Rack, tmp_path: Path, limit: float) -> None:
    hosts.switch.drop("tcp", 18515, target=2)
    done = Verification(hosts, tmp_path, pair_timeout_s=limit).run(reruns=False)
    assert accused(done) == [("host", ("host2",))], render(done.fabrics[0])
    assert classes(done, "host2") == {"connect"}


def test_an_empty_gid_index(hosts: Rack, tmp_path: Path, limit: float) -> None:
    verification = Verification(hosts, tmp_path, pair_timeout_s=limit)
    verification.looks["host4"] = look(hosts.host(4), gid_index=7)
    done = verification.run(reruns=False)
    assert [host for _, named in accused(done) for host in named] == ["host4"], render(done.fabrics[0])
    # Which end speaks first decides which of these perftest says.
    assert classes(done, "host4") <= {"gid_empty", "gid_or_route", "gid_types"}


def test_the_memory_lock_limit_is_too_small(hosts: Rack, tmp_path: Path, limit: float) -> None:
    verification = Verification(hosts, tmp_path, pair_timeout_s=limit)
    # Without CAP_IPC_LOCK root has a limit like anybody else.
    verification.prefix["host2"] = "prlimit --memlock=65536:65536 setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock"
    done = verification.run(reruns=False)
    assert accused(done) == [("host", ("host2",))], render(done.fabrics[0])
    assert classes(done, "host2") == {"memlock"}


def test_an_agent_is_killed_and_the_next_run_goes_on(hosts: Rack, tmp_path: Path, limit: float) -> None:
    results = tmp_path / "results.json"
    first = Verification(hosts, _folder(tmp_path, "first"), pair_timeout_s=limit)
    planned = first.plan()
    first.start(planned.plans)
    victim = hosts.host(2)
    while not first.records_so_far("host2"):
        time.sleep(0.5)
    victim.run("pkill -KILL -f '^python3.*lium-roce-agent'")
    assert victim.run("sleep 1; pgrep ib_write_bw", check=False).returncode == 1, "perftest outlived its agent"
    first.collect(SWEEP, list(planned.plans))
    done = first.conclude(reruns=False)
    assert list(done.fabrics[0].lost) == ["host2"]
    assert "killed" in done.fabrics[0].lost["host2"]
    kept = len(done.fabrics[0].good)
    assert kept >= 3, render(done.fabrics[0])
    results.write_text(json.dumps(done.report))

    second = Verification(hosts, _folder(tmp_path, "second"), pair_timeout_s=limit, results_path=str(results))
    assert second.plan().counts["pairs"] == 6 - kept
    assert len(second.run(reruns=False).fabrics[0].good) == 6


def test_a_host_is_lost_in_the_middle(hosts: Rack, tmp_path: Path, limit: float) -> None:
    verification = Verification(hosts, tmp_path, pair_timeout_s=limit, patience_s=20.0)
    planned = verification.plan()
    verification.start(planned.plans)
    while not verification.records_so_far("host3"):
        time.sleep(0.5)
    hosts.host(3).end()
    try:
        verification.collect(SWEEP, list(planned.plans))
        done = verification.conclude(reruns=False)
    finally:
        hosts.reset(3)
    assert list(done.fabrics[0].lost) == ["host3"], render(done.fabrics[0])
    others = {frozenset(pair) for pair in (("host1", "host2"), ("host1", "host4"), ("host2", "host4"))}
    assert others <= done.fabrics[0].good
    assert not done.fabrics[0].guilty or all("host3" in part.hosts for part in done.fabrics[0].guilty)


def test_incasts_are_judged_by_the_counters_of_soft_roce(hosts: Rack, tmp_path: Path) -> None:
    """It has counters of loss, and none that could show that nothing else would have been lost."""
    hosts.switch.thin(0.02, "udp", 4791, target=3)
    done = CounterProof(hosts, tmp_path, 3, duration_s=2, qps=1).prove()
    rows = {row["receiver"]: row for row in done.rows}
    assert sorted(rows) == ["host1", "host2", "host3"]
    assert (rows["host3"]["proven"], rows["host3"]["place"]) == ("exercised_loss", None), done.screen
    for host in ("host1", "host2"):
        row = rows[host]
        assert len(row["senders"]) == 2
        assert all(rate and rate > 0 for rate in row["senders"].values()), done.screen
        lost = sum(moved["sequence"] + moved["timeouts"] for moved in row["counters"].values())
        assert row["proven"] == ("exercised_loss" if lost else "unknown"), done.screen
        (record,) = (one for one in done.results[host]["records"] if one["id"] == "roce.loss_counters")
        assert record["status"] == ("MUST_FIX" if lost else "UNKNOWN")
    for host in hosts.hosts[:3]:
        assert host.run("pgrep ib_write_bw", check=False).returncode == 1, "a perftest was left running"


def test_the_playbook_names_the_planted_fault(hosts: Rack, tmp_path: Path, limit: float) -> None:
    hosts.switch.drop("udp", 4791, source=3)
    hosts.switch.drop("udp", 4791, target=3)
    done = play(hosts.write_inventory(tmp_path / "hosts.yml"), "verify_roce", pair_timeout_s=limit)
    screen = done.stdout
    assert "4 hosts, 3 of 6 pairs proven, 3 failed" in screen, screen + done.stderr
    assert "Sellable as one cluster: 3 of 4 hosts" in screen
    assert "host host3 (3 pairs)" in screen
    report = json.loads((tmp_path / "lium-roce.json").read_text())
    assert [part["hosts"] for part in report["fabrics"][0]["guilty"]] == [["host3"]]
    assert len(report["platform"]["host1"]) == 3
    # Those of the last pass: the test that was repeated alone.
    assert hosts.host(1).run(f"cat {FOLDER}/records.jsonl").stdout.count('"schema"') >= 1
    assert done.returncode == 2, "a pair that cannot be sold fails the play"


def test_the_playbook_says_what_soft_roce_cannot_prove(hosts: Rack, tmp_path: Path) -> None:
    inventory = hosts.write_inventory(tmp_path / "hosts.yml", hosts=[1, 2])
    done = play(inventory, "verify_lossless", incast_duration_s=2, incast_qps=1)
    report = json.loads((tmp_path / "lium-report.json").read_text())
    incasts = {incast["receiver"]: incast for incast in report["incasts"]}
    assert set(incasts) == {row["name"] for row in report["hosts"]} == {"host1", "host2"}, done.stdout + done.stderr
    for row in report["hosts"]:
        incast = incasts[row["name"]]
        assert all(rate and rate > 0 for rate in incast["senders"].values()), done.stdout
        lost = sum(moved["sequence"] + moved["timeouts"] for moved in incast["counters"].values())
        assert incast["proven"] == ("exercised_loss" if lost else "unknown"), done.stdout
        records = {record["id"]: record["status"] for record in row["records"]}
        assert {records["roce.lossless"], records["roce.loss_counters"]} == {"MUST_FIX" if lost else "UNKNOWN"}


def play(inventory: Path, playbook: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A playbook of the collection; its files stand beside the inventory."""
    patience = {"listen_wait_s": 90, "patience_s": 60, **options}  # processors are emulated
    variables = {f"roce_verify_{name}": value for name, value in patience.items()}
    folder = inventory.parent
    return subprocess.run(
        [
            ansible_tool("ansible-playbook"),
            "-i",
            str(inventory),
            f"lium.cluster.{playbook}",
            "-e",
            json.dumps(variables),
        ],
        cwd=folder,
        env=ansible_env(ROOT, folder / "ansible"),
        capture_output=True,
        text=True,
        timeout=840,
    )


def _folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder
