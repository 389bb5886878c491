# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Why a run of perftest failed: the texts it prints, their class, the usual cause, and what to do (host-contract 5.3).

Stdlib only and without relative imports of the controller: the agent carries this file to the hosts.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Cause(NamedTuple):
    """What a class of failure usually means.

    ``part`` is what it accuses by itself: host, nic, cable, path or nothing.
    """

    cause: str
    fix: str
    part: str | None


CAUSES = {
    "no_nodes": Cause(
        "the host has no /dev/infiniband", "load ib_uverbs and rdma_ucm, then look at the rdma role's checks", "host"
    ),
    "no_single_rail": Cause(
        "no rail, or rails with different GID indexes: the platform's probe refuses to run",
        "make the GID tables of all rails alike (roce.gid_index_uniform)",
        "host",
    ),
    "no_active_port": Cause("no port is ACTIVE", "bring the link up: driver, cable, switch port", "host"),
    "docker": Cause("the Docker daemon does not answer", "start Docker and look at its journal", "host"),
    "no_perftest": Cause("ib_write_bw is not installed", "install the package perftest", "host"),
    "no_device": Cause(
        "the RDMA device is not there for verbs: wrong name, exclusive network namespace, or no provider library",
        "compare `rdma link` with `ibv_devices`; install ibverbs-providers",
        "nic",
    ),
    "port_down": Cause("the port is down", "look at cable, optic and the switch port", "cable"),
    "mtu": Cause(
        "the requested MTU is larger than the port's active MTU", "set the same MTU on both hosts and the switch", "nic"
    ),
    "peer_memory": Cause(
        "GPU memory cannot be registered: the GPU peer-memory module is missing",
        "load nvidia-peermem, or use a driver with DMA-BUF",
        "host",
    ),
    "memlock": Cause(
        "memory cannot be registered: the memory lock limit is too small, or IPC_LOCK is missing",
        "set memlock to unlimited for the user that runs the test (`ulimit -l`)",
        "host",
    ),
    "gid_types": Cause(
        "the two ends use GIDs of different types, or the index in use is empty on one of them",
        "use the index that holds the IPv4-mapped RoCE v2 GID on both ends (host-contract 3.2)",
        "nic",
    ),
    "gid_empty": Cause(
        "the GID index in use is empty", "use the index that holds the fabric address (host-contract 3.2)", "nic"
    ),
    "gid_or_route": Cause(
        "the queue pair found no way to the peer: GID of the wrong type, or no ARP answer or route, or an MTU mismatch",
        "check the GID's type and address, `ip neigh` for the peer, rp_filter and arp_ignore",
        "nic",
    ),
    "fabric_drop": Cause(
        "retries exceeded, RDMA packets do not come through: GID version, UDP 4791, not the same rail, VLAN or ACL,"
        " or a switch without lossless queueing",
        "check the GID version on both ends, UDP 4791 along the path, that both ends sit on the same rail, and PFC/ECN"
        " on the switch; a ping proves nothing here",
        None,
    ),
    "receiver": Cause("the receiver was not ready in time", "look at the server end's own failure and load", None),
    "completion": Cause(
        "the transfer ended with an error", "look at the status text and at both ends' kernel log", None
    ),
    "port_busy": Cause(
        "the test port is taken by another program, maybe an old server or the platform's probe",
        "find its owner with `ss -ltnp`, and run again when it has gone",
        "host",
    ),
    "address_family": Cause(
        "this perftest cannot take an IPv6 address for its control link",
        "use the peer's IPv4 address, or a newer perftest with --ipv6",
        None,
    ),
    "connect_refused": Cause(
        "nothing listened on the server's test port",
        "look at the server end: it ended, or started too late",
        None,
    ),
    "connect": Cause(
        "no TCP connection to the server's test port came about: the port is filtered, or the address is wrong",
        "open the TCP test port (18515) in INPUT between the fabric addresses; probe.tcp_18515 of an audit says how",
        None,
    ),
    "image": Cause("the probe image cannot be had", "pull the image beforehand (registry, rate limit, disk)", "host"),
    "bad_option": Cause(
        "this perftest does not know an option that was asked for",
        "install the same, newer perftest on all hosts",
        "host",
    ),
    "arguments": Cause(
        "the two ends ran with different arguments, or with different defaults of their perftest",
        "install the same perftest on all hosts",
        None,
    ),
    "peer_died": Cause("the other end ended first", "read the other end's output", None),
    "secondary": Cause("the queue was flushed after an earlier error", "look for the first error", None),
    "crash": Cause("perftest crashed", "look at the kernel log and update perftest", "host"),
    "killed": Cause(
        "perftest was killed from outside", "look for the out-of-memory killer and who sent the signal", "host"
    ),
    "hang": Cause(
        "no end before the deadline, and no word that would tell why",
        "check TCP 18515 and UDP 4791 between the two addresses, and the path MTU with large packets",
        None,
    ),
    "zero": Cause("the run ended with 0.00 Gb/s", "nothing was carried: treat it as fabric_drop", None),
    "no_row": Cause("perftest ended well but printed no result", "compare the perftest versions of both ends", None),
    "unit_mismatch": Cause(
        "the result is in MiB/s: --report_gbits did not reach perftest", "run with the platform's arguments", "host"
    ),
    "link_type": Cause("the link is not Ethernet, so this is not RoCE", "use the RoCE device of this rail", "nic"),
    "gid_index": Cause("perftest used another GID index than asked for", "pass the index with -x", "host"),
    "failed": Cause("perftest failed with a text that is not known", "read the quoted line", None),
}

#: Text → class, the most telling first: a failure names its own cause before it names what followed from it, so of all
#: texts of both ends the earliest in this list counts.
_TEXTS = (
    ("no_nodes", r'adding custom device "/dev/infiniband'),
    ("no_single_rail", r"names no single RoCE rail"),
    ("no_active_port", r"no ACTIVE RDMA port"),
    ("docker", r"Cannot connect to the Docker daemon"),
    ("no_perftest", r"ib_write_bw: (?:command )?not found|executable file not found|ib_write_bw: No such file"),
    ("no_device", r"IB device \S+ not found|No IB devices found|Unable to find the Infiniband/RoCE device"),
    ("port_down", r"Port number \d+ state is|Couldn't set the link layer"),
    ("no_device", r"Couldn't get context for the device|Failed to open device"),
    ("mtu", r"Requested mtu is higher than active mtu"),
    ("memlock", r"Couldn't allocate MR|[Ff]ailed to create mr|Failed to create MR"),
    ("gid_types", r"Incompatibility issue with GID types"),
    ("gid_or_route", r"Failed to modify QP .*to RTR|Unable to Connect the HCA's"),
    ("fabric_drop", r"Failed status 12\b|Failed status-?\s*transport retry counter exceeded"),
    ("receiver", r"Failed status 13\b|RNR retry counter exceeded"),
    ("completion", r"Failed status (?!5\b)(?!-?\s*Work Request Flushed)"),
    ("port_busy", r"Couldn't listen to port|(?:Address|port) (?:is )?already (?:in use|allocated)"),
    ("address_family", r"Address family for hostname not supported|resolving basic address"),
    ("bad_option", r"invalid option|unrecognized option"),
    ("arguments", r"\w+ mismatch: local=|Failed to negotiate parameters"),
    ("connect", r"Couldn't connect to|socket connection|rdma_connect|Unexpected CM event"),
    ("image", r"Unable to find image|pull access denied|toomanyrequests|manifest unknown"),
    ("secondary", r"Failed status 5\b|Work Request Flushed"),
    (
        "peer_died",
        r"Couldn't read remote address|Unable to (?:read|write) (?:from|to) socket|Failed to exchange data"
        r"|Failed to complete run_iter_bw",
    ),
)

_GPU = re.compile(r"initializing CUDA|use_cuda|allocated GPU buffer|Bad address")
_LOCAL_GID = re.compile(r"local address:.*\n\s*GID:\s*([0-9:]+)")
_GID_INDEX = re.compile(r"^\s*G[iI][dD] index\s*:\s*(\d+)", re.M)
#: Both ends' addresses are printed after the TCP handshake; from there on only RDMA can be missing.
_EXCHANGED = re.compile(r"remote address:")
_WAITING = re.compile(r"Waiting for client to connect")
#: How ``timeout`` and a shell tell of an end by a signal; a Python parent sees the negative number.
_DEADLINE = (124,)
_CRASHES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}


class End(NamedTuple):
    """What one end of a test left.

    Exit code (``None`` when it never started), texts, and whether the deadline cut it.
    """

    rc: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False

    @property
    def text(self) -> str:
        return f"{self.stdout}\n{self.stderr}"

    @property
    def cut(self) -> bool:
        return self.timed_out or self.rc in _DEADLINE


class Failure(NamedTuple):
    """One cause, with the line that shows it and the end (``client`` or ``server``) that printed it."""

    name: str
    cause: str
    fix: str
    quote: str
    end: str

    def accuses(self, *, server: str, client: str) -> str | None:
        """The host that this failure accuses by its own words.

        The one at whose end a cause that lies with it showed.
        """
        if CAUSES[self.name].part is None:
            return None
        return client if self.end == "client" else server


def classify(client: End, server: End | None = None) -> Failure:
    """The cause of a failed test, from both ends' outputs.

    Of two causes the more telling one counts, whichever end printed it; at equal weight the client's, for the server's
    words often only say that the client went away. An exit code (139, 124) is asked only when no text tells more.
    """
    best: tuple[int, str, re.Match[str], str] | None = None
    for end, side in ((client, "client"), (server, "server")):
        if end is None:
            continue
        for weight, (name, pattern) in enumerate(_TEXTS):
            found = re.search(pattern, end.text)
            if found and (best is None or weight < best[0]):
                best = (weight, name, found, side)
    # A deadline that cut a data transfer is told better by the hang than by a follow-up of the kill.
    if best is None or (_TEXTS[best[0]][0] in ("peer_died", "secondary") and client.cut):
        return _wordless(client, server)
    _, name, found, side = best
    end = client if side == "client" or server is None else server
    quote = _line_of(end.text, found)
    if name == "gid_or_route":
        # Both ends fail so when one has no GID; what each prints as its own tells which.
        for one, its in ((client, "client"), (server, "server")):
            index = _empty_gid(one) if one is not None else None
            if index is not None:
                return failure("gid_empty", quote, its)._replace(cause=f"GID index {index} is empty")
    if name == "memlock" and _GPU.search(end.text):
        name = "peer_memory"
    return failure(name, quote, side)


def failure(name: str, quote: str = "", end: str = "client") -> Failure:
    """A failure of a known class, with its cause and fix."""
    cause = CAUSES[name]
    return Failure(name, cause.cause, cause.fix, quote, end)


def _empty_gid(end: End) -> str | None:
    """The GID index of an end that printed zeros as its own GID."""
    gid = _LOCAL_GID.search(end.text)
    index = _GID_INDEX.search(end.text)
    return index.group(1) if gid and index and not gid.group(1).strip("0:") else None


def _wordless(client: End, server: End | None) -> Failure:
    """The verdict where no text names a cause: by exit code, and by how far the two ends came."""
    for end, side in ((client, "client"), (server, "server")):
        if end is None or end.cut or end.rc is None:
            continue
        number = -end.rc if end.rc < 0 else end.rc - 128
        if number in _CRASHES:
            return failure("crash", f"ended by {_CRASHES[number]}", side)
        if end.rc == 127:
            return failure("no_perftest", "exit code 127", side)
        if number == 9:
            return failure("killed", "ended by SIGKILL", side)
    if client.cut:
        if _EXCHANGED.search(client.text):
            seen = "addresses were exchanged over TCP, then no RDMA completion before the deadline"
            return failure("fabric_drop", seen)
        if server is not None and _WAITING.search(server.text) and not _EXCHANGED.search(server.text):
            return failure("connect", "the server still waited for its client at the deadline", "server")
        return failure("hang", "cut at the deadline")
    words = [line.strip() for line in client.text.splitlines() if line.strip()]
    return failure("failed", words[-1] if words else f"exit code {client.rc}, no output")


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return text[start : end if end >= 0 else len(text)].strip()[:200]
