"""The proof of the overlay's port: what both ends saw, and what it means."""

from __future__ import annotations

import dataclasses
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.lium.cluster.plugins.module_utils._docker import occupancy
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import holder
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import SetupError
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.rounds import opponents
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.sniffer import (
    ANSWER_IN,
    ANSWER_OUT,
    REQUEST_IN,
    REQUEST_OUT,
    Sniffer,
    classify,
)
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.verdict import Evidence, judge
from ansible_collections.lium.cluster.plugins.modules import wireguard_probe
from ansible_collections.lium.cluster.plugins.plugin_utils._wireguard_pairs import collect_tests, pair_records

from tests.collection.conftest import ROOT
from tests.collection.recorded_host import healthy_host

LOST = Evidence("a", "b", "10.0.0.2", 51820, "docker-publish", handshake=False, received=False, left=3, arrived=0)


@pytest.mark.parametrize(
    ("seen", "state", "cause", "fix", "culprit"),
    [
        (dataclasses.replace(LOST, handshake=True, received=True), "reachable", "both ends", "", ""),
        (LOST, "not verified", "does not arrive", "switch ACL", ""),
        (dataclasses.replace(LOST, tcp="refused"), "not verified", "TCP 51820 gets through", "Forward UDP as well", ""),
        (dataclasses.replace(LOST, tcp="open"), "not verified", "TCP 51820 gets through", "Forward UDP as well", ""),
        (dataclasses.replace(LOST, left=0), "not verified", "a sent nothing", "outgoing UDP 51820 on a", "a"),
        (dataclasses.replace(LOST, arrived=2, answered=0), "not verified", "b, which drops", "FORWARD path of b", "b"),
        (dataclasses.replace(LOST, arrived=2, udp_error="ECONNREFUSED"), "closed", "drops them", "wg.fw_forward", "b"),
        (dataclasses.replace(LOST, arrived=2, answered=2), "not verified", "lost on the way back", "switch, edge", ""),
        (
            dataclasses.replace(LOST, arrived=2, answered=2, answer_arrived=2),
            "not verified",
            "lost on the way back",
            "state on a",
            "a",
        ),
        (dataclasses.replace(LOST, udp_error="ECONNREFUSED"), "closed", "refused", "rejects", ""),
        (dataclasses.replace(LOST, handshake=True), "not verified", "does not arrive", "", ""),
    ],
)
def test_a_direction_that_fails_says_where(seen: Evidence, state: str, cause: str, fix: str, culprit: str) -> None:
    judgement = judge(seen)
    assert (judgement.state, judgement.culprit) == (state, culprit)
    assert cause in judgement.cause
    assert fix in judgement.fix
    assert bool(judgement.fix) is (state != "reachable")


def probe_facts(host: str, others: dict[str, bool], **changes: Any) -> dict[str, Any]:
    """Facts of a host that called ``others`` (name -> whether the handshake was seen) and was called by all of them."""
    row = {"address": "10.0.0.9", "port": 51820, "rtt_ms": 1.0, "rx_bytes": 9, "tx_bytes": 9, "at": "t"}
    facts = {
        "hosts": ["a", "b", "c"],
        "refused": "",
        "error": "",
        "own_addresses": ["10.0.0.1"],
        "path": "docker-publish",
        "range_port": 0,
        "sent": [
            {**row, "to": name, "handshake": seen, "udp_error": "", "tcp": "" if seen else "silent"}
            for name, seen in others.items()
        ],
        "received": [
            {"from": name, "port": 51820, "handshake": True, "rx_bytes": 148} for name in "abc" if name != host
        ],
        "wire": [],
    }
    return {"wireguard_probe": {**facts, **changes}}


def verdicts(facts: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    found = pair_records(facts, collect_tests(facts))
    return {host: (records[0].status, records[0].observed) for host, records in found.items()}


def good() -> dict[str, dict[str, Any]]:
    return {
        "a": probe_facts("a", {"b": True, "c": True}),
        "b": probe_facts("b", {"a": True, "c": True}),
        "c": probe_facts("c", {"a": True, "b": True}),
    }


def test_all_pairs_proven() -> None:
    assert verdicts(good()) == dict.fromkeys("abc", ("OK", "both directions proven with 2 of 2 hosts"))


def test_a_pair_is_open_only_if_both_ends_and_both_directions_say_so() -> None:
    facts = good()
    facts["b"]["wireguard_probe"]["received"] = []  # its receiver saw nobody, whatever the callers believe
    assert {host: status for host, (status, _) in verdicts(facts).items()} == {
        "a": "MUST_FIX",
        "b": "MUST_FIX",
        "c": "MUST_FIX",
    }
    facts = good() | {"a": probe_facts("a", {"b": False, "c": True})}
    assert {host: status for host, (status, _) in verdicts(facts).items()} == {
        "a": "MUST_FIX",
        "b": "MUST_FIX",
        "c": "OK",
    }


def test_a_rented_host_is_left_out_and_named() -> None:
    facts = {
        "a": probe_facts("a", {"b": True}),
        "b": probe_facts("b", {"a": True}),
        "c": {"wireguard_probe": {"hosts": ["a", "b", "c"], "refused": "a rental runs (pod_1)", "sent": []}},
    }
    found = verdicts(facts)
    assert found["c"] == ("SKIPPED", "not probed: a rental runs (pod_1)")
    assert found["a"][0] == "SKIPPED"
    assert "1 of 2 hosts; left out: c (a rental runs (pod_1))" in found["a"][1]


def test_a_test_without_an_end_is_unknown() -> None:
    facts = good() | {"c": {"wireguard_probe": {"hosts": ["a", "b", "c"], "refused": "", "error": "", "sent": []}}}
    facts["a"]["wireguard_probe"]["sent"] = facts["a"]["wireguard_probe"]["sent"][:1]
    facts["b"]["wireguard_probe"]["sent"] = facts["b"]["wireguard_probe"]["sent"][:1]
    assert verdicts(facts)["a"][0] == "UNKNOWN"


def two_hosts(called: dict[int, bool], range_port: int = 0, **changes: Any) -> dict[str, dict[str, Any]]:
    """Hosts a and b that called each other at ports (port -> whether it is open)."""
    facts = {}
    for host, other in (("a", "b"), ("b", "a")):
        own = probe_facts(host, {other: True}, hosts=["a", "b"], range_port=range_port, **changes)
        (row,) = own["wireguard_probe"]["sent"]
        own["wireguard_probe"]["sent"] = [
            {**row, "port": port, "handshake": seen, "tcp": "" if seen else "silent"} for port, seen in called.items()
        ]
        own["wireguard_probe"]["received"] = [
            {"from": other, "port": port, "handshake": True, "rx_bytes": 148} for port, seen in called.items() if seen
        ]
        facts[host] = own
    return facts


PROVEN = "both directions proven with 1 of 1 hosts"


@pytest.mark.parametrize("listed", [False, True], ids=["ports-of-the-tests", "ports-of-the-facts"])
@pytest.mark.parametrize(
    ("ports", "status", "observed"),
    [
        ({50000: True}, "OK", PROVEN),
        ({50000: False}, "MUST_FIX", "stops UDP 50000"),
        ({51820: True, 50000: True}, "OK", PROVEN),
        ({51820: True, 50000: False}, "MUST_FIX", "stops UDP 50000"),
        ({51820: False, 50000: True}, "MUST_FIX", "stops UDP 51820"),
    ],
)
def test_every_port_of_the_overlay_counts(listed: bool, ports: dict[int, bool], status: str, observed: str) -> None:
    facts = two_hosts(ports, ports=list(ports)) if listed else two_hosts(ports)
    for found, text in verdicts(facts).values():
        assert (found, observed in text) == (status, True), text


def test_a_port_that_nobody_called_is_not_proven() -> None:
    facts = two_hosts({51820: True}, ports=[51820, 50000])
    assert {status for status, _ in verdicts(facts).values()} == {"UNKNOWN"}


@pytest.mark.parametrize(("open_", "status"), [(True, "OK"), (False, "WARN")])
def test_the_port_of_the_renting_range_has_a_record_of_its_own(open_: bool, status: str) -> None:
    facts = two_hosts({51820: True, 9000: open_}, range_port=9000)
    # A range is its host's own: 9001 of b is nothing that a could have been called at.
    facts["b"]["wireguard_probe"]["range_port"] = 9001
    _pairs, own = pair_records(facts, collect_tests(facts))["a"]
    assert (own.id, own.status) == ("wg.range_udp_unverified", status)
    facts["b"]["wireguard_probe"]["range_port"] = 9000
    for records in pair_records(facts, collect_tests(facts)).values():
        assert [record.status for record in records] == ["OK", status]


def test_a_port_of_both_kinds_counts_for_both() -> None:
    """Where the renting range is the overlay's port alone, its proof is the range's as well."""
    facts = two_hosts({51820: False}, range_port=51820, ports=[51820])
    assert [record.status for record in pair_records(facts, collect_tests(facts))["a"]] == ["MUST_FIX", "WARN"]


def test_a_range_that_could_not_be_published_costs_the_overlay_nothing() -> None:
    facts = two_hosts({51820: True}, ports=[51820], range_error="docker run: port is already allocated")
    for pairs, own in pair_records(facts, collect_tests(facts)).values():
        assert (pairs.status, own.status) == ("OK", "WARN")
        assert own.observed == "docker run: port is already allocated"


def test_a_host_that_could_not_open_must_be_fixed() -> None:
    facts = good() | {"c": {"wireguard_probe": {"hosts": ["a", "b", "c"], "refused": "", "error": "port is allocated"}}}
    for host in "ab":
        facts[host]["wireguard_probe"]["sent"] = facts[host]["wireguard_probe"]["sent"][:1]
    assert verdicts(facts)["c"] == ("MUST_FIX", "the probe failed here: port is allocated")


def test_without_docker_the_forward_path_was_not_tested() -> None:
    facts = good()
    for host in facts:
        facts[host]["wireguard_probe"]["path"] = "host"
    assert {status for status, _ in verdicts(facts).values()} == {"WARN"}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 16, 32])
def test_everybody_calls_everybody_once(count: int) -> None:
    hosts = [f"h{number}" for number in range(count)]
    for host in hosts:
        order = opponents(hosts, host)
        assert sorted(order) == sorted(name for name in hosts if name != host)


@pytest.mark.parametrize(
    ("names", "tests", "drivers"),
    [
        ("", "", ""),
        ("pod_3f1c", "a rental runs (pod_3f1c)", "a rental runs (pod_3f1c)"),
        ("filler_7", "", "a filler job runs (filler_7)"),
        ("lium_roce_probe", "the platform is measuring this host", "the platform is measuring this host"),
    ],
)
def test_who_keeps_a_host_busy(names: str, tests: str, drivers: str, make_probe: Any) -> None:
    found = occupancy(make_probe({}, {"docker ps --format {{.Names}}": f"{names}\n"}))
    assert (found.busy_for_tests, found.busy_for_drivers) == (tests, drivers)


def test_a_docker_that_does_not_answer_counts_as_busy(make_probe: Any) -> None:
    down: HostProbe = make_probe({}, {"docker ps --format {{.Names}}": {"rc": 1, "stderr": "Cannot connect"}})
    assert "cannot tell whether a rental runs" in occupancy(down).busy_for_tests
    assert occupancy(make_probe()).busy_for_tests == ""


def packet(source: str, destination: str, source_port: int, destination_port: int, fragment: int = 0) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 60, 1, fragment, 64, 17, 0)
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    return head + addresses + struct.pack("!HHHH", source_port, destination_port, 40, 0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (packet("10.0.0.2", "10.0.0.1", 40000, 51820), (REQUEST_IN, "10.0.0.2", 51820)),
        (packet("10.0.0.1", "10.0.0.2", 40000, 51820), (REQUEST_OUT, "10.0.0.2", 51820)),
        (packet("10.0.0.2", "10.0.0.1", 51820, 40000), (ANSWER_IN, "10.0.0.2", 51820)),
        (packet("10.0.0.1", "10.0.0.2", 51820, 40000), (ANSWER_OUT, "10.0.0.2", 51820)),
        (packet("10.0.0.2", "172.17.0.2", 40000, 51820), None),
        (packet("10.0.0.2", "10.0.0.1", 40000, 53), None),
        (packet("10.0.0.2", "10.0.0.1", 40000, 51820, fragment=8), None),
        (packet("10.0.0.2", "10.0.0.1", 40000, 51820)[:20], None),
        (b"", None),
        (b"\x60" + bytes(60), None),
    ],
)
def test_packets_are_told_apart(data: bytes, expected: tuple[str, str, int] | None) -> None:
    assert classify(data, {socket.inet_aton("10.0.0.1")}, {51820}) == expected


def root_only() -> None:
    if os.geteuid() != 0:
        pytest.fail("packets can be watched by root alone: run the tests as root")


def test_the_wire_shows_what_comes_and_what_leaves() -> None:
    """On a pair of netdevs of its own; a packet that leaves is seen as well as one that comes."""
    root_only()
    namespace, near, far = f"wire{os.getpid()}", f"wn{os.getpid()}", f"wf{os.getpid()}"
    run = lambda *argv: subprocess.run(argv, check=True, capture_output=True, timeout=30)  # noqa: E731
    run("ip", "netns", "add", namespace)
    try:
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", namespace)
        run("ip", "address", "add", "198.18.77.1/30", "dev", near)
        run("ip", "link", "set", near, "up")
        run("ip", "-n", namespace, "address", "add", "198.18.77.2/30", "dev", far)
        run("ip", "-n", namespace, "link", "set", far, "up")
        sniffer = Sniffer(["198.18.77.1"], [51820])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind(("198.18.77.1", 0))
            sender.sendto(b"x", ("198.18.77.2", 51820))
        code = "import socket; s = socket.socket(2, 2); s.sendto(b'x', ('198.18.77.1', 51820))"
        run("ip", "netns", "exec", namespace, "python3", "-c", code)
        end = time.monotonic() + 10
        wanted = {(REQUEST_OUT, "198.18.77.2", 51820), (REQUEST_IN, "198.18.77.2", 51820)}
        while not wanted <= set(sniffer.counts) and time.monotonic() < end:
            if select.select([sniffer], [], [], 0.2)[0]:
                sniffer.take()
        assert wanted <= set(sniffer.counts)
        sniffer.close()
    finally:
        run("ip", "netns", "delete", namespace)


def test_only_one_test_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "lock" / "probe.lock")
    first = holder.take_lock(path)
    with pytest.raises(holder.Busy, match="another network test runs"):
        holder.take_lock(path)
    os.close(first)
    os.close(holder.take_lock(path))


@pytest.mark.parametrize("how", ["told", "by itself", "killed"])
def test_the_holder_cleans_up_and_frees_the_lock(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root_only()
    monkeypatch.setattr(holder, "FOLDER", str(tmp_path / "state"))
    path, mark = str(tmp_path / "probe.lock"), tmp_path / "cleaned"
    lock = holder.take_lock(path)
    holder.write_state("state.json", {})
    found = holder.leave_behind(lock, ["127.0.0.1"], [51820], 1.0 if how == "by itself" else 60.0, mark.touch)
    os.close(lock)
    with pytest.raises(holder.Busy):
        holder.take_lock(path)
    if how == "told":
        assert holder.end_holder(found)
    elif how == "killed":
        os.kill(found["pid"], 9)
    os.waitpid(found["pid"], 0)
    os.close(holder.take_lock(path))
    assert mark.exists() is (how != "killed")
    kept = {"told": ["state.json", "wire.json"], "by itself": None, "killed": ["state.json"]}[how]
    folder = tmp_path / "state"
    assert (sorted(path.name for path in folder.iterdir()) if folder.exists() else None) == kept
    assert not holder.end_holder(found), "a process of another that has its number is never told to end"


def test_a_step_of_the_play_renews_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root_only()
    monkeypatch.setattr(holder, "FOLDER", str(tmp_path / "state"))
    asked, answers = tmp_path / "asked", iter([0.2, 0.2])

    def renewed() -> float:
        with asked.open("a", encoding="ascii") as stream:
            stream.write("asked\n")
        return time.monotonic() + next(answers, 0.0)

    monkeypatch.setattr(holder, "_renewed", renewed)
    lock = holder.take_lock(str(tmp_path / "probe.lock"))
    found = holder.leave_behind(lock, ["127.0.0.1"], [51820], 0.1, lambda: None)
    os.close(lock)
    os.waitpid(found["pid"], 0)
    assert asked.read_text(encoding="ascii") == "asked\n" * 3


def test_a_lease_is_the_holders_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "FOLDER", str(tmp_path / "state"))
    assert holder._renewed() == 0.0
    own = {"holder": {"pid": os.getpid(), "start": "1"}, **holder.lease(5.0)}
    holder.write_state("state.json", own)
    first = holder._renewed()
    holder.renew(own)
    assert 0.0 < first <= holder._renewed()
    holder.write_state("state.json", {**own, "holder": {"pid": 1, "start": "1"}})
    assert holder._renewed() == 0.0
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(FileNotFoundError):
        holder.renew(own)
    assert not (tmp_path / "state").exists(), "a step that comes too late leaves nothing"


def test_an_open_probe_says_whose_it_is_and_how_to_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "FOLDER", str(tmp_path / "state"))
    path, pid = str(tmp_path / "probe.lock"), os.getpid()
    first = holder.take_lock(path)
    own = {"holder": {"pid": pid, "start": holder.start_time(pid)}, **holder.lease(60.0)}
    holder.write_state("state.json", own)
    with pytest.raises(holder.Busy, match=f"another verify_wireguard.*until {own['until_utc']}.*`kill {pid}` as root"):
        holder.take_lock(path)
    os.close(first)


@pytest.mark.parametrize(
    ("hosts", "forks", "ports", "public", "seconds"),
    [
        (2, 5, 1, False, 15 * 2),
        (32, 5, 1, False, 7 * 31 * 15 * 2),
        (32, 50, 2, True, 31 * 15 * 3 * 2),
        (6, 5, 1, False, 2 * 5 * 15 * 2),
    ],
)
def test_a_probe_waits_as_long_as_the_others_call(
    hosts: int, forks: int, ports: int, public: bool, seconds: int
) -> None:
    text = yaml.safe_load((ROOT / "roles/wireguard/vars/main.yml").read_text(encoding="utf-8"))["_wireguard_calls_s"]
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["bool"] = bool
    known = {"_wireguard_hosts": ["h"] * hosts, "ansible_forks": forks, "wireguard_udp_ports": [1] * ports}
    assert int(environment.from_string(text).render(**known, wireguard_probe_public=public)) == seconds


def opened_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taken: set[int], **options: Any) -> dict[str, Any]:
    """What step ``open`` answers on an idle host where Docker cannot publish the ports ``taken``."""

    def publish(_number: int, ports: list[int], *_rest: object) -> dict[str, Any]:
        if taken & set(ports):
            raise SetupError(f"docker run: Bind for 0.0.0.0:{min(taken)} failed: port is already allocated")
        return {"keys": [f"key{port}" for port in ports], "sender_key": "key", "path": "docker-publish"}

    root = healthy_host(random.Random(1)).write(tmp_path / "host")
    monkeypatch.setattr(wireguard_probe, "open_probe", lambda *_given: open_probe(str(root), {}))
    monkeypatch.setattr(wireguard_probe.probe, "open_probe_ports", publish)
    given = {"name": "a", "hosts": ["a", "b"], "ports": [51820], "addresses": ["10.0.0.1"], "lifetime": 9, **options}
    answer: dict[str, Any] = wireguard_probe._open(given)
    return answer


@pytest.mark.parametrize(
    ("taken", "range_port", "called", "proven", "error"),
    [
        (set(), 9000, [51820, 9000], 9000, ""),
        ({9000}, 9000, [51820], 0, "9000 failed: port is already allocated"),
        (set(), 51820, [51820], 51820, ""),
        (set(), 0, [51820], 0, ""),
    ],
)
def test_a_taken_port_of_the_range_does_not_cost_the_proof(
    taken: set[int],
    range_port: int,
    called: list[int],
    proven: int,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = opened_host(monkeypatch, tmp_path, taken, range_port=range_port)
    assert (answer["member"]["ports"], answer["ports"], answer["range_port"]) == (called, [51820], proven)
    assert (error in answer["range_error"], bool(answer["range_error"])) == (True, bool(error))


def test_a_taken_port_of_the_overlay_ends_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="51820 failed"):
        opened_host(monkeypatch, tmp_path, {51820}, range_port=9000)
