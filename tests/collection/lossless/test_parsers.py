"""Parsers of the lossless check on outputs of several versions, and on text that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._lossless import broadcom, dcb, intel, mlx5
from ansible_collections.lium.cluster.plugins.module_utils._lossless.counters import (
    parse_ethtool_counters,
    parse_rdma_statistic,
    pfc_counters,
)
from ansible_collections.lium.cluster.plugins.module_utils._lossless.lldp import parse_lldpcli, parse_lldptool
from ansible_collections.lium.cluster.plugins.module_utils._lossless.mlnx_qos import parse_mlnx_qos
from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    ALL_PRIORITIES,
    FIRMWARE_CONTROLLED,
    OS_CONTROLLED,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collection.lossless import outputs

RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "recorded"

FACTORY = """DCBX mode: OS controlled
Priority trust state: pcp
Receive buffer size (bytes): 262016,0,0,0,0,0,0,0,max_buffer_size=262016
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   0   0   0   0   0
\tbuffer      0   0   0   0   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
\t priority:  1
tc: 1 ratelimit: unlimited, tsa: vendor
\t priority:  0
"""
DEGRADED = """****** WARNING: lldpad service is running and may overwrite your settings ******

Priority trust state is not supported on your system
Buffers commands are not supported on your system
DCBX mode: Firmware controlled
Priority trust state: none
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   1   0   0   0
tc: 0 ratelimit: 25.0 Gbps, tsa: ets, bw: 100%
\t priority:  0
"""


def test_mlnx_qos_of_a_lossless_host() -> None:
    found = parse_mlnx_qos(outputs.MLNX_QOS)
    assert (found.pfc, found.trust, found.dcbx) == ({3}, "dscp", OS_CONTROLLED)
    assert found.dscp_map == {dscp: dscp // 8 for dscp in range(64)}
    assert found.buffer_sizes == (19872, 243072, 0, 0, 0, 0, 0, 0)
    assert (found.buffer_of[3], found.buffer_of[0], found.cable_length) == (1, 0, 7)
    assert (found.tc_of[3], found.tsa[3], found.bandwidth[3], found.tsa[6]) == (3, "ets", 50, "strict")
    assert found.lldpad is None


def test_mlnx_qos_as_it_comes_from_the_factory() -> None:
    found = parse_mlnx_qos(FACTORY)
    assert (found.pfc, found.trust, found.dscp_map) == (frozenset(), "pcp", {})
    assert (found.tc_of, found.tsa) == ({1: 0, 0: 1}, {0: "vendor", 1: "vendor"})


def test_mlnx_qos_that_cannot_tell_all() -> None:
    found = parse_mlnx_qos(DEGRADED)
    assert (found.pfc, found.trust, found.dscp_map) == ({3, 4}, None, None)
    assert (found.buffer_of, found.buffer_sizes, found.dcbx) == (None, None, FIRMWARE_CONTROLLED)
    assert (found.lldpad, found.bandwidth) == (True, {0: 100})


def test_mlnx_qos_wraps_the_list_of_a_priority() -> None:
    site = "\tprio:3 dscp:31,30,29,28,27,26,25,24,\n"
    text = outputs.MLNX_QOS.replace(site, "\tprio:3 dscp:31,30,29,28,\n\tprio:3 dscp:27,26,25,24,\n")
    assert text != outputs.MLNX_QOS
    assert parse_mlnx_qos(text).dscp_map == parse_mlnx_qos(outputs.MLNX_QOS).dscp_map


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[Errno 1] Operation not permitted\n",
        'Traceback (most recent call last):\n  File "/usr/bin/mlnx_qos", line 190\n',
        outputs.MLNX_QOS.replace("0   0   0   1   0   0   0   0   \n\tbuffer", "0   0   0   1\n\tbuffer"),
        outputs.MLNX_QOS.replace("\tpriority    0   1", "\tpriority    1   0"),
        outputs.MLNX_QOS.replace("dscp:07,", "dscp:99,"),
        outputs.MLNX_QOS.replace("dscp:07,", "dscp:26,"),
        outputs.MLNX_QOS.replace("PFC configuration", "PFC"),
        outputs.MLNX_QOS.replace("tsa: strict", "strict"),
    ],
)
def test_mlnx_qos_that_is_not_understood(text: str) -> None:
    with pytest.raises(ParseError):
        parse_mlnx_qos(text)


def test_mlnx_qos_that_breaks_off_never_turns_pfc_on() -> None:
    """Cut at each place, the output is an error or tells the same of PFC."""
    for end in range(len(outputs.MLNX_QOS)):
        try:
            assert parse_mlnx_qos(outputs.MLNX_QOS[:end]).pfc == {3}
        except ParseError:
            continue


def test_dcb_pfc() -> None:
    assert dcb.parse_dcb_pfc("pfc-cap 8 macsec-bypass off delay 7 \nprio-pfc " + _by_priority(3, "on", "off")).pfc == {
        3
    }
    assert dcb.parse_dcb_pfc(outputs.dcb_pfc()).pfc == frozenset()
    for text in (
        "",
        "prio-pfc 3:on",
        '{"prio_pfc":["off","off","off","on"]}',
        '{"prio_pfc":[0,0,0,1,0,0,0,0]}',
        "[]",
        "{",
    ):
        with pytest.raises(ParseError):
            dcb.parse_dcb_pfc(text)


def _by_priority(priority: int, on: str, off: str) -> str:
    return " ".join(f"{number}:{on if number == priority else off}" for number in range(8)) + " \n"


@pytest.mark.parametrize(
    "text",
    [
        "dscp-prio 26:3 48:6 \ndgram-port-prio 4791:3 \n",
        "dscp-prio AF31:3 CS6:6 \n",
        '{"dscp_prio":[[26,3],[48,6]],"dgram_port_prio":[[4791,3]]}',
        '{"ethtype_prio":[[35093,3]],"default_prio":[0],"dscp_prio":[[26,3],[48,6]]}',
    ],
)
def test_dcb_app(text: str) -> None:
    found = dcb.parse_dcb_app(text)
    assert (found.trust, found.dscp_map) == ("dscp", {26: 3, 48: 6})


@pytest.mark.parametrize("text", ["", "\n", "{}", "dgram-port-prio 4791:3 \n"])
def test_dcb_app_without_an_entry_is_read_and_empty(text: str) -> None:
    found = dcb.parse_dcb_app(text)
    assert (found.trust, found.dscp_map) == ("pcp", {})


@pytest.mark.parametrize(
    "text",
    ["dscp-prio AF99:3", "dscp-prio 26:9", "dscp-prio 26:3 26:4", "Attribute read: no", '{"dscp_prio":[[true,3]]}'],
)
def test_dcb_app_that_is_not_understood(text: str) -> None:
    with pytest.raises(ParseError):
        dcb.parse_dcb_app(text)


def test_dcb_ets_buffer_and_dcbx_in_both_forms() -> None:
    text = (
        "prio-tc 0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0 \n"
        "tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict \n"
        "tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 7:0 \n"
    )
    assert dcb.parse_dcb_ets(text) == dcb.parse_dcb_ets(outputs.dcb_ets())
    text = (
        "prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 \n"
        "buffer-size 0:19872b 1:237.375Kb 2:0b 3:0b 4:0b 5:0b 6:0b 7:1Mb \ntotal-size 524160b \n"
    )
    plain = {"prio_buffer": [0, 0, 0, 1, 0, 0, 0, 0], "buffer_size": [19872, 243072, 0, 0, 0, 0, 0, 1048576]}
    assert dcb.parse_dcb_buffer(text) == dcb.parse_dcb_buffer(json.dumps(plain))
    assert (
        dcb.parse_dcb_dcbx("host ieee \n").dcbx == dcb.parse_dcb_dcbx('{"host":true,"ieee":true}').dcbx == OS_CONTROLLED
    )
    assert dcb.parse_dcb_dcbx("lld-managed ieee").dcbx == FIRMWARE_CONTROLLED


@pytest.mark.parametrize("path", sorted(RECORDED.glob("dcb-*.json")), ids=lambda path: path.stem)
def test_what_was_recorded_without_dcb_is_never_an_answer(path: Path) -> None:
    """Each of these failed; not even its output taken for an answer may say that PFC is on or a DSCP is mapped."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert recorded["rc"] != 0
    for parse in (dcb.parse_dcb_pfc, dcb.parse_dcb_ets, dcb.parse_dcb_buffer, dcb.parse_dcb_dcbx):
        with pytest.raises(ParseError):
            parse(recorded["stdout"] + recorded["stderr"])


BNXT = """
IEEE 8021QAZ ETS Configuration TLV:
         PRIO_MAP: 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:2
         TC Bandwidth: 50% 50% 0%
         TSA_MAP: 0:ets 1:ets 2:strict
IEEE 8021QAZ PFC TLV:
         PFC enabled: 3
IEEE 8021QAZ APP TLV:
         APP#0:
          Priority: 7
          Sel: 5
          DSCP: 48

         APP#1:
          Priority: 3
          Sel: 5
          DSCP: 26

         APP#2:
          Priority: 3
          Sel: 3
          UDP or DCCP: 4791

         APP#3:
          Priority: 3
          Sel: 1
          Ethertype: 0x8915

TC Rate Limit: 100% 100% 100% 0% 0% 0% 0% 0%
"""


def test_bnxt_qos() -> None:
    found = broadcom.parse_bnxt_qos(BNXT)
    assert (found.pfc, found.trust, found.dscp_map) == ({3}, "dscp", {48: 7, 26: 3})
    assert (found.tc_of[3], found.tsa, found.bandwidth) == (1, {0: "ets", 1: "ets", 2: "strict"}, {0: 50, 1: 50, 2: 0})
    older = BNXT.replace("50% 50% 0%", "50% 50%").replace(" 2:strict", "").replace("7:2", "7:0")
    older = older.replace("         APP#0:\n          Priority: 7\n          Sel: 5\n          DSCP: 48\n", "")
    two = broadcom.parse_bnxt_qos(older)
    assert (two.dscp_map, two.tsa, two.bandwidth) == ({26: 3}, {0: "ets", 1: "ets"}, {0: 50, 1: 50}), "two classes"
    lossy = broadcom.parse_bnxt_qos("IEEE 8021QAZ PFC TLV:\n         PFC enabled: none\n")
    assert (lossy.pfc, lossy.trust, lossy.tc_of) == (frozenset(), "pcp", None)
    assert broadcom.parse_bnxt_qos(BNXT.replace("PFC enabled: 3", "PFC enabled: 3, 4")).pfc == {3, 4}
    for text in ("", BNXT.replace("PFC enabled: 3", "PFC enabled: yes"), BNXT.replace("DSCP: 48", "")):
        with pytest.raises(ParseError):
            broadcom.parse_bnxt_qos(text)


def test_niccli_list() -> None:
    text = "BoardId  Interface  PCI Address\n1) BCM57608 enp1s0np0 0000:20:00.0\n2) BCM57608 enp2s0np0 0000:21:00.0\n"
    assert broadcom.parse_niccli_list(text, "0000:21:00.0", "enp2s0np0") == "2"
    with pytest.raises(ParseError):
        broadcom.parse_niccli_list(text, "0000:99:00.0", "enp9s0np0")


def test_bnxt_congestion_control() -> None:
    hex_values = {"ecn_enable": "0x1", "ecn_marking": "0x1", "roce_dscp": "0x1a", "cnp_prio": "0x7", "cnp_dscp": "0x30"}
    found = broadcom.parse_bnxt_cc(hex_values)
    assert (found.forced_class, found.ecn_np, found.cnp_dscp, found.cnp_priority) == (106, ALL_PRIORITIES, 48, 7)
    newer = broadcom.parse_bnxt_cc({"enable_cc": "1", "tos_ecn": "0", "cc_mode": "1"})
    assert (newer.ecn_np, newer.forced_class, newer.can_force) == (frozenset(), None, None)
    for files in ({}, {"cc_mode": "0x1"}, {"ecn_enable": "0x1", "ecn_marking": "yes"}):
        with pytest.raises(ParseError):
            broadcom.parse_bnxt_cc(files)


def test_forced_class() -> None:
    assert mlx5.parse_traffic_class("Global tclass=106\nsrc_ip=10.20.30.11,traffic_class=5").forced_class == 106
    assert mlx5.parse_traffic_class("").forced_class == 0
    for text in ("src_ip=10.20.30.11,traffic_class=5", "Global tclass=300", "Global tclass=-1", "106"):
        with pytest.raises(ParseError):
            mlx5.parse_traffic_class(text)


def test_mstconfig() -> None:
    text = (
        "Device #1:\n----------\nDevice type:        ConnectX7           \nConfigurations:                 Next Boot\n"
        "        ROCE_CC_PRIO_MASK_P1                        255\n"
        "        CNP_DSCP_P1                                 48\n"
        "        CNP_802P_PRIO_P1                            6\n"
    )
    found = mlx5.parse_mstconfig(text)
    assert (found.ecn_firmware, found.cnp_dscp, found.cnp_priority) == (ALL_PRIORITIES, 48, 6)
    assert (found.ecn_np, found.ecn_rp) == (None, None), "of the next start, so no proof for now"
    with pytest.raises(ParseError):
        mlx5.parse_mstconfig("-E- Failed to open the device\n")


def test_intel() -> None:
    text = "Private flags for enp175s0f0:\nlink-down-on-close     : off\nfw-lldp-agent          : {}\n"
    assert intel.parse_priv_flags(text.format("on")).dcbx == FIRMWARE_CONTROLLED
    assert intel.parse_priv_flags(text.format("off")).dcbx == OS_CONTROLLED
    assert intel.parse_dcqcn_enable("Y").ecn_np == ALL_PRIORITIES
    assert intel.parse_dcqcn_enable("0").ecn_rp == frozenset()
    for parse in (intel.parse_priv_flags, intel.parse_dcqcn_enable):
        with pytest.raises(ParseError):
            parse("Cannot get private flags: Operation not supported")


LLDP_HEAD = """Chassis ID TLV
\tMAC: b8:ce:f6:01:02:03
Port ID TLV
\tIfname: swp12
Time to Live TLV
\t120
System Name TLV
\tleaf01
"""
LLDP_PFC = """IEEE 8021QAZ PFC TLV
\t Willing: no
\t MACsec Bypass Capable: no
\t PFC capable traffic classes: 8
\t PFC enabled: 3
"""


@pytest.mark.parametrize(
    "apps",
    [
        "IEEE 8021QAZ APP TLV\n\tApp#   0 \t Prio 3 \t Sel 3 \t P-ID\t UDP or DCCP Port: 4791\n",
        "IEEE 8021QAZ APP TLV\n\tApp#0:\n\t Priority: 3\n\t Sel: 3\n\t UDP or DCCP Port: 4791\n",
    ],
)
def test_lldptool_in_two_styles(apps: str) -> None:
    found = parse_lldptool(LLDP_HEAD + LLDP_PFC + apps + "End of LLDPDU TLV\n")
    assert (found.name, found.pfc, found.udp_map) == ("leaf01 swp12", {3}, {4791: 3})


def test_lldptool_with_dscp_entries_and_old_peers() -> None:
    apps = "IEEE 8021QAZ APP TLV\n\tPrio:3 \t dscp:  26,27\b\n\tPrio:6 \t dscp:  48,\b\n"
    assert parse_lldptool(LLDP_HEAD + LLDP_PFC + apps).dscp_map == {26: 3, 27: 3, 48: 6}
    cee = "CEE DCBX TLV\n\t Priority Flow Control:\n\t\tEnabled, Not Willing, No Error\n\t\tPFC enabled priorities: 3\n"
    assert parse_lldptool(LLDP_HEAD + cee).pfc == {3}
    assert parse_lldptool(LLDP_HEAD).pfc is None, "silent, which is not the same as off"
    for text in ("", "Agent instance for device not found\n", LLDP_HEAD + "IEEE 8021QAZ PFC TLV\n\t Willing: no\n"):
        with pytest.raises(ParseError):
            parse_lldptool(text)


def test_lldpcli() -> None:
    found = parse_lldpcli(outputs.lldpcli(apps="63,12,B7,65,00,1A"))
    assert (found.name, found.pfc, found.udp_map, found.dscp_map) == ("leaf01 swp12", {3}, {4791: 3}, {26: 3})
    silent = parse_lldpcli(json.loads((RECORDED / "lldpcli-json0.json").read_text(encoding="utf-8"))["stdout"])
    assert (silent.pfc, silent.name) == (None, "the switch")
    for text in ("", "{}", outputs.lldpcli(pfc="08"), outputs.lldpcli(pfc="08,zz")):
        with pytest.raises(ParseError):
            parse_lldpcli(text)


def test_counters_of_three_vendors() -> None:
    ice = "NIC statistics:\n     tx_priority_3_xoff.nic: 9034\n     rx_priority_3_xoff.nic: 512\n"
    assert pfc_counters(parse_ethtool_counters(ice), 3) == (512, 9034)
    line = "link mlx5_0/1 rx_write_requests 40211 out_of_sequence 0 rp_cnp_handled 118 \n"
    assert parse_rdma_statistic(line) == {"rx_write_requests": 40211, "out_of_sequence": 0, "rp_cnp_handled": 118}
    assert parse_rdma_statistic("link mlx5_0/1\n    out_of_sequence 0\n    np_cnp_sent 97\n")["np_cnp_sent"] == 97
    for text in ("", "link", "link mlx5_0/1 out_of_sequence", "error: no such link 5"):
        with pytest.raises(ParseError):
            parse_rdma_statistic(text)


def test_the_recorded_statistics() -> None:
    text = json.loads((RECORDED / "rdma-statistic.json").read_text(encoding="utf-8"))["stdout"]
    assert set(parse_rdma_statistic(text)) >= {"out_of_seq_request", "retry_exceeded_err"}


PARSERS: list[Callable[[str], Any]] = [
    parse_mlnx_qos,
    dcb.parse_dcb_pfc,
    dcb.parse_dcb_app,
    dcb.parse_dcb_ets,
    dcb.parse_dcb_buffer,
    dcb.parse_dcb_dcbx,
    broadcom.parse_bnxt_qos,
    mlx5.parse_traffic_class,
    mlx5.parse_mstconfig,
    intel.parse_priv_flags,
    intel.parse_dcqcn_enable,
    parse_lldptool,
    parse_lldpcli,
    parse_ethtool_counters,
    parse_rdma_statistic,
]
GOOD = [outputs.MLNX_QOS, outputs.dcb_pfc(3), outputs.dcb_app({26: 3}), BNXT, LLDP_HEAD + LLDP_PFC, outputs.lldpcli()]
_KEYS = st.sampled_from(["prio_pfc", "dscp_prio", "prio_tc", "tc_bw", "lldp", "oui", "subtype", "value"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda kids: st.lists(kids) | st.dictionaries(_KEYS, kids)
)
#: Good output with something written over it at one place.
_DAMAGED = st.tuples(st.sampled_from(GOOD), st.integers(0, 900), st.integers(0, 9), st.text(max_size=6)).map(
    lambda row: row[0][: row[1]] + row[3] + row[0][row[1] + row[2] :]
)


@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(text=st.one_of(st.text(), _JSON.map(json.dumps), _DAMAGED))
def test_whatever_is_printed_a_parser_raises_its_own_error_only(parse: Callable[[str], Any], text: str) -> None:
    try:
        parse(text)
    except ParseError:
        return
