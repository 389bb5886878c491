"""What perftest prints for what the fabric model shows: the texts of host-contract 5.3."""

from __future__ import annotations

from tools.rehearsal.fabric import Shown

_TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : {device}
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 TX depth        : 128
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x01a7 PSN 0x5c2f19 RKey 0x1fff00 VAddr 0x007f5a3c010000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:{client}
 remote address: LID 0000 QPN 0x01b2 PSN 0xe1a004 RKey 0x1fff00 VAddr 0x007f11d8010000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:{server}
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
"""
_TEXTS = {
    "memlock": "Couldn't allocate MR with error=12\nfailed to create mr\n Couldn't create IB resources\n",
    "no_perftest": "sh: 1: ib_write_bw: not found\n",
    "docker": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
    "no_device": "IB device {device} not found\n Unable to find the Infiniband/RoCE device\n",
    "gid_or_route": "Failed to modify QP 423 to RTR\n Unable to Connect the HCA's through the link\n",
    "gid_types": " Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n",
    "fabric_drop": " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
}


def client_output(shown: Shown, device: str, client: str, server: str) -> tuple[int, str]:
    """Exit code and text of the client; ``client`` and ``server`` are the two fabric addresses."""
    table = _TABLE.format(device=device, client=_bytes(client), server=_bytes(server))
    if shown.gigabits_per_second is not None:
        rate = shown.gigabits_per_second
        return (
            0,
            f"{table} 65536      1000             {rate:.2f}              {rate:.2f}  \t\t     {rate / 0.524288:.6f}\n",
        )
    if shown.failure == "fabric_drop":
        return 1, table + _TEXTS["fabric_drop"]
    return failed(shown.failure or "", device)


def failed(name: str, device: str) -> tuple[int, str]:
    """Exit code and text of an end that fails by itself."""
    return 1, _TEXTS[name].format(device=device)


def _bytes(address: str) -> str:
    return ":".join(f"{int(part):02}" for part in address.split("."))
