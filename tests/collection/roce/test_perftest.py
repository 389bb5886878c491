"""What perftest prints, read: recorded runs, the texts of host-contract 5.3, and whatever else may come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._roce.command import RailAt, Settings, perftest
from ansible_collections.lium.cluster.plugins.module_utils._roce.failures import CAUSES, End, classify
from ansible_collections.lium.cluster.plugins.module_utils._roce.perftest import read, read_json, read_row
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[2] / "fixtures" / "recorded"

HEAD = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : {link}
 {gid} index       : 3
 rdma_cm QPs\t : OFF
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x01a7 PSN 0x5c2f19 RKey 0x1fff00 VAddr 0x007f5a3c010000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:30:11
 remote address: LID 0000 QPN 0x01b2 PSN 0xe1a004 RKey 0x1fff00 VAddr 0x007f11d8010000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:30:12
---------------------------------------------------------------------------------------
"""
COLUMNS = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n"


def table(row: str, unit: str = "Gb/sec", link: str = "Ethernet", gid: str = "GID", more: str = "") -> str:
    columns = COLUMNS.format(unit)
    return HEAD.format(link=link, gid=gid) + (columns[:-1] + more + "\n" if more else columns) + row + "\n" + "-" * 87


def recorded(name: str) -> End:
    found = json.loads((RECORDED / f"{name}.json").read_text())
    return End(found["rc"], found["stdout"], found["stderr"])


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("ib-write-bw-ok", 0.18),
        ("ib-write-bw-ok-gid0", 0.29),
        ("ib-write-bw-loss1", 0.030895),
        ("ib-write-bw-cm-ok", None),
        ("ib-send-bw-ok", 0.10),
        ("ib-read-bw-ok", 0.21),
    ],
)
def test_recorded_runs_that_ended_well(name: str, rate: float | None) -> None:
    seen = read(recorded(f"{name}-client"), recorded(f"{name}-server"))
    assert seen.failure is None
    assert seen.gigabits_per_second is not None
    assert seen.gigabits_per_second > 0
    assert rate is None or seen.gigabits_per_second == rate
    assert (seen.mtu, seen.link_type) == (1024, "Ethernet")


@pytest.mark.parametrize(
    ("name", "expected", "fix"),
    [
        ("bad-dev", "no_device", "rdma link"),
        ("bad-gid", "gid_or_route", "GID"),
        ("no-server", "connect_refused", "server end"),
        ("cm-drop-midrun", "fabric_drop", "UDP 4791"),
        # Both ends had exchanged addresses over TCP: only RDMA can be what is missing.
        ("drop4791", "fabric_drop", "UDP 4791"),
        ("drop4791-small", "fabric_drop", "UDP 4791"),
        ("drop4791-u10", "fabric_drop", "UDP 4791"),
        ("loss5", None, "UDP 4791"),
        ("loss10", "fabric_drop", "UDP 4791"),
        # Silent: the deadline is the only judge, and the place stays open.
        ("big-dropped", "hang", "MTU"),
        ("control-dropped", "hang", "TCP 18515"),
        ("drop4791-to-client", "hang", "UDP 4791"),
        ("drop4791-to-server", "hang", "UDP 4791"),
        ("loss50", "hang", "UDP 4791"),
    ],
)
def test_recorded_failures(name: str, expected: str | None, fix: str) -> None:
    server = RECORDED / f"ib-write-bw-{name}-server.json"
    seen = read(recorded(f"ib-write-bw-{name}-client"), recorded(server.stem) if server.exists() else None)
    assert seen.gigabits_per_second is None
    assert seen.failure is not None
    assert expected is None or seen.failure.name == expected
    assert fix in seen.failure.fix


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Couldn't connect to 10.20.30.12:18515\nUnable to open file descriptor for socket connection", "connect"),
        ("Couldn't listen to port 18515", "port_busy"),
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device", "no_device"),
        ("No IB devices found", "no_device"),
        (
            " Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device",
            "port_down",
        ),
        (
            "Couldn't allocate MR with error=12\nfailed to create mr\n Couldn't create IB resources",
            "memlock",
        ),
        ("Couldn't allocate MR", "memlock"),
        ("Failed to modify QP 423 to RTR\n Unable to Connect the HCA's through the link", "gid_or_route"),
        ("\n Found Incompatibility issue with GID types.\n Please Try to use a different IP version.", "gid_types"),
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0", "fabric_drop"),
        (" Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81", "fabric_drop"),
        (" Failed status 13: wr_id 0 syndrom 0x87", "receiver"),
        (" Failed status-RNR retry counter exceeded (13): wr_id 0 syndrom 0x87", "receiver"),
        (" Failed status 10: wr_id 0 syndrom 0x88", "completion"),
        (" Failed status 5: wr_id 0 syndrom 0xf9", "secondary"),
        (" Failed status 5: wr_id 0 syndrom 0xf9\n Failed status 12: wr_id 0 syndrom 0x81", "fabric_drop"),
        ("ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm", "peer_died"),
        ("Requested mtu is higher than active mtu", "mtu"),
        ("lium-roce-probe: this host names no single RoCE rail, nothing to measure", "no_single_rail"),
        ("lium-cluster: no ACTIVE RDMA port answers verbs in this pod", "no_active_port"),
        (
            "docker: Error response from daemon: error gathering device information while adding custom device"
            ' "/dev/infiniband": no such file or directory.',
            "no_nodes",
        ),
        ("Unable to find image 'daturaai/lium-rdma-probe:0.0.1' locally\ntoomanyrequests: rate limit", "image"),
        ("sh: 1: ib_write_bw: not found", "no_perftest"),
        ("ib_write_bw: unrecognized option '--tclass=106'", "bad_option"),
        ("something else altogether", "failed"),
        ("", "failed"),
    ],
)
def test_failure_texts(text: str, expected: str) -> None:
    for end in (End(1, text, ""), End(1, "", text)):
        assert classify(end).name == expected


def test_the_servers_own_cause_outranks_what_the_client_saw_of_it() -> None:
    refused = End(1, "", "Couldn't connect to 10.20.30.12:18515")
    told = classify(refused, End(1, "", "IB device mlx5_9 not found"))
    assert (told.name, told.end) == ("no_device", "server")
    assert classify(refused, End(1, "", "Couldn't listen to port 18515")).name == "port_busy"


def test_a_filtered_test_port_is_told_from_lost_rdma_packets() -> None:
    waiting = End(None, "\n* Waiting for client to connect... *\n", timed_out=True)
    assert classify(End(None, "", timed_out=True), waiting).name == "connect"
    exchanged = End(None, HEAD.format(link="Ethernet", gid="GID") + COLUMNS.format("Gb/sec"), timed_out=True)
    assert classify(exchanged, waiting).name == "fabric_drop"
    assert classify(End(None, "", timed_out=True)).name == "hang"


@pytest.mark.parametrize(
    ("rc", "expected"), [(139, "crash"), (-6, "crash"), (137, "killed"), (-9, "killed"), (127, "no_perftest")]
)
def test_exit_codes_are_asked_where_no_text_tells(rc: int, expected: str) -> None:
    assert classify(End(rc)).name == expected


def test_the_shapes_of_a_row() -> None:
    row = " 65536      1000             97.83              97.71  \t\t     0.186364"
    assert read_row(table(row)) == (65536, 1000, 97.83, 97.71, "Gb/sec")
    old = read(End(0, table(row, gid="Gid")), gid_index=3)
    assert (old.gigabits_per_second, old.mtu, old.gid_index) == (97.71, 4096, 3)
    with_cpu = table(row + "   3.21", more="   CPU_Util[%]")
    assert read(End(0, with_cpu)).gigabits_per_second == 97.71
    four_qps = table(row).replace("Number of qps   : 1", "Number of qps   : 4")
    assert read(End(0, four_qps)).gigabits_per_second == 97.71


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (End(0, table(" 65536 1000 0.00 0.00 0.000000")), "zero"),
        (End(0, table(" 65536 1000 nan nan nan")), "no_row"),
        (End(0, table(" 65536 1000 97.83 97.71 0.186364", unit="MiB/sec")), "unit_mismatch"),
        (End(0, table(" 65536 1000 97.83 97.71 0.186364", link="IB")), "link_type"),
        (End(0, table("")), "no_row"),
        (End(0, ""), "no_row"),
        # perftest prints the table and fails afterwards.
        (End(1, table(" 65536 1000 97.83 97.71 0.186364"), " Failed status 12: wr_id 0"), "fabric_drop"),
        (End(1, table(" 65536 1000 97.83 97.71 0.186364")), "failed"),
    ],
)
def test_a_row_that_is_no_proof(end: End, expected: str) -> None:
    seen = read(end)
    assert seen.gigabits_per_second is None
    assert seen.failure is not None
    assert seen.failure.name == expected


def test_another_gid_index_than_asked_for_is_no_proof() -> None:
    seen = read(End(0, table(" 65536 1000 97.83 97.71 0.186364")), gid_index=1)
    assert seen.failure is not None
    assert seen.failure.name == "gid_index"


def test_every_class_has_its_cause_and_fix() -> None:
    for name, cause in CAUSES.items():
        assert cause.cause, name
        assert cause.fix, name
        assert cause.part in ("host", "nic", "cable", None), name


FRAGMENTS = [
    COLUMNS.format("Gb/sec"),
    COLUMNS.format("MB/sec"),
    " 65536 1000 97.83 97.71 0.186364\n",
    " 65536 1000 inf 1e999 0\n",
    "Failed status 12",
    "GID index : 0\n local address: x\n GID: 00:00\n remote address: y",
    '{"results": {"BW_average": "x"}}',
    "{results: {BW_average: 97.31,},}",
]


@given(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=40)), max_size=6).map("".join),
    st.sampled_from([0, 1, 124, 139, 255, -11, None]),
    st.integers(0, 200),
)
@settings(max_examples=300, deadline=None)
def test_whatever_is_printed_gives_a_rate_or_a_cause(text: str, rc: int | None, cut: int) -> None:
    seen = read(End(rc, text[:cut]), End(rc, "", text), out_json=text)
    assert (seen.gigabits_per_second is None) != (seen.failure is None)
    if seen.gigabits_per_second is not None:
        assert rc == 0
        assert 0 < seen.gigabits_per_second < float("inf")
    read_json(text)


RUN = (
    "docker run --rm --name lium_roce_verify --network host --device /dev/infiniband --cap-add IPC_LOCK"
    " --ulimit memlock=-1:-1 daturaai/lium-rdma-probe:0.0.1"
)


@pytest.mark.parametrize(
    ("settings", "number", "server"),
    [
        (Settings(), 0, "ib_write_bw -d mlx5_4 -i 2 -x 3 -p 18515 -n 1000 --report_gbits"),
        # One port for all in the platform's mode.
        (Settings(), 1, "ib_write_bw -d mlx5_4 -i 2 -x 3 -p 18515 -n 1000 --report_gbits"),
        (Settings(image="daturaai/lium-rdma-probe:0.0.1"), 0, f"{RUN} server 18515 1000"),
        (
            Settings(18615, 5000, 0, 4, 106, diagnostic=True),
            1,
            "ib_write_bw -d mlx5_4 -i 2 -x 3 -p 18616 -n 5000 -q 4 --tclass=106 -F --report_gbits",
        ),
        (
            Settings(18615, 5000, 10, 1, diagnostic=True),
            0,
            "ib_write_bw -d mlx5_4 -i 2 -x 3 -p 18615 -D 10 -F --report_gbits",
        ),
    ],
)
def test_the_command_is_the_contracts(settings: Settings, number: int, server: str) -> None:
    """Host-contract 5.1 and 5.2, to the letter; the client's has the server's address behind it."""
    own = RailAt("mlx5_4", 2, 3, "10.20.30.11")
    assert perftest(settings, own, number, None) == server.split()
    client = server.replace(" server ", " client ")
    assert perftest(settings, own, number, "10.20.30.12") == [*client.split(), "10.20.30.12"]
