"""Field cases of the lossless check: what tools print, and what a host with it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._look import Look
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.dcb import parse_dcb_pfc
from ansible_collections.lium.cluster.plugins.module_utils._lossless.mlnx_qos import parse_mlnx_qos
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ethtool_pause
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed, open_probe

from tests.collection.lossless.hosts import NETDEV, lossless_host
from tests.collection.recorded_host import RecordedHost

CASES = Path(__file__).parent / "cases"


def text(case: str, name: str) -> str:
    return (CASES / case / name).read_text(encoding="utf-8")


def look(host: RecordedHost, folder: Path, **options: object) -> Look:
    return look_at_lossless(open_probe(str(host.write(folder)), {}), options)


def records(host: RecordedHost, folder: Path, **options: object) -> dict[str, tuple[str, str]]:
    return {record.id: (record.status, record.observed) for record in look(host, folder, **options).records}


def with_qos(case: str, name: str) -> RecordedHost:
    host = lossless_host()
    host.answer(f"mlnx_qos -i {NETDEV}", text(case, name))
    return host


def test_b64_only_the_priority_of_roce_counts(tmp_path: Path) -> None:
    found = records(with_qos("B64", "mlnx_qos-many.txt"), tmp_path / "many", priority=3)
    status, observed = found["roce.pfc"]
    assert status == "MUST_FIX"
    assert "PFC on priority 0,2,6,7, not on 3, 4 lossless priorities" in observed
    assert found["roce.lossless"][0] == "MUST_FIX"
    good = records(with_qos("B64", "mlnx_qos-good.txt"), tmp_path / "good", priority=3)
    assert good["roce.pfc"][0] == "OK"


def test_b65_the_buffer_row_is_not_the_enabled_row(tmp_path: Path) -> None:
    found = records(with_qos("B65", "mlnx_qos-buffer.txt"), tmp_path / "buffer")
    assert found["roce.pfc"] == ("MUST_FIX", f"mlx5_0:1 ({NETDEV}): PFC on priority none, not on 3")
    assert found["roce.buffers"][0] == "OK"
    short = records(with_qos("B65", "mlnx_qos-short.txt"), tmp_path / "short")
    assert short["roce.pfc"][0] == "OK"
    assert parse_mlnx_qos(text("B65", "mlnx_qos-short.txt")).dscp_map == dict.fromkeys(range(0), 0) | {
        dscp: dscp // 8 for dscp in range(64)
    }


@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        ("mlnx_qos-dscp26-prio0.txt", "roce.dscp_map", "DSCP 26 -> priority 0"),
        ("mlnx_qos-trust-pcp.txt", "roce.trust", "pcp: untagged packets all get priority 0"),
    ],
)
def test_b67_the_chain_is_followed_to_its_broken_link(name: str, rule: str, said: str, tmp_path: Path) -> None:
    found = look(with_qos("B67", name), tmp_path / "host")
    by_id = {record.id: record for record in found.records}
    assert (by_id[rule].status, said in by_id[rule].observed) == ("MUST_FIX", True)
    assert by_id["roce.pfc"].status == by_id["roce.effective_dscp"].status == "OK", "each for itself looks right"
    assert by_id["roce.lossless"].status == "MUST_FIX"
    assert f"the chain breaks at priority ({rule})" in by_id["roce.lossless"].observed
    assert found.facts["lossless"]["rails"][0]["broken_link"] == "priority"


@pytest.mark.parametrize(("name", "received"), [("bnxt.txt", 17), ("mlx5.txt", 42)])
def test_b69_each_vendor_has_its_own_names(name: str, received: int, tmp_path: Path) -> None:
    """What is not in the output is not known."""
    assert pause_frames(text("B69", name), tmp_path / "host") == {"received": received, "sent": None}


def test_b69_a_card_with_neither_name_is_unknown(tmp_path: Path) -> None:
    assert pause_frames(text("B69", "neither.txt"), tmp_path / "host") == {"received": None, "sent": None}
    assert pause_frames("no stats available\n", tmp_path / "none") == {"received": None, "sent": None}


def pause_frames(counters: str, folder: Path) -> object:
    """What the check shows of the pause frames of a host's one rail."""
    host = lossless_host()
    host.answer(f"ethtool -S {NETDEV}", counters)
    (rail,) = look(host, folder, priority=3).facts["lossless"]["rails"]
    return rail["pause_frames"]


@pytest.mark.parametrize("name", ["a.txt", "b.txt"])
@pytest.mark.parametrize("rc", [76, 1])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_b70_pause_that_is_not_supported_is_unknown(name: str, rc: int, stream: str, tmp_path: Path) -> None:
    host = lossless_host()
    host.commands[f"ethtool -a {NETDEV}"] = {"rc": rc, stream: text("B70", name)}
    status, observed = records(host, tmp_path / "host")["roce.pause"]
    assert status == "UNKNOWN"
    assert "pause state of" in observed
    assert "unknown (not supported)" in observed


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("on.txt", "MUST_FIX", "RX on, TX on: global pause and PFC exclude each other"),
        ("off-negotiated-on.txt", "OK", "RX off, TX off"),
        ("on-negotiated-off.txt", "WARN", "RX on, TX on configured, off in effect"),
    ],
)
def test_b71_negotiated_is_not_configured(name: str, status: str, said: str, tmp_path: Path) -> None:
    host = lossless_host()
    host.answer(f"ethtool -a {NETDEV}", text("B71", name))
    found = records(host, tmp_path / "host")["roce.pause"]
    assert (found[0], said in found[1]) == (status, True), found


def test_b71_the_reader_takes_the_whole_word() -> None:
    done = Completed(("ethtool",), 0, text("B71", "off-negotiated-on.txt"), "")
    pause = parse_ethtool_pause(done)
    assert (pause.rx, pause.tx, pause.rx_negotiated, pause.tx_negotiated) == (False, False, True, True)


@pytest.mark.parametrize(
    ("tree", "status", "said"),
    [
        ("half", "MUST_FIX", "off for priority 3 (reaction point missing)"),
        ("full", "OK", "on for priority 3"),
        ("absent", "UNKNOWN", "No such file or directory"),
    ],
)
def test_b72_ecn_needs_both_points(tree: str, status: str, said: str, tmp_path: Path) -> None:
    host = lossless_host()
    host.remove(f"/sys/class/net/{NETDEV}/ecn")
    folder = CASES / "B72" / tree / "class"
    for path in folder.rglob("*"):
        if path.is_file():
            name = f"/sys/class/{path.relative_to(folder)}".replace("ens1f0np0", NETDEV)
            host.files[name] = path.read_text(encoding="utf-8").strip()
    found = records(host, tmp_path / "host")["roce.ecn"]
    assert (found[0], said in found[1]) == (status, True), found


@pytest.mark.parametrize("name", ["text.txt", "plain.json", "stats.json"])
def test_b73_dcb_in_three_shapes(name: str) -> None:
    assert parse_dcb_pfc(text("B73", name)).pfc == {3}


def test_b73_an_error_is_no_answer_and_the_next_source_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ParseError):
        parse_dcb_pfc(text("B73", "error.stderr"))
    host = lossless_host(driver="bnxt_en")
    host.answer(f"dcb -j pfc show dev {NETDEV}", rc=1, stderr=text("B73", "error.stderr"))
    status, observed = records(host, tmp_path / "unknown")["roce.pfc"]
    assert (status, "Attribute read: Operation not supported" in observed) == ("UNKNOWN", True)
    host.answer(f"bnxtqos -dev={NETDEV} get_qos", "IEEE 8021QAZ PFC TLV:\n         PFC enabled: 3\n")
    assert records(host, tmp_path / "next")["roce.pfc"][0] == "OK"


def test_b75_infiniband_is_not_judged_as_ethernet(tmp_path: Path) -> None:
    (tmp_path / "host" / "sys").mkdir(parents=True)
    (tmp_path / "host" / "sys" / "class").symlink_to(CASES / "B75" / "class")
    found = look_at_lossless(open_probe(str(tmp_path / "host"), {}), {})
    facts = found.facts["lossless"]
    assert len(facts["not_applicable"]) == 1
    assert facts["not_applicable"][0].startswith("mlx5_0:1: not applicable, InfiniBand")
    assert [rail["rail"] for rail in facts["rails"]] == ["mlx5_1:1"]
    assert not [record for record in found.records if "mlx5_0" in record.observed]
    assert {record.status for record in found.records if record.id == "roce.pfc"} == {"UNKNOWN"}
