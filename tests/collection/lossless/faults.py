"""Misconfigurations of one rail, each with the record that finds it, the link that it breaks, and its fix."""

from __future__ import annotations

import dataclasses

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, lossless_host
from tests.collection.recorded_host import RecordedHost

ECN = f"/sys/class/net/{NETDEV}/ecn"
CLASS = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class"
CC = "/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
PEER = f"lldpcli -f json0 show neighbors details ports {NETDEV}"


@dataclasses.dataclass(frozen=True)
class Fault:
    """One misconfiguration: how it looks, the record that finds it, the link it breaks, the command that mends it."""

    name: str
    record: str
    status: str
    link: str | None
    fix: str
    driver: str = "mlx5_core"
    command: str = ""
    stdout: str = ""
    files: tuple[tuple[str, str | None], ...] = ()
    options: tuple[tuple[str, int], ...] = ()

    def plant(self) -> RecordedHost:
        host = lossless_host(self.driver)
        if self.command:
            host.answer(self.command, self.stdout)
        for path, text in self.files:
            host.remove(path)
            if text is not None:
                host.files[path] = text
        return host


def qos(name: str, record: str, status: str, link: str | None, fix: str, *edits: tuple[str, str]) -> Fault:
    """A fault in what mlnx_qos shows."""
    text = outputs.MLNX_QOS
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return Fault(name, record, status, link, fix, command=f"mlnx_qos -i {NETDEV}", stdout=text)


def dcb(name: str, what: str, stdout: str, record: str, status: str, link: str | None, fix: str, driver: str) -> Fault:
    return Fault(
        name, record, status, link, fix, driver=driver, command=f"dcb -j {what} show dev {NETDEV}", stdout=stdout
    )


def tree(
    name: str,
    record: str,
    status: str,
    link: str | None,
    fix: str,
    *files: tuple[str, str | None],
    driver: str = "mlx5_core",
) -> Fault:
    return Fault(name, record, status, link, fix, driver=driver, files=files)


ENABLED = "enabled     0   0   0   1   0   0   0   0"
PFC_FIX = f"mlnx_qos -i {NETDEV} --pfc 0,0,0,1,0,0,0,0"
ETS_FIX = (
    f"mlnx_qos -i {NETDEV} --prio_tc 0,0,0,1,0,0,2,0"
    " --tsa ets,ets,strict,strict,strict,strict,strict,strict --tcbw 50,50,0,0,0,0,0,0"
)
ETS_FIX_DCB = f"dcb ets set dev {NETDEV} prio-tc all:0 3:1 6:2 tc-tsa all:strict 0:ets 1:ets tc-bw all:0 0:50 1:50"
ECN_FIX = f"echo 1 > {ECN}/roce_np/enable/3; echo 1 > {ECN}/roce_rp/enable/3"
PAUSE = f"ethtool -a {NETDEV}"
PAUSE_FIX = f"ethtool -A {NETDEV} autoneg off rx off tx off"
LAST = "roce_np/enable/3"

FAULTS = [
    qos("pfc_off", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, ENABLED.replace("1", "0"))),
    qos(
        "pfc_elsewhere", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     0   0   0   0   1   0   0   0")
    ),
    qos(
        "pfc_everywhere", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     1   1   1   1   1   1   1   1")
    ),
    qos("pfc_on_0", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     1   0   0   1   0   0   0   0")),
    qos("pfc_on_4_too", "roce.pfc", "WARN", None, PFC_FIX, (ENABLED, "enabled     0   0   0   1   1   0   0   0")),
    qos(
        "trust_pcp",
        "roce.trust",
        "MUST_FIX",
        "priority",
        f"mlnx_qos -i {NETDEV} --trust dscp",
        ("state: dscp\ndscp2prio mapping:\n" + outputs.ROWS, "state: pcp\n"),
    ),
    qos(
        "dscp_moved",
        "roce.dscp_map",
        "MUST_FIX",
        "priority",
        f"--dscp2prio set,26,3; mlnx_qos -i {NETDEV} --dscp2prio set,48,6",
        ("27,26,25", "27,25"),
        ("prio:0 dscp:", "prio:0 dscp:26,"),
    ),
    qos(
        "cnp_moved",
        "roce.dscp_map",
        "WARN",
        None,
        "--dscp2prio set,48,6",
        ("49,48,", "49,"),
        ("prio:0 dscp:", "prio:0 dscp:48,"),
    ),
    qos(
        "no_headroom",
        "roce.buffers",
        "MUST_FIX",
        "buffers",
        f"mlnx_qos -i {NETDEV} --prio2buffer 0,0,0,1,0,0,0,0 --buffer_size 32868,230076,0,0,0,0,0,0",
        ("19872,243072,", "262944,0,"),
    ),
    qos(
        "one_buffer",
        "roce.buffers",
        "WARN",
        None,
        f"mlnx_qos -i {NETDEV} --prio2buffer 0,0,0,1,0,0,0,0 --buffer_size 32868,230076,0,0,0,0,0,0",
        ("buffer      0   0   0   1", "buffer      0   0   0   0"),
    ),
    Fault(
        "long_cable",
        "roce.buffers",
        "WARN",
        None,
        # Named alone, the length would turn PFC off.
        f"mlnx_qos -i {NETDEV} --pfc 0,0,0,1,0,0,0,0 --cable_len 30",
        options=(("cable_length", 30),),
    ),
    qos(
        "no_share",
        "roce.ets",
        "MUST_FIX",
        "buffers",
        ETS_FIX,
        ("tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%", "tc: 3 ratelimit: unlimited, tsa: ets, bw: 0%"),
    ),
    qos(
        "small_share",
        "roce.ets",
        "WARN",
        None,
        ETS_FIX,
        ("tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%", "tc: 3 ratelimit: unlimited, tsa: ets, bw: 10%"),
    ),
    qos(
        "shared_class",
        "roce.ets",
        "WARN",
        None,
        ETS_FIX,
        (
            "\t priority:  7\ntc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  3",
            "\t priority:  7\n\t priority:  3\ntc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
        ),
    ),
    qos(
        "cnp_not_strict",
        "roce.cnp",
        "WARN",
        None,
        ETS_FIX,
        ("tc: 6 ratelimit: unlimited, tsa: strict", "tc: 6 ratelimit: unlimited, tsa: ets, bw: 0%"),
    ),
    qos(
        "lldpad_beside",
        "roce.dcbx_owner",
        "WARN",
        None,
        "disable --now lldpad",
        ("DCBX mode", "****** WARNING: lldpad service is running and may overwrite your settings ******\n\nDCBX mode"),
    ),
    tree("nothing_forced", "roce.effective_dscp", "MUST_FIX", "DSCP", f"echo 106 > {CLASS}", (CLASS, "")),
    tree(
        "inbox_driver",
        "roce.effective_dscp",
        "MUST_FIX",
        "DSCP",
        "rdma_stack: doca",
        ("/sys/class/infiniband/mlx5_0/tc", None),
    ),
    tree("lossy_class", "roce.effective_dscp", "MUST_FIX", "DSCP", f"echo 106 > {CLASS}", (CLASS, "Global tclass=40")),
    Fault(
        "other_lossless_class",
        "roce.effective_dscp",
        "WARN",
        None,
        f"echo 106 > {CLASS}",
        files=((CLASS, "Global tclass=98"),),
        options=(("dscp", 26),),
    ),
    tree("class_without_ect", "roce.effective_dscp", "WARN", None, f"echo 106 > {CLASS}", (CLASS, "Global tclass=104")),
    tree("no_reaction_point", "roce.ecn", "MUST_FIX", "ECN", ECN_FIX, (f"{ECN}/roce_rp/enable/3", "0")),
    tree("no_notification_point", "roce.ecn", "MUST_FIX", "ECN", ECN_FIX, (f"{ECN}/{LAST}", "0")),
    tree(
        "cnp_in_bulk",
        "roce.cnp",
        "MUST_FIX",
        "CNP",
        f"echo 6 > {ECN}/roce_np/cnp_802p_prio",
        (f"{ECN}/roce_np/cnp_802p_prio", "0"),
    ),
    tree("cnp_in_roce", "roce.cnp", "WARN", None, "cnp_802p_prio", (f"{ECN}/roce_np/cnp_802p_prio", "3")),
    tree(
        "cnp_unmarked", "roce.cnp", "WARN", None, f"echo 48 > {ECN}/roce_np/cnp_dscp", (f"{ECN}/roce_np/cnp_dscp", "0")
    ),
    Fault(
        "pause_on",
        "roce.pause",
        "MUST_FIX",
        "PFC",
        PAUSE_FIX,
        command=PAUSE,
        stdout="Autonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n",
    ),
    Fault(
        "lossy_switch",
        "roce.dcbx_peer",
        "MUST_FIX",
        None,
        "nv set qos roce mode lossless",
        command=PEER,
        stdout=outputs.lldpcli(pfc="08,00"),
    ),
    Fault(
        "other_switch",
        "roce.dcbx_peer",
        "MUST_FIX",
        None,
        "pfc_enable",
        command=PEER,
        stdout=outputs.lldpcli(pfc="08,10"),
    ),
    Fault(
        "silent_switch",
        "roce.dcbx_peer",
        "WARN",
        None,
        "no-drop",
        command=PEER,
        stdout=outputs.lldpcli(pfc="", apps=""),
    ),
    Fault(
        "switch_without_roce",
        "roce.dcbx_peer",
        "WARN",
        None,
        "roce lossless",
        command=PEER,
        stdout=outputs.lldpcli(apps=""),
    ),
    dcb(
        "bnxt_pfc_off",
        "pfc",
        outputs.dcb_pfc(),
        "roce.pfc",
        "MUST_FIX",
        "PFC",
        f"dcb pfc set dev {NETDEV} prio-pfc all:off 3:on",
        "bnxt_en",
    ),
    dcb(
        "bnxt_no_map",
        "app",
        "",
        "roce.trust",
        "MUST_FIX",
        "priority",
        f"dcb app replace dev {NETDEV} dscp-prio 26:3 48:6",
        "bnxt_en",
    ),
    dcb(
        "bnxt_wrong_map",
        "app",
        outputs.dcb_app({26: 4, 48: 6}),
        "roce.dscp_map",
        "MUST_FIX",
        "priority",
        "dscp-prio 26:3 48:6",
        "bnxt_en",
    ),
    dcb("bnxt_small_share", "ets", outputs.dcb_ets(20), "roce.ets", "WARN", None, ETS_FIX_DCB, "bnxt_en"),
    tree(
        "bnxt_cc_off",
        "roce.ecn",
        "MUST_FIX",
        "ECN",
        f"echo 0x1 > {CC}/ecn_enable",
        (f"{CC}/ecn_enable", "0x0"),
        driver="bnxt_en",
    ),
    tree(
        "bnxt_class",
        "roce.effective_dscp",
        "MUST_FIX",
        "DSCP",
        f"echo 0x1a > {CC}/roce_dscp",
        (f"{CC}/roce_dscp", "0x0a"),
        driver="bnxt_en",
    ),
    tree(
        "bnxt_class_of_firmware",
        "roce.effective_dscp",
        "MUST_FIX",
        "DSCP",
        "firmware owns DSCPs and priorities (its service profile): have them changed there with niccli",
        (f"{CC}/roce_dscp", "0x0a"),
        ("/sys/kernel/debug/bnxt_re/bnxt_re0/info", "fw_service_prof_type_sup : 1"),
        driver="bnxt_en",
    ),
    dcb("ice_pfc_off", "pfc", outputs.dcb_pfc(), "roce.pfc", "MUST_FIX", "PFC", "prio-pfc all:off 3:on", "ice"),
    dcb("ice_no_map", "app", "{}", "roce.trust", "MUST_FIX", "priority", "dscp-prio 0:3 48:6", "ice"),
    tree(
        "ice_no_dcqcn",
        "roce.ecn",
        "MUST_FIX",
        "ECN",
        "dcqcn_enable=1",
        ("/sys/module/irdma/parameters", None),
        driver="ice",
    ),
    Fault(
        "ice_firmware_and_lldpad",
        "roce.dcbx_peer",
        "UNKNOWN",
        None,
        "Install",
        driver="ice",
        command=f"ethtool --show-priv-flags {NETDEV}",
        stdout="fw-lldp-agent: on\n",
    ),
]
