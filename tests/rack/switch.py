"""The switch between the hosts: two bridges in a network namespace without a way out, and rules on what they carry.

A host is one port on each bridge: its management interface (`eth0`) and its fabric interface (`eth1`). Rules know hosts
by the hardware address of the port, so they hold whatever IP addresses a test gives its hosts.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.rack import process
from tests.rack.errors import RackError
from tests.rack.machine import INTERFACES
from tests.rack.shell import run

BRIDGES = ("management", "fabric")
#: Addresses of the bridges' own ends; host N has N in the place of 254.
NETWORKS = ("172.16.5", "10.77.0")
GATEWAY = 254
#: Frames as long as the fabric's jumbo MTU pass; what hosts set on their side decides.
MTU = 9000
Action = Literal["drop", "thin", "delay"]
Protocol = Literal["udp", "tcp"]
_DELAY_LINE_STARTS_WITHIN = 20.0
_DELAY_LINE = Path(__file__).with_name("delayline.py")


@dataclass(frozen=True)
class Rule:
    """What happens to some traffic: `drop` it, `thin` it (drop the share `amount`), or `delay` it by `amount` seconds.

    `protocol` is `udp`, `tcp`, or None for every frame; `port` is the destination port, or None for all ports. `source`
    and `target` are host numbers, None for any: traffic from A to B is one direction of a pair.
    """

    action: Action
    protocol: Protocol | None = None
    port: int | None = None
    source: int | None = None
    target: int | None = None
    amount: float = 1.0

    def __post_init__(self) -> None:
        if self.port is not None and self.protocol is None:
            raise RackError(f"a rule on port {self.port} needs a protocol, udp or tcp")
        if self.action == "thin" and not 0 < self.amount <= 1:
            raise RackError(f"thin takes the share of packets to drop, above 0 and at most 1, not {self.amount}")
        if self.action == "delay" and not 0 < self.amount <= 60:
            raise RackError(f"delay takes seconds, above 0 and at most 60, not {self.amount}")

    def match(self) -> str:
        """The nft expression for the traffic."""
        parts = [
            f"ether {side} {{ {', '.join(mac(host, slot) for slot in range(len(INTERFACES)))} }}"
            for side, host in (("saddr", self.source), ("daddr", self.target))
            if host is not None
        ]
        if self.port is not None:
            parts.append(f"{self.protocol} dport {self.port}")
        elif self.protocol is not None:
            parts.append(f"meta l4proto {self.protocol}")
        return " ".join(parts)


def mac(host: int, slot: int) -> str:
    """The hardware address of a host's interface in that slot."""
    return f"52:54:00:bb:{slot:02x}:{host:02x}"


def address(host: int, slot: int) -> str:
    """The IPv4 address that a fresh host has on that interface."""
    return f"{NETWORKS[slot]}.{host}"


def tap(host: int, slot: int) -> str:
    """The switch's port for that interface."""
    return f"host{host}-{slot}"


class Switch:
    """The switch of one rack, in the network namespace `netns`; its state is in `folder`."""

    def __init__(self, netns: str, folder: Path) -> None:
        self.netns = netns
        self._folder = folder

    def create(self) -> None:
        """Make namespace and bridges, with no ports yet."""
        run(["ip", "netns", "add", self.netns])
        commands = ["link set lo up"]
        for slot, bridge in enumerate(BRIDGES):
            commands += [
                f"link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
                # LLDP is link-local: a bridge passes it on only when told to, a cable would.
                f"link set {bridge} mtu {MTU} type bridge group_fwd_mask 0x4000",
                f"addr add {NETWORKS[slot]}.{GATEWAY}/24 dev {bridge}",
                f"link set {bridge} up",
            ]
        self._ip(commands)
        self._hosts_file.write_text("0")

    def connect(self, host: int) -> None:
        """Make the ports of a host, if it has none yet; hosts are numbered from 1 without gaps."""
        if host <= int(self._hosts_file.read_text()):
            return
        for slot, bridge in enumerate(BRIDGES):
            port = tap(host, slot)
            self._ip([f"tuntap add dev {port} mode tap", f"link set {port} mtu {MTU} master {bridge} up"])
        self._hosts_file.write_text(str(host))
        self._apply(self.rules())

    def remove(self) -> None:
        """Remove the namespace and everything in it."""
        self._end_delay_lines()
        if Path(f"/run/netns/{self.netns}").exists():
            run(["ip", "netns", "delete", self.netns])

    def drop(
        self,
        protocol: Protocol | None = None,
        port: int | None = None,
        *,
        source: int | None = None,
        target: int | None = None,
    ) -> Rule:
        """Cut traffic; `source` and `target` are host numbers. Rules add up until `clear`."""
        return self.add(Rule("drop", protocol, port, source, target))

    def thin(
        self,
        share: float,
        protocol: Protocol | None = None,
        port: int | None = None,
        *,
        source: int | None = None,
        target: int | None = None,
    ) -> Rule:
        """Drop the share (above 0, at most 1) of the packets, by chance."""
        return self.add(Rule("thin", protocol, port, source, target, share))

    def delay(
        self,
        seconds: float,
        protocol: Protocol | None = None,
        port: int | None = None,
        *,
        source: int | None = None,
        target: int | None = None,
    ) -> Rule:
        """Deliver the packets that much later, in order. Of several delays on the same traffic the first holds."""
        return self.add(Rule("delay", protocol, port, source, target, seconds))

    def add(self, rule: Rule) -> Rule:
        """Put one more rule in force."""
        self._apply([*self.rules(), rule])
        return rule

    def lift(self, rule: Rule) -> None:
        """Take one rule back."""
        left = self.rules()
        left.remove(rule)
        self._apply(left)

    def clear(self) -> None:
        """Take all rules back."""
        if self.rules():
            self._apply([])

    def rules(self) -> list[Rule]:
        """The rules in force, oldest first."""
        file = self._folder / "rules.json"
        return [Rule(**rule) for rule in json.loads(file.read_text())] if file.exists() else []

    @property
    def _hosts_file(self) -> Path:
        return self._folder / "ports"

    def _apply(self, rules: list[Rule]) -> None:
        delays = [rule for rule in rules if rule.action == "delay"]
        self._end_delay_lines()
        for number, rule in enumerate(delays):
            self._start_delay_line(number, rule.amount)
        self._run(["nft", "--file", "-"], _ruleset(rules, int(self._hosts_file.read_text())))
        part = self._folder / "rules.json.part"
        part.write_text(json.dumps([asdict(rule) for rule in rules]))
        part.rename(self._folder / "rules.json")

    def _start_delay_line(self, number: int, seconds: float) -> None:
        commands = []
        for slot, bridge in enumerate(BRIDGES):
            port = _delay_port(number, slot)
            # No learning: hosts stay behind their own ports. No flooding: only what a rule sends goes in.
            flags = "learning off flood off mcast_flood off bcast_flood off"
            commands += [
                f"tuntap add dev {port} mode tap",
                f"link set {port} mtu {MTU} master {bridge} up",
                f"link set {port} type bridge_slave {flags}",
            ]
        self._ip(commands)
        ports = [_delay_port(number, slot) for slot in range(len(BRIDGES))]
        record = self._folder / f"delay{number}.process"
        line = ["nsenter", f"--net=/run/netns/{self.netns}", sys.executable, str(_DELAY_LINE), str(seconds), *ports]
        ready = self._folder / f"delay{number}.ready"
        ready.unlink(missing_ok=True)
        log = self._folder / f"delay{number}.log"
        process.start(record, [*line, str(ready)], log=log)
        deadline = time.monotonic() + _DELAY_LINE_STARTS_WITHIN
        while not ready.exists():
            if time.monotonic() > deadline:
                raise RackError(
                    f"the delay line of {seconds} s does not start: {log.read_text(errors='replace')[-500:]}"
                )
            time.sleep(0.01)

    def _end_delay_lines(self) -> None:
        for record in self._folder.glob("delay*.process"):
            process.end(record)
            number = int(record.stem.removeprefix("delay"))
            for slot in range(len(BRIDGES)):
                port = _delay_port(number, slot)
                self._run(["sh", "-c", f"! ip link show {port} >/dev/null 2>&1 || ip link delete {port}"])

    def _ip(self, commands: list[str]) -> None:
        self._run(["ip", "-batch", "-"], "\n".join(commands) + "\n")

    def _run(self, command: list[str], text: str | None = None) -> str:
        return run(["nsenter", f"--net=/run/netns/{self.netns}", *command], text=text)


def _delay_port(number: int, slot: int) -> str:
    return f"delay{number}-{slot}"


def _ruleset(rules: list[Rule], hosts: int) -> str:
    """The whole rule set as one nft transaction."""
    forward = []
    for rule in rules:
        if rule.action != "delay":
            chance = f"numgen random mod 10000 < {round(rule.amount * 10000)}" if rule.action == "thin" else ""
            forward.append(f"{rule.match()} {chance} drop")
    lines = ["table bridge rack {}", "delete table bridge rack", "table netdev rack {}", "delete table netdev rack"]
    lines += [
        "table bridge rack {",
        "chain forward { type filter hook forward priority 0; policy accept;",
        *forward,
        "}",
        "}",
    ]
    delays = [rule for rule in rules if rule.action == "delay"]
    if delays:
        # A delayed frame is taken out where it comes in, and comes in again through the delay line's own port.
        lines.append("table netdev rack {")
        for slot in range(len(BRIDGES)):
            ports = ", ".join(f'"{tap(host, slot)}"' for host in range(1, hosts + 1))
            lines.append(
                f"chain in{slot} {{ type filter hook ingress devices = {{ {ports} }} priority 0; policy accept;"
            )
            lines += [f'{rule.match()} fwd to "{_delay_port(number, slot)}"' for number, rule in enumerate(delays)]
            lines.append("}")
        lines.append("}")
    return "\n".join(lines) + "\n"
