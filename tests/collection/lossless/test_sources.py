"""Which source tells what: the order of trust, and what stands in where the first is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._record import Record

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, look, lossless_host
from tests.collection.recorded_host import RecordedHost

BNXT_QOS = """
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

"""
DCB_TEXT = {
    "pfc": "pfc-cap 8 macsec-bypass off delay 7 \nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off \n",
    "app": "dscp-prio 26:3 48:6 \ndgram-port-prio 4791:3 \n",
    "ets": "prio-tc 0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0 \n"
    "tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict \n"
    "tc-bw 0:50 1:0 2:0 3:50 4:0 5:0 6:0 7:0 \n",
    "buffer": "prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0 \n"
    "buffer-size 0:19872b 1:243072b 2:0b 3:0b 4:0b 5:0b 6:0b 7:0b \ntotal-size 524160b \n",
    "dcbx": "host ieee \n",
}


def records(host: RecordedHost, folder: Path, **options: object) -> dict[str, Record]:
    return {record.id: record for record in look(host, folder, **options).records}


def statuses(host: RecordedHost, folder: Path) -> dict[str, str]:
    """The findings by id."""
    found = records(host, folder).values()
    return {row.id: row.status for row in found if row.status not in ("OK", "SKIPPED")}


def without_dcb(driver: str) -> RecordedHost:
    host = lossless_host(driver)
    for line in [line for line in host.commands if line.startswith("dcb ")]:
        del host.commands[line]
    return host


def test_mlnx_qos_is_believed_before_dcb(tmp_path: Path) -> None:
    host = lossless_host()
    host.answer(f"dcb -j pfc show dev {NETDEV}", outputs.dcb_pfc())
    record = records(host, tmp_path / "host")["roce.pfc"]
    assert (record.status, record.evidence_source) == ("OK", "mlnx_qos")


@pytest.mark.parametrize("text_only", [False, True])
def test_mlx5_without_the_vendors_tool(text_only: bool, tmp_path: Path) -> None:
    """`dcb` tells all of it; a version that prints text in spite of `-j` is asked for numbers."""
    host = lossless_host()
    del host.commands[f"mlnx_qos -i {NETDEV}"]
    for what, text in DCB_TEXT.items():
        host.answer(f"dcb -j {what} show dev {NETDEV}", "prio-pfc words" if text_only else text)
        host.answer(f"dcb -N {what} show dev {NETDEV}", text)
    assert statuses(host, tmp_path / "host") == {}
    record = records(host, tmp_path / "again")["roce.dscp_map"]
    assert record.evidence_source == "dcb app"


@pytest.mark.parametrize(
    ("buffers", "pfc", "status", "said", "fix"),
    [
        ("", "delay 30", "OK", "cable length 30 m", ""),
        ("", "delay 7", "WARN", "cable length 7 m, not 20 m", f"dcb pfc set dev {NETDEV} delay 20"),
        ("", "delay 0", "UNKNOWN", "for which cable length", "Install iproute2"),
        ("", "", "UNKNOWN", "dcb pfc does not show it", "Install iproute2"),
        (
            "3:0",
            "delay 30",
            "WARN",
            "shared with priority 0",
            f"dcb buffer set dev {NETDEV} prio-buffer all:0 3:1 buffer-size all:0 0:32868 1:230076",
        ),
    ],
    ids=["long enough", "too short", "no such setting", "not shown", "shared"],
)
def test_buffers_and_cable_without_the_vendors_tool(
    buffers: str, pfc: str, status: str, said: str, fix: str, tmp_path: Path
) -> None:
    """What is not read is not 0 metres, and the way to mend it is the tool that is there."""
    host = lossless_host()
    del host.commands[f"mlnx_qos -i {NETDEV}"]
    for what, text in DCB_TEXT.items():
        host.answer(f"dcb -N {what} show dev {NETDEV}", text.replace("delay 7", pfc).replace("3:1", buffers or "3:1"))
        host.answer(f"dcb -j {what} show dev {NETDEV}", "prio-pfc words")
    record = records(host, tmp_path / "host", cable_length=20)["roce.buffers"]
    assert (record.status, said in record.observed, fix in (record.remediation or "")) == (status, True, True), record
    assert "mlnx_qos -i" not in (record.remediation or "")


def test_an_early_dcb_knows_less(tmp_path: Path) -> None:
    """Its missing command makes trust and DSCP unknown, not PFC."""
    host = lossless_host("bnxt_en")
    host.answer(f"dcb -j app show dev {NETDEV}", "\n", rc=1, stderr='Object "app" is unknown\n')
    found = statuses(host, tmp_path / "host")
    assert found == {"roce.trust": "UNKNOWN", "roce.dscp_map": "UNKNOWN", "roce.lossless": "UNKNOWN"}
    assert 'Object "app" is unknown' in records(host, tmp_path / "again")["roce.trust"].observed


@pytest.mark.parametrize(
    "commands",
    [
        {"niccli --dev 0000:20:00.0 qos --ets --show": BNXT_QOS},
        {"niccli --list": "1) BCM57608 0000:20:00.0\n", "niccli -dev 1 get_qos": BNXT_QOS},
        {f"bnxtqos -dev={NETDEV} get_qos": BNXT_QOS},
    ],
    ids=["niccli v236", "older niccli", "bnxtqos"],
)
def test_three_generations_of_broadcoms_tool(commands: dict[str, str], tmp_path: Path) -> None:
    host = without_dcb("bnxt_en")
    host.files["/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc/cnp_prio"] = "0x7"
    for line, text in commands.items():
        host.answer(line, text)
    # Who negotiates is told by `dcb` alone.
    assert statuses(host, tmp_path / "host") == {"roce.dcbx_owner": "UNKNOWN"}


def test_newer_bnxt_re_shows_congestion_control_elsewhere(tmp_path: Path) -> None:
    host = lossless_host("bnxt_en")
    host.remove("/sys/kernel/config/bnxt_re")
    for name, text in (("enable_cc", "1"), ("tos_ecn", "1"), ("cc_mode", "1")):
        host.files[f"/sys/kernel/debug/bnxt_re/0000:20:00.0/cc_config/{name}"] = text
    found = records(host, tmp_path / "host")
    assert found["roce.ecn"].status == "OK"
    assert found["roce.effective_dscp"].status == "UNKNOWN", "it does not show the class there"


def test_the_service_profile_serves_cnps_strictly(tmp_path: Path) -> None:
    """With it the firmware gives them a strict class of their own, whatever the classes of the host say."""
    host = lossless_host("bnxt_en")
    host.answer(f"dcb -j ets show dev {NETDEV}", outputs.dcb_ets().replace('"strict"', '"ets"'))
    assert statuses(host, tmp_path / "without") == {"roce.cnp": "WARN"}
    host.files["/sys/kernel/debug/bnxt_re/bnxt_re0/info"] = "fw_service_prof_type_sup : 1"
    assert statuses(host, tmp_path / "with") == {}


def test_ice_with_an_agent_of_the_host(tmp_path: Path) -> None:
    """lldpad with software DCB: without `dcb` its own word for the port is all there is."""
    host = without_dcb("ice")
    tlv = "IEEE 8021QAZ PFC TLV\n\t Willing: yes\n\t PFC enabled: 3 \n"
    for line in (f"lldptool -ti {NETDEV}", f"lldptool -t -i {NETDEV}"):
        host.answer(line, tlv)
    host.answer(
        f"lldptool -t -n -i {NETDEV}", tlv + "IEEE 8021QAZ APP TLV\n\tApp#   0 \t Prio 3 \t UDP or DCCP Port: 4791\n"
    )
    found = records(host, tmp_path / "host")
    assert (found["roce.pfc"].status, found["roce.pfc"].evidence_source) == ("OK", "lldptool (own)")
    assert found["roce.dcbx_owner"].status == "OK", "it wants what is set"
    assert (found["roce.dcbx_peer"].status, found["roce.dcbx_peer"].evidence_source) == (
        "OK",
        "lldptool (own), lldptool",
    )


def test_two_agents_that_negotiate(tmp_path: Path) -> None:
    host = lossless_host("ice")
    host.answer(f"ethtool --show-priv-flags {NETDEV}", "fw-lldp-agent          : on\n")
    host.answer(f"lldptool -t -i {NETDEV}", "IEEE 8021QAZ PFC TLV\n\t PFC enabled: 3 \n")
    found = records(host, tmp_path / "host")
    assert found["roce.dcbx_owner"].status == "MUST_FIX"
    assert "the card's firmware takes LLDP for itself" in found["roce.dcbx_peer"].observed


def test_an_agent_that_does_not_run_is_no_agent(tmp_path: Path) -> None:
    host = lossless_host()
    refused = "Failed to connect to lldpad - clif_open: Connection refused\n"
    for line in (f"lldptool -t -i {NETDEV}", f"lldptool -t -n -i {NETDEV}"):
        host.answer(line, rc=1, stderr=refused)
    assert statuses(host, tmp_path / "host") == {}


def test_ecn_that_only_the_firmware_tells(tmp_path: Path) -> None:
    host = lossless_host()
    host.remove(f"/sys/class/net/{NETDEV}/ecn")
    line = "mstconfig -d 0000:20:00.0 q ROCE_CC_PRIO_MASK_P1 CNP_DSCP_P1 CNP_802P_PRIO_P1"
    rows = "        ROCE_CC_PRIO_MASK_P1    {}\n        CNP_DSCP_P1     48\n        CNP_802P_PRIO_P1      6\n"
    host.answer(line, rows.format(255))
    assert statuses(host, tmp_path / "on") == {"roce.ecn": "WARN"}
    host.answer(line, rows.format(0))
    found = records(host, tmp_path / "off")
    assert (found["roce.ecn"].status, found["roce.lossless"].status) == ("MUST_FIX", "MUST_FIX")
    assert "ROCE_CC_PRIO_MASK_P1=255" in found["roce.ecn"].remediation
    host.answer(line, rc=1, stderr="-E- Failed to open the device\n")
    found = records(host, tmp_path / "no-device")
    assert (found["roce.ecn"].status, found["roce.cnp"].status) == ("UNKNOWN", "UNKNOWN")
    assert "-E- Failed to open the device" in found["roce.ecn"].observed


def test_a_bond_is_looked_at_leg_by_leg(tmp_path: Path) -> None:
    host = lossless_host()
    ndevs = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs"
    for path in [path for path in host.files if path.startswith(ndevs)]:
        host.files[path] = "bond0"
    host.folders |= {f"/sys/class/net/bond0/lower_{name}" for name in (NETDEV, "enp32s0np1")}
    host.files["/sys/class/net/bond0/mtu"] = "9000"
    host.answer("mlnx_qos -i enp32s0np1", outputs.MLNX_QOS.replace("0   0   0   1   0", "0   0   0   0   0"))
    found = look(host, tmp_path / "host")
    assert [rail["netdev"] for rail in found.facts["lossless"]["rails"]] == [NETDEV, "enp32s0np1"]
    pfc = next(record for record in found.records if record.id == "roce.pfc")
    assert f"mlx5_0:1 ({NETDEV}): PFC on priority 3" in pfc.observed
    assert "mlx5_0:1 (enp32s0np1): PFC on priority none, not on 3" in pfc.observed


def test_iwarp_is_no_fabric(tmp_path: Path) -> None:
    host = lossless_host("ice")
    host.files["/sys/class/infiniband/irdma0/node_type"] = "4: RNIC"
    found = records(host, tmp_path / "host")
    assert {record.status for record in found.values()} == {"SKIPPED"}
    assert "iWARP" in found["roce.lossless"].observed
