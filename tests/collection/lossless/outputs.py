"""What tools and files show on a host whose rails are lossless, by driver: priority 3, DSCP 26.

Cards of Intel cannot force a class: on their fabrics DSCP 0 is the lossless one.
"""

from __future__ import annotations

import json

ROWS = "".join(
    f"\tprio:{number} dscp:{','.join(f'{dscp:02d}' for dscp in range(8 * number + 7, 8 * number - 1, -1))},\n"
    for number in range(8)
)
MLNX_QOS = (
    "DCBX mode: OS controlled\nPriority trust state: dscp\ndscp2prio mapping:\n"
    + ROWS
    + "Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,max_buffer_size=524160\nCable len: 7\nPFC configuration:\n"
    "\tpriority    0   1   2   3   4   5   6   7\n"
    "\tenabled     0   0   0   1   0   0   0   0   \n"
    "\tbuffer      0   0   0   1   0   0   0   0   \n"
    "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%\n"
    + "".join(f"\t priority:  {number}\n" for number in (0, 1, 2, 4, 5, 7))
    + "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  3\n"
    "tc: 6 ratelimit: unlimited, tsa: strict\n\t priority:  6\n"
)
PAUSE_OFF = "Pause parameters for {}:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n\n"


def dcb_pfc(*priorities: int) -> str:
    states = [number in priorities for number in range(8)]
    return json.dumps({"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": states})


def dcb_app(entries: dict[int, int]) -> str:
    return json.dumps({"dscp_prio": [list(pair) for pair in entries.items()], "dgram_port_prio": [[4791, 3]]})


def dcb_ets(share: int = 50) -> str:
    tsa = ["ets", "strict", "strict", "ets", "strict", "strict", "strict", "strict"]
    bandwidth = [100 - share, 0, 0, share, 0, 0, 0, 0]
    return json.dumps({"prio_tc": [0, 0, 0, 3, 0, 0, 6, 0], "tc_tsa": tsa, "tc_bw": bandwidth})


def lldpcli(pfc: str = "08,08", apps: str = "63,12,B7") -> str:
    """A neighbour with DCBX as lldpd shows it: TLVs that it does not know, as bytes."""
    tlvs = [{"oui": "00,80,C2", "subtype": "11", "len": "2", "value": pfc}] if pfc else []
    if apps:
        tlvs.append({"oui": "00,80,C2", "subtype": "12", "len": "4", "value": f"00,{apps}"})
    neighbour = {
        "name": "enp32s0np0",
        "via": "LLDP",
        "chassis": [{"id": [{"type": "mac", "value": "b8:ce:f6:01:02:03"}], "name": [{"value": "leaf01"}]}],
        "port": [{"id": [{"type": "ifname", "value": "swp12"}], "ttl": [{"value": "120"}]}],
        "unknown-tlvs": [{"unknown-tlv": tlvs}],
    }
    return json.dumps({"lldp": [{"interface": [neighbour]}]})


def good_files(driver: str, device: str, netdev: str) -> dict[str, str]:
    """Files of the kernel, path -> text."""
    if driver == "mlx5_core":
        ecn = f"/sys/class/net/{netdev}/ecn"
        switches = {f"{ecn}/{point}/enable/{n}": "1" for point in ("roce_np", "roce_rp") for n in range(8)}
        return {
            **switches,
            f"{ecn}/roce_np/cnp_dscp": "48",
            f"{ecn}/roce_np/cnp_802p_prio": "6",
            f"/sys/class/infiniband/{device}/tc/1/traffic_class": "Global tclass=106",
        }
    if driver == "bnxt_en":
        folder = f"/sys/kernel/config/bnxt_re/{device}/ports/1/cc"
        values = {
            "ecn_enable": "0x1",
            "ecn_marking": "0x1",
            "cc_mode": "0x1",
            "roce_prio": "0x3",
            "roce_dscp": "0x1a",
            "cnp_prio": "0x6",
            "cnp_dscp": "0x30",
        }
        return {f"{folder}/{name}": text for name, text in values.items()}
    return {"/sys/module/irdma/parameters/dcqcn_enable": "Y"}


def good_commands(driver: str, netdev: str) -> dict[str, str]:
    """Commands and what they print. One source a fact, so that each counts."""
    neighbour = {f"lldpcli -f json0 show neighbors details ports {netdev}": lldpcli()}
    if driver == "mlx5_core":
        return {f"mlnx_qos -i {netdev}": MLNX_QOS, **neighbour}
    if driver == "ice":
        owner = {f"ethtool --show-priv-flags {netdev}": f"Private flags for {netdev}:\nfw-lldp-agent          : off\n"}
    else:
        owner = {f"dcb -j dcbx show dev {netdev}": '{"host":true,"ieee":true}'}
    return {
        f"dcb -j pfc show dev {netdev}": dcb_pfc(3),
        f"dcb -j app show dev {netdev}": dcb_app({0: 3, 48: 6} if driver == "ice" else {26: 3, 48: 6}),
        f"dcb -j ets show dev {netdev}": dcb_ets(),
        **owner,
        **neighbour,
    }
