"""The agent as a process among others: real sockets, real children, an emulated perftest."""

from __future__ import annotations

import itertools
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import Settings
from ansible_collections.lium.cluster.plugins.module_utils._roce.meeting import Limits
from ansible_collections.lium.cluster.plugins.module_utils._roce.plan import Options, rerun_plans, sweep_plans
from ansible_collections.lium.cluster.plugins.module_utils._roce.rerun import RerunRound
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import LinkTest, timetable

from tests.collection.roce.agents import Agents, children_of
from tests.support.processes import runs
from tools.rehearsal.fabric import CableFault, HostFault, PathFault

Make = Callable[..., Agents]


def sweep(agents: Agents, rails: int = 1, full: bool = False, **options: Any) -> dict[str, Any]:
    known = agents.rails(rails)
    rounds = timetable({host: range(len(own)) for host, own in known.items()}, both_directions=full)
    options.setdefault("settings", Settings(18615, 5000, 0, 4, diagnostic=True) if full else Settings())
    return sweep_plans(Options("run-1", **options), known, rounds)


def pairs(records: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(record["a"], record["b"]) for record in records}


def test_all_pairs_of_five_hosts(make_agents: Make) -> None:
    agents = make_agents(5)
    agents.start(sweep(agents))
    assert set(agents.wait().values()) == {0}
    for host in agents.addresses:
        records = agents.records(host)
        assert len(records) == 4
        assert {record["status"] for record in records} == {"OK"}
        assert agents.lines(host)[0]["begin"] == "run-1"
        assert agents.end(host)["end"] == "done"
    every = set().union(*(pairs(agents.records(host)) for host in agents.addresses))
    assert every == set(itertools.combinations(sorted(agents.addresses), 2))
    assert agents.model.server.tests == 10
    assert agents.model.server.collisions == []


def test_a_record_has_the_contracts_form(make_agents: Make) -> None:
    agents = make_agents(2)
    agents.start(sweep(agents))
    agents.wait()
    (record,) = agents.records("gpu00")
    assert agents.records("gpu01") == [record]
    contract = """
        schema a b a_address b_address rail a_device b_device a_gid_index b_gid_index direction mode tclass qps size
        iterations gigabits_per_second link_gbps ratio status class stderr_tail counters measured_at duration_ms
        perftest
    """
    assert set(contract.split()) <= set(record)
    assert (record["a_address"], record["b_address"]) == (agents.addresses["gpu00"], agents.addresses["gpu01"])
    assert record["ratio"] == pytest.approx(0.97, abs=0.02)
    assert (record["mode"], record["iterations"], record["duration_s"]) == ("platform", 1000, None)
    assert record["perftest"] == "6.28"
    assert record["counters"] is None  # the emulated host has no such files
    assert record["duration_ms"] >= 100


def test_every_rail_in_both_directions(make_agents: Make) -> None:
    agents = make_agents(3, rails=2)
    agents.start(sweep(agents, rails=2, full=True))
    assert set(agents.wait().values()) == {0}
    seen = {
        (record["a"], record["b"], record["rail"], record["direction"])
        for host in agents.addresses
        for record in agents.records(host)
    }
    assert len(seen) == 3 * 2 * 2
    # ethtool and rdma answer, and nothing grows in a test without a duration.
    assert all(record["counters"] == {} for host in agents.addresses for record in agents.records(host))
    assert agents.model.server.collisions == []


def test_a_silent_pair_is_judged_by_its_deadline_alone(make_agents: Make) -> None:
    agents = make_agents(4, PathFault("gpu00", "gpu01"), hangs=True)
    agents.start(sweep(agents, limits=Limits(test_s=1.0)))
    agents.wait()
    bad = [record for record in agents.records("gpu00") if record["status"] != "OK"]
    assert [(record["a"], record["b"], record["status"]) for record in bad] == [("gpu00", "gpu01", "FAIL")]
    assert 900 <= bad[0]["duration_ms"] < 3000
    assert bad[0]["class"] in ("hang", "connect")


def test_the_servers_own_words_are_the_cause(make_agents: Make) -> None:
    agents = make_agents(4, HostFault("gpu02", "memlock"))
    agents.start(sweep(agents))
    agents.wait()
    bad = [record for host in agents.addresses for record in agents.records(host) if record["status"] == "FAIL"]
    assert {record["class"] for record in bad} == {"memlock"}
    assert {record["accused"] for record in bad} == {"gpu02"}
    assert pairs(bad) == {("gpu00", "gpu02"), ("gpu01", "gpu02"), ("gpu02", "gpu03")}


def test_a_host_whose_every_test_fails_leaves_the_rest_out(make_agents: Make) -> None:
    agents = make_agents(12, CableFault("gpu05", 0), retry_s=0.1)
    agents.start(sweep(agents))
    agents.wait()
    statuses = [record["status"] for record in agents.records("gpu05")]
    assert statuses.count("FAIL") == 5
    assert statuses.count("NOT_MEASURED") == 6
    assert agents.end("gpu05")["end"] == "quarantined"
    others = [agents.records(host) for host in agents.addresses if host != "gpu05"]
    assert all(sum(record["status"] == "OK" for record in records) == 10 for records in others)


@pytest.mark.parametrize("role", ["server", "client"])
def test_a_cable_that_is_dead_one_way_costs_only_the_tests_of_that_way(make_agents: Make, role: str) -> None:
    agents = make_agents(14, CableFault("gpu05", 0, role), retry_s=0.1)
    agents.start(sweep(agents))
    agents.wait()
    dead, well = [], []
    for record in agents.records("gpu05"):
        server = record["b"] if record["direction"] == "a_to_b" else record["a"]
        (dead if (server == "gpu05") is (role == "server") else well).append(record)
    assert [record["status"] for record in dead] == ["FAIL"] * 5 + ["NOT_MEASURED"] * (len(dead) - 5)
    assert {record["class"] for record in dead[5:]} == {"quarantined"}
    assert {record["accused"] for record in dead[5:]} == {"gpu05"}
    assert {record["status"] for record in well} == {"OK"}
    assert {agents.end(host)["end"] for host in agents.addresses} == {"done"}
    for host in set(agents.addresses) - {"gpu05"}:
        records = agents.records(host)
        assert len(records) == 13
        assert {record["status"] for record in records if "gpu05" not in (record["a"], record["b"])} == {"OK"}
        assert {record["class"] for record in records if record["status"] == "NOT_MEASURED"} <= {"quarantined"}


def test_an_agent_that_is_killed_costs_the_others_no_time(make_agents: Make) -> None:
    agents = make_agents(6, floor_s=0.5)
    agents.start(sweep(agents))
    victim = agents.processes["gpu03"]
    while not agents.records("gpu03"):
        time.sleep(0.02)
    inner = children_of(victim.pid)
    started = time.monotonic()
    victim.kill()
    victim.wait()
    codes = agents.wait()
    assert time.monotonic() - started < 12
    assert {host: code for host, code in codes.items() if host != "gpu03"} == dict.fromkeys(
        [host for host in agents.addresses if host != "gpu03"], 0
    )
    lost = [record for record in agents.records("gpu00") if record["status"] != "OK"]
    assert all(record["class"] == "peer_lost" and record["accused"] == "gpu03" for record in lost)
    assert all(record["status"] == "NOT_MEASURED" for record in lost)
    assert sum(record["status"] == "OK" for record in agents.records("gpu00")) >= 4
    assert not any(runs(pid) for pid in inner), "perftest outlived its agent"


def test_sigterm_ends_the_test_and_writes_every_record(make_agents: Make) -> None:
    agents = make_agents(4, floor_s=5.0)
    agents.start(sweep(agents))
    while agents.model.server.tests < 2:
        time.sleep(0.02)
    inner = [pid for process in agents.processes.values() for pid in children_of(process.pid)]
    for process in agents.processes.values():
        process.send_signal(signal.SIGTERM)
    assert set(agents.wait(10).values()) == {1}
    for host in agents.addresses:
        assert agents.end(host)["end"] == "stopped"
        assert {record["status"] for record in agents.records(host)} == {"NOT_MEASURED"}
        assert len(agents.records(host)) == 3
    assert inner
    assert not any(runs(pid) for pid in inner)


def test_two_agents_never_run_on_one_host(make_agents: Make) -> None:
    agents = make_agents(2, floor_s=1.0)
    plans = sweep(agents)
    agents.start(plans)
    while not agents.model.server.tests:
        time.sleep(0.02)
    first = agents.processes["gpu00"]
    agents.start(plans, ["gpu00"])
    assert agents.processes["gpu00"].wait(10) == 3
    assert first.wait(10) == 0
    assert [record["status"] for record in agents.records("gpu00")] == ["OK"]


def test_the_budget_leaves_pairs_unmeasured_and_fails_none(make_agents: Make) -> None:
    agents = make_agents(6, floor_s=0.6)
    agents.start(sweep(agents, budget_s=1.5))
    agents.wait()
    statuses = [record["status"] for host in agents.addresses for record in agents.records(host)]
    assert set(statuses) == {"OK", "NOT_MEASURED"}
    assert len(statuses) == 6 * 5


def test_a_host_that_never_starts_is_given_up(make_agents: Make) -> None:
    agents = make_agents(4)
    plans = sweep(agents, start_wait_s=1.0)
    agents.start(plans, ["gpu00", "gpu01", "gpu02"])
    agents.wait(20)
    for host in ("gpu00", "gpu01", "gpu02"):
        assert sorted(record["status"] for record in agents.records(host)) == ["NOT_MEASURED", "OK", "OK"]


def test_a_taken_test_port_is_named(make_agents: Make) -> None:
    agents = make_agents(2)
    first, second = ((address, 18515) for address in agents.addresses.values())
    with socket.create_server(first), socket.create_server(second):
        agents.start(sweep(agents))
        agents.wait()
    assert [record["class"] for record in agents.records("gpu00")] == ["port_busy"]


def test_rounds_of_a_rerun_do_not_overlap(make_agents: Make) -> None:
    agents = make_agents(6, floor_s=0.4)
    rounds = [
        RerunRound((LinkTest("gpu00", "gpu01", 0),), True),
        RerunRound((LinkTest("gpu02", "gpu03", 0),), True),
        RerunRound((LinkTest("gpu00", "gpu02", 0), LinkTest("gpu04", "gpu05", 0)), False),
    ]
    agents.start(rerun_plans(Options("run-1"), agents.rails(), rounds))
    assert set(agents.wait().values()) == {0}
    first, second = agents.records("gpu01")[0], agents.records("gpu03")[0]
    assert first["alone"]
    assert second["alone"]
    assert not agents.records("gpu04")[0]["alone"]
    assert not {("gpu00", "gpu01", 0), ("gpu02", "gpu03", 0)} & agents.model.server.accompanied


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["a", "b"], 2)])
def test_wrong_use(make_agents: Make, arguments: list[str], code: int) -> None:
    agents = make_agents(2)
    done = subprocess.run(
        [sys.executable, agents.folder / "lium-roce-agent", *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr[:6]) == (code, "usage:")


def give(agents: Agents, program: str, script: str) -> None:
    path = agents.folder / "bin" / program
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def give_docker(agents: Agents, script: str) -> None:
    give(agents, "docker", script)


@pytest.mark.parametrize(("refusals", "expected"), [(1, ("OK", None)), (2, ("FAIL", "connect_refused"))])
def test_a_client_that_came_too_early_is_started_once_more(
    make_agents: Make, fake_perftest: Path, refusals: int, expected: tuple[str, str | None]
) -> None:
    agents = make_agents(2)
    starts = agents.folder / "starts"
    address = "|".join(agents.addresses.values())
    give(
        agents,
        "ib_write_bw",
        f"""
        for last; do :; done
        case $last in {address})
            echo client >> {starts}
            if [ $(/usr/bin/wc -l < {starts}) -le {refusals} ]; then echo "Couldn't connect to $last:18515"; exit 1; fi
        esac
        exec {fake_perftest} "$@"
        """,
    )
    agents.start(sweep(agents))
    agents.wait()
    (record,) = agents.records("gpu00")
    assert (record["status"], record["class"]) == expected
    assert starts.read_text().split() == ["client", "client"]
    assert agents.records("gpu01") == [record]


def test_the_platforms_image_gets_the_platforms_arguments(make_agents: Make) -> None:
    """A docker that starts the image's entry point on this host: it picks device and GID index itself (5.1)."""
    agents = make_agents(3)
    asked = agents.folder / "asked"
    give_docker(
        agents,
        f"""
        echo "$@" >> {asked}
        [ $1 = run ] || exit 0
        until [ $1 = probe:1 ]; do shift; done
        exec ib_write_bw -d mlx5_0 -i 1 -x 3 -p $3 -n $4 --report_gbits $5
        """,
    )
    agents.start(sweep(agents, settings=Settings(image="probe:1")))
    assert set(agents.wait().values()) == {0}
    records = [record for host in agents.addresses for record in agents.records(host)]
    assert {(record["status"], record["perftest"]) for record in records} == {("OK", None)}
    asked_of = [line.partition(" probe:1 ")[2].split() for line in asked.read_text().splitlines() if "run" in line]
    assert sorted(words[0] for words in asked_of) == ["client"] * 3 + ["server"] * 3
    assert {tuple(words[1:3]) for words in asked_of} == {("18515", "1000")}
    assert {words[3] for words in asked_of if words[0] == "client"} <= set(agents.addresses.values())


def test_a_rental_in_the_middle_ends_the_tests(make_agents: Make) -> None:
    agents = make_agents(4, floor_s=5.5)  # the third test begins after the guard's ten seconds
    give_docker(agents, "echo pod_77 filler_1")
    agents.start(sweep(agents))
    agents.wait()
    for host in agents.addresses:
        assert agents.end(host)["end"] in ("rented", "done")
        assert {record["class"] for record in agents.records(host)} <= {None, "rented", "peer_lost"}
    rented = [host for host in agents.addresses if agents.end(host)["end"] == "rented"]
    assert rented
    assert agents.end(rented[0])["why"] == "pod_77"


def test_a_slow_docker_does_not_make_an_agent_look_gone(make_agents: Make) -> None:
    agents = make_agents(4, floor_s=4.0)
    give_docker(agents, "/bin/sleep 6")
    agents.start(sweep(agents, limits=Limits(patience_s=4.0)))
    agents.wait()
    assert {record["status"] for host in agents.addresses for record in agents.records(host)} == {"OK"}
