"""What perftest prints for what the fabric model shows: the texts of host-contract 5.3."""

from __future__ import annotations

from tools.rehearsal.fabric import Shown

#: A GID that is not there, as perftest prints it.
NO_GID = ":".join(["00"] * 16)

_TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : {device}
 Number of qps   : {qps}\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 TX depth        : 128
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : {gid_index}
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x01a7 PSN 0x5c2f19 RKey 0x1fff00 VAddr 0x007f5a3c010000
 GID: {local}
 remote address: LID 0000 QPN 0x01b2 PSN 0xe1a004 RKey 0x1fff00 VAddr 0x007f11d8010000
 GID: {remote}
"""
_HEAD = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
"""
_TEXTS = {
    "memlock": "Couldn't allocate MR with error=12\nfailed to create mr\n Couldn't create IB resources\n",
    "no_perftest": "sh: 1: ib_write_bw: not found\n",
    "docker": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
    "no_device": "IB device {device} not found\n Unable to find the Infiniband/RoCE device\n",
    "port": " Unable to query port {port} attributes\n Couldn't set the link layer\n",
    "mismatch": " {name} mismatch: local={local}, remote={remote}\n Failed to negotiate parameters\n",
    "gid_or_route": "Failed to modify QP 423 to RTR\n Unable to Connect the HCA's through the link\n",
    "gid_types": " Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n",
    "fabric_drop": " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
}


def table(device: str, gid_index: int, qps: int, local: str, remote: str) -> str:
    """What stands above a result; ``local`` and ``remote`` are the GIDs of the two ends, see :func:`gid`."""
    return _TABLE.format(device=device, gid_index=gid_index, qps=qps, local=local, remote=remote)


def result(shown: Shown, above: str, device: str, iterations: int, *, gbits: bool) -> tuple[int, str]:
    """Exit code and text of a client; ``above`` is the table. Without ``gbits`` the unit is perftest's own, MiB/sec."""
    above += _HEAD.format(unit="Gb/sec" if gbits else "MiB/sec")
    if shown.gigabits_per_second is not None:
        rate = shown.gigabits_per_second
        told = rate if gbits else rate * 1e9 / 8 / 2**20
        row = f" 65536      {iterations:<10}       {told:.2f}              {told:.2f}  \t\t     {rate / 0.524288:.6f}\n"
        return 0, above + row
    if shown.failure == "fabric_drop":
        return 1, above + _TEXTS["fabric_drop"]
    return failed(shown.failure or "", device=device)


def failed(word: str, **values: object) -> tuple[int, str]:
    """Exit code and text of an end that fails by itself."""
    return 1, _TEXTS[word].format(**values)


def gid(address: str) -> str:
    """The IPv4-mapped GID of an address."""
    return ":".join([*["00"] * 10, "255", "255", *(f"{int(part):02}" for part in address.split("."))])
