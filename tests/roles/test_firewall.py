"""The opt-in rules through the real ufw and the real firewalld: what a peer sends really gets through, or does not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.collection.conftest import ROOT
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

PLAY = str(Path(__file__).with_name("firewall.yml"))
PORT, FORWARD = "probe.tcp_18515", "wg.fw_forward"
BOTH = ["TCP 18515", "UDP 51820"]

#: A person's own rules, of which 9100 is also the way that the tests know to be open. Behind ufw a network namespace
#: stands for a pod that is reached by the FORWARD path; firewalld opens the INPUT path alone.
UFW = """
apt-get -qq install --yes ufw
ufw allow 22/tcp; ufw allow 9100; ufw route allow 9100/udp; ufw limit in on eth1 proto tcp to any port 18514
ufw --force enable
ip netns add pod
ip link add pod0 type veth peer name eth0 netns pod
ip addr add 10.99.0.1/24 dev pod0; ip link set pod0 up
ip -n pod addr add 10.99.0.2/24 dev eth0; ip -n pod link set eth0 up; ip -n pod route add default via 10.99.0.1
"""
FIREWALLD = """
mkdir -p /etc/firewalld/zones
cat > /etc/firewalld/zones/public.xml << END
<zone>
  <service name="ssh"/>
  <port port="9100" protocol="tcp"/>
  <port port="9100" protocol="udp"/>
  <port port="18516-18520" protocol="tcp"/>
</zone>
END
apt-get -qq install --yes firewalld
until nft list chain inet firewalld filter_IN_public_allow 2> /dev/null | grep 18516; do sleep 0.2; done
ip route add 10.99.0.0/24 via 10.77.0.1
"""

#: Listens, then goes to the background until something came in by both ways that are open. What was sent before that to
#: the other two ports is there by then, or was stopped.
RECEIVE = """
import ctypes, json, os, select, socket, sys
own, behind, netns = sys.argv[1:]
tcp = [socket.create_server((own, port)) for port in (18515, 9100)]
if netns:
    assert ctypes.CDLL(None).setns(os.open(f"/run/netns/{netns}", os.O_RDONLY), 0) == 0
udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for waiting, port in zip(udp, (51820, 9100)):
    waiting.bind((behind, port))
if os.fork():
    os._exit(0)
os.setsid()
for number in range(3):
    os.dup2(os.open("/dev/null", os.O_RDWR), number)
for control in (tcp[1], udp[1]):
    control.settimeout(60)
tcp[1].accept()
udp[1].recv(9)
came = [name for name, port in (("TCP 18515", tcp[0]), ("UDP 51820", udp[0])) if select.select([port], [], [], 0)[0]]
with open("/run/came.part", "w") as file:
    json.dump(came, file)
os.rename("/run/came.part", "/run/came")
"""
SEND = """
import socket, sys
address, behind = sys.argv[1:]
udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
tcp.setblocking(False)
tcp.connect_ex((address, 18515))
socket.create_connection((address, 9100), 60)
for port in (51820, 9100):
    udp.sendto(b"here", (behind, port))
"""
CAME = "for _ in $(seq 300); do test ! -e /run/came || break; sleep 0.2; done; cat /run/came; rm /run/came"


def as_the_role_leaves_it() -> str:
    """All but the firewall's rules, so that these alone are changed, and a run less takes a second look."""
    (task,) = yaml.safe_load((ROOT / "roles" / "wireguard" / "tasks" / "configure.yml").read_text(encoding="utf-8"))
    (file,) = task["lium.cluster.footprint"]["files"]
    return f"modprobe wireguard; printf %s {shlex.quote(file['content'])} > {file['path']}"


def on_each(hosts: Sequence[Host], commands: Sequence[str], texts: Sequence[str | None] = (None, None)) -> list[str]:
    """Runs a command on each host, on all at the same time; their outputs."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        done = pool.map(
            lambda row: row[0].run(row[1], text=row[2], timeout=600), zip(hosts, commands, texts, strict=True)
        )
        return [row.stdout for row in done]


def what_comes_through(hosts: Sequence[Host]) -> list[list[str]]:
    """What each host gets of what the other one sends to both ports."""
    one, two = (host.fabric_address for host in hosts)
    on_each(hosts, [f"python3 - {one} 10.99.0.2 pod", f"python3 - {two} {two} ''"], [RECEIVE] * 2)
    on_each(hosts, [f"python3 - {two} {two}", f"python3 - {one} 10.99.0.2"], [SEND] * 2)
    return [json.loads(text) for text in on_each(hosts, [CAME] * 2)]


def rules_of(hosts: Sequence[Host]) -> list[set[str]]:
    """The rules as ufw lists them; what the kernel has of firewalld's default zone, and what its file has."""
    zone = "nft list chain inet firewalld filter_IN_public_allow && grep '<port' /etc/firewalld/zones/public.xml"
    return [set(re.findall(r"[^\s].*", text)) for text in on_each(hosts, ["ufw show added", zone])]


def test_the_opt_in_opens_both_ports_through_the_tool_that_is_active(
    full_rack: Rack, inventory: Callable[[Rack], Path], playbook: Playbook
) -> None:
    hosts, listed = full_rack.hosts, inventory(full_rack)
    on_each(hosts, [f"set -e\n{as_the_role_leaves_it()}\n{tool}" for tool in (UFW, FIREWALLD)])
    before = rules_of(hosts)

    closed = playbook(PLAY, listed, look=True)
    assert closed.changed == {host.name: 0 for host in hosts}, closed.screen
    for host, command in zip(
        hosts,
        (
            "Run `ufw allow in on eth1 proto tcp to any port 18515`, or",
            "Run `firewall-cmd --permanent --zone=public --add-port=18515/tcp` and"
            " `firewall-cmd --zone=public --add-port=18515/tcp`, or",
        ),
        strict=True,
    ):
        record = closed.record(host.name, PORT)
        assert (record["status"], record["remediation"].partition(" set ")[0]) == ("MUST_FIX", command), record
        assert "lium_manage_firewall: true" in record["remediation"]
    assert closed.record("host1", FORWARD)["status"] == "OK"
    # Docker had started before firewalld, which took its chains away: no pod with a published port would start.
    gone = closed.record("host2", FORWARD)
    assert (gone["status"], "systemctl restart docker" in gone["remediation"]) == ("MUST_FIX", True), gone
    assert rules_of(hosts) == before, "nothing is added that was not asked for"
    assert what_comes_through(hosts) == [[], []]

    opened = playbook(PLAY, listed, look=True, lium_manage_firewall=True)
    for host in hosts:
        assert opened.changed[host.name] == 1, opened.screen
        assert opened.record(host.name, PORT)["status"] == "OK", opened.screen
    assert what_comes_through(hosts) == [BOTH, BOTH]
    assert [after - rules for after, rules in zip(rules_of(hosts), before, strict=True)] == [
        {"ufw route allow 51820/udp", "ufw allow in on eth1 to any port 18515 proto tcp"},
        {
            "udp dport 51820 accept",
            "tcp dport 18515 accept",
            '<port port="51820" protocol="udp"/>',
            '<port port="18515" protocol="tcp"/>',
        },
    ]

    again = playbook(PLAY, listed, lium_manage_firewall=True, then="remove")
    assert again.rc == 0, again.screen
    # A second run with nothing to change, and of offboard's part one task that takes back.
    assert again.changed == {host.name: 1 for host in hosts}, again.screen
    assert rules_of(hosts) == before, "a person's own rules stay"
    assert what_comes_through(hosts) == [[], []]
