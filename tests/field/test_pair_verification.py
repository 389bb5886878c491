"""Field cases on pair verification: the inputs stand in cases/, the right outcome in each expected.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, RecordedRunner
from ansible_collections.lium.cluster.plugins.module_utils._roce import perftest
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import End, classify
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import read, read_json
from ansible_collections.lium.cluster.plugins.module_utils._roce.testable import look
from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import timetable

CASES = Path(__file__).parent / "cases"


def case(name: str, file: str) -> str:
    return (CASES / name / file).read_text()


def test_b89_a_gid_of_another_namespace_is_no_rail(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    shutil.copytree(CASES / "B89" / "sysfs" / "class", tmp_path / "sys/class")
    for name, text in (("state", "4: ACTIVE"), ("link_layer", "Ethernet"), ("rate", "100 Gb/sec (4X EDR)")):
        (port / name).write_text(text)
    answers = {"ip -j addr show": {"stdout": case("B89", "ip-j-addr.json")}}
    seen = look(HostProbe(RecordedRunner(answers), str(tmp_path)), {})
    record = seen.records[0]
    assert (record.id, record.status) == ("roce.testable", "MUST_FIX")
    assert "no GID of an address in this network namespace: mlx5_0:1 192.0.2.19" in record.observed
    assert "host's network" in record.remediation
    assert seen.facts["roce"]["rails"] == []


@pytest.mark.parametrize("file", ["old.json", "new.json"])
def test_b90_json_that_is_not_json(file: str) -> None:
    assert read_json(case("B90", file)) == 97.31
    assert read(End(0), out_json=case("B90", file)).gigabits_per_second == 97.31


@pytest.mark.parametrize("file", ["gb.txt", "mb.txt"])
def test_b91_average_not_peak_and_the_unit_counts(file: str) -> None:
    rate = read(End(0, case("B91", file))).gigabits_per_second
    assert rate == pytest.approx(94.49, abs=0.01)


def test_b93_a_warning_inside_the_table() -> None:
    assert read(End(0, case("B93", "out.txt"))).gigabits_per_second == 96.20


def test_b94_an_all_zero_gid_is_named() -> None:
    told = read(End(1, case("B94", "client.txt"))).failure
    assert told is not None
    assert (told.name, told.cause) == ("gid_empty", "GID index 0 is empty")
    assert "fabric address" in told.fix


@pytest.mark.parametrize(
    ("file", "name", "word"), [("a.txt", "memlock", "memory lock"), ("b.txt", "peer_memory", "peer-memory")]
)
@pytest.mark.parametrize("rc", [139, -11])
def test_b96_the_crash_does_not_hide_the_cause(file: str, name: str, word: str, rc: int) -> None:
    assert int(case("B96", "rc.txt")) == 139
    told = classify(End(rc, "", case("B96", file)))
    assert told.name == name
    assert word in told.cause


def test_b97_an_ipv6_peer() -> None:
    peer = json.loads(case("B97", "peer.json"))
    assert perftest.control_address([peer["host_ip"], peer["overlay_ip"]]) == "10.42.0.2"
    with pytest.raises(perftest.NoControlAddress, match="newer perftest"):
        perftest.control_address([peer["host_ip"]])
    told = classify(End(1, "", case("B97", "error.txt")))
    assert told.name == "address_family"
    assert "newer perftest" in told.fix


def test_b99_status_12_names_what_to_check() -> None:
    told = read(End(1, case("B99", "out.txt"))).failure
    assert told is not None
    assert told.name == "fabric_drop"
    assert told.quote.startswith("Failed status 12")
    for word in ("GID version", "UDP 4791", "same rail"):
        assert word in told.cause
    assert "ping proves nothing" in told.fix


def test_b101_the_clients_cause_comes_first() -> None:
    told = classify(End(1, "", case("B101", "client.txt")), End(1, "", case("B101", "server.txt")))
    assert (told.name, told.end) == ("fabric_drop", "client")
    assert classify(End(1), End(1, "", case("B101", "server.txt"))).name == "peer_died"


def test_b102_no_host_card_or_port_twice_at_a_time() -> None:
    hosts = json.loads(case("B102", "hosts.json"))
    rounds = timetable({name: range(len(host["hcas"])) for name, host in hosts.items()})
    covered = set()
    for meetings in rounds:
        busy = [host for meeting in meetings for host in meeting[:2]]
        assert len(busy) == len(set(busy))  # one test at a time on a host: so none twice on a card or a port either
        covered |= {(frozenset(meeting[:2]), test.rail) for meeting in meetings for test in meeting.tests}
    assert len(covered) == 6 * 2


def test_b102_a_late_server_is_a_lost_race_and_not_a_failed_pair() -> None:
    late = End(1, "", case("B102", "late-server.txt"))
    told = read(late, seconds=0.1).failure
    assert told is not None
    assert perftest.lost_race(told)
    filtered = read(late, seconds=130.0).failure
    assert filtered is not None
    assert not perftest.lost_race(filtered)
