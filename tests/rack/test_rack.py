"""The rack itself: what other tests on virtual hosts take for granted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rack.host import Host
from tests.rack.rack import Rack

pytestmark = pytest.mark.rack

WIREGUARD_PORT, ROCE_PORT, PERFTEST_PORT = 51820, 4791, 18515


def _lost(host: Host, address: str, count: int = 4) -> int:
    """How many of `count` pings stayed unanswered."""
    output = host.run(f"ping -n -c {count} -i 0.05 -W 2 {address}", check=False).stdout
    received = re.search(r"(\d+) received", output)
    assert received is not None, output
    return count - int(received[1])


def _round_trip_ms(host: Host, address: str) -> float:
    """The quickest of some pings: the slow ones are the emulation's."""
    output = host.run(f"ping -n -c 5 -i 0.2 -W 5 {address}").stdout
    times = re.search(r"min/avg/max/mdev = ([\d.]+)/", output)
    assert times is not None, output
    return float(times[1])


#: Prints what came to a port by the time that something came to another one, which the switch never cuts.
RECEIVER = """
import socket
port, end = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
port.bind(("", PORT))
end.bind(("", 9))
port.setblocking(False)
end.settimeout(60)
print("bound", flush=True)
end.recv(9)
print(port.recv(9).decode())
"""
SENDER = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in (PORT, 9):
    sender.sendto(b"arrived", ("ADDRESS", port))
"""


def _receives_udp(source: Host, target: Host, port: int) -> bool:
    """Whether a datagram from `source` reaches `target` on that port: the two it sends keep their order on the way."""
    target.write("/tmp/receiver", RECEIVER.replace("PORT", str(port)))
    target.run("rm -f /tmp/seen; python3 /tmp/receiver >/tmp/seen 2>&1 </dev/null & echo $! > /tmp/pid")
    target.run("timeout 30 sh -c 'until grep -q bound /tmp/seen; do sleep 0.1; done'")
    source.run("python3 -", text=SENDER.replace("PORT", str(port)).replace("ADDRESS", target.fabric_address))
    return "arrived" in target.run("tail --pid=$(cat /tmp/pid) -f /dev/null; cat /tmp/seen").stdout


def test_hosts_answer_and_are_bare(shared_rack: Rack) -> None:
    for host in shared_rack.hosts:
        assert host.run("hostname").stdout.strip() == host.name
        assert host.run("systemctl is-system-running").stdout.strip() == "running"
        present = host.run(
            "for tool in wg ib_write_bw ethtool lspci docker nft; do command -v $tool; done; true"
        ).stdout
        assert present == ""


def test_clones_are_different_machines(shared_rack: Rack) -> None:
    read = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub /sys/class/net/*/address /proc/sys/kernel/random/uuid"
    first, second = (set(host.run(read).stdout.split("\n")) - {"", "00:00:00:00:00:00"} for host in shared_rack.hosts)
    assert len(first) == len(second) == 5
    assert not first & second


def test_clones_make_different_keys(shared_rack: Rack) -> None:
    # Cloned from one memory, they would make the same "random" key unless their generators were seeded anew.
    make = "d=$(mktemp -d); ssh-keygen -q -t ed25519 -N '' -C x -f $d/key; cat $d/key.pub; rm -r $d"
    keys = [host.run(make).stdout for host in shared_rack.hosts for _ in range(2)]
    assert len(set(keys)) == 4


def test_clocks_are_right_and_synchronised_after_a_clone(shared_rack: Rack) -> None:
    for host in shared_rack.hosts:
        here = int(subprocess.check_output(["date", "+%s"]))
        assert abs(int(host.run("date +%s").stdout) - here) < 10
        assert host.run("timedatectl show -p NTPSynchronized --value").stdout.strip() == "yes"


def test_hosts_reach_each_other_and_nothing_else(shared_rack: Rack) -> None:
    first, second = shared_rack.hosts
    assert _lost(first, second.address) == 0
    assert _lost(second, first.fabric_address) == 0
    # An address in a network set apart for documentation: no one answers, and no packet leaves the namespace.
    assert first.run("ping -n -c 1 -W 2 192.0.2.1", check=False).returncode != 0


def test_soft_roce_is_there_with_an_ipv4_gid(shared_rack: Rack) -> None:
    first = shared_rack.hosts[0]
    assert "state ACTIVE" in first.run("rdma link show rxe0/1").stdout
    expected = "0000:0000:0000:0000:0000:ffff:0a4d:0001"
    assert first.run("cat /sys/class/infiniband/rxe0/ports/1/gids/1").stdout.strip() == expected


def test_drop_cuts_one_port_in_one_direction(shared_rack: Rack) -> None:
    first, second = shared_rack.hosts
    shared_rack.switch.drop("udp", WIREGUARD_PORT, source=1, target=2)
    assert not _receives_udp(first, second, WIREGUARD_PORT)
    assert _receives_udp(second, first, WIREGUARD_PORT)
    assert _receives_udp(first, second, WIREGUARD_PORT + 1)
    assert _lost(first, second.fabric_address) == 0
    shared_rack.switch.clear()
    assert _receives_udp(first, second, WIREGUARD_PORT)


def test_drop_on_tcp_leaves_other_ports_alone(shared_rack: Rack) -> None:
    first, second = shared_rack.hosts
    connect = f"timeout 3 bash -c '</dev/tcp/{second.fabric_address}/22'"
    shared_rack.switch.drop("tcp", PERFTEST_PORT)
    assert first.run(connect, check=False).returncode == 0
    rule = shared_rack.switch.drop("tcp", 22, source=1, target=2)
    assert first.run(connect, check=False).returncode == 124
    shared_rack.switch.lift(rule)
    assert first.run(connect, check=False).returncode == 0


def test_thin_loses_about_its_share(shared_rack: Rack) -> None:
    first, second = shared_rack.hosts
    shared_rack.switch.thin(0.5, source=1, target=2)
    # 100 packets, half of them expected: outside these bounds once in 10^8 runs.
    assert 22 <= _lost(first, second.fabric_address, 100) <= 78


def test_delay_adds_its_time_in_its_direction_only_to_its_traffic(shared_rack: Rack) -> None:
    first, second = shared_rack.hosts
    assert _round_trip_ms(first, second.fabric_address) < 200
    rule = shared_rack.switch.delay(0.3, source=1, target=2)
    assert 300 <= _round_trip_ms(first, second.fabric_address) < 600
    assert 300 <= _round_trip_ms(second, first.fabric_address) < 600
    shared_rack.switch.delay(0.3, source=2, target=1)
    assert 600 <= _round_trip_ms(first, second.fabric_address) < 1200
    shared_rack.switch.clear()
    shared_rack.switch.delay(1.0, "udp", ROCE_PORT)
    assert _round_trip_ms(first, second.fabric_address) < 200
    assert rule not in shared_rack.switch.rules()


def test_ansible_reaches_the_hosts_through_the_inventory(
    shared_rack: Rack, rack_inventory: Callable[[Rack], Path], tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).with_name("ansible")), "-i", str(rack_inventory(shared_rack)), "lium_fabric"]
    done = subprocess.run(
        [*command, "-m", "ping"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("pong") == 2


def test_host_without_rdma(shared_rack: Rack, host: Host) -> None:
    shared_rack.reset(1, roce=False)
    assert host.run("ls /sys/class/infiniband", check=False).stdout == ""
    assert "rdma_rxe" not in host.run("lsmod").stdout
    host.add_rdma_device("rxe1", "eth0")
    assert "netdev eth0" in host.run("rdma link show rxe1/1").stdout
    host.remove_rdma_device("rxe1")
    assert host.run("rdma link show").stdout == ""


def test_packages_install_without_a_network(host: Host) -> None:
    host.run("apt-get update -qq && apt-get install -yqq wireguard-tools ethtool", timeout=300)
    assert "wireguard-tools" in host.run("wg --version").stdout


def test_reset_gives_a_clean_host_with_the_same_identity(shared_rack: Rack, host: Host) -> None:
    identity = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub"
    before = host.run(identity).stdout
    host.run("echo x > /etc/left-behind; ip link set eth1 down; systemctl stop ssh; touch /dev/shm/left-behind")
    shared_rack.reset(1)
    left = host.run("ls /etc/left-behind /dev/shm/left-behind", check=False).stdout
    assert left == ""
    assert host.run(identity).stdout == before
    assert _lost(host, shared_rack.hosts[1].fabric_address) == 0


def test_reboot_keeps_the_disk_and_loses_the_rest(host: Host) -> None:
    host.run("echo x > /etc/kept; sync; touch /dev/shm/lost")
    host.reboot()
    assert host.run("ls /etc/kept /dev/shm/lost", check=False).stdout.split() == ["/etc/kept"]
    assert "state ACTIVE" in host.run("rdma link show rxe0/1").stdout


def test_cold_boot_is_the_way_back(shared_rack: Rack, host: Host) -> None:
    shared_rack.reset(1, boot="cold")
    assert host.run("hostname").stdout.strip() == "host1"
    assert "state ACTIVE" in host.run("rdma link show rxe0/1").stdout


def test_ib_write_bw_runs_over_soft_roce_until_the_switch_cuts_it(full_rack: Rack) -> None:
    first, second = full_rack.hosts
    test = "ib_write_bw -d rxe0 -x 1 -n 100 -s 65536 --report_gbits"
    serve = f"timeout 60 {test} >/tmp/server 2>&1 </dev/null & "
    serve += f"timeout 30 sh -c 'until ss -ltn | grep -q :{PERFTEST_PORT}; do sleep 0.1; done'"
    second.run(serve)
    result = first.run(f"timeout 60 {test} {second.fabric_address}").stdout
    line = next(line.split() for line in result.splitlines() if line.split()[:2] == ["65536", "100"])
    assert float(line[3]) > 0
    # Soft-RoCE then tries for good: only a time limit ends it. The run above took a tenth of this one.
    full_rack.switch.drop("udp", ROCE_PORT)
    second.run(serve)
    assert first.run(f"timeout 20 {test} {second.fabric_address}", check=False).returncode == 124


def test_wireguard_shakes_hands_until_the_switch_cuts_it(full_rack: Rack) -> None:
    first, second = full_rack.hosts
    public = {}
    for host in full_rack.hosts:
        public[host] = host.run("umask 077; wg genkey > /tmp/wg.key; wg pubkey < /tmp/wg.key").stdout.strip()
        host.run("ip link add wg0 type wireguard && wg set wg0 listen-port 51820 private-key /tmp/wg.key")
        host.run(f"ip address add 10.42.0.{host.number}/24 dev wg0 && ip link set wg0 up")
    for host, peer in ((first, second), (second, first)):
        host.run(f"wg set wg0 peer {public[peer]} endpoint {peer.address}:51820 allowed-ips 10.42.0.{peer.number}/32")
    full_rack.switch.drop("udp", WIREGUARD_PORT)
    assert _lost(first, "10.42.0.2") == 4
    assert first.run("wg show wg0 latest-handshakes").stdout.split()[1] == "0"
    full_rack.switch.clear()
    # A handshake without an answer is tried again every 5 s.
    first.run("timeout 60 sh -c 'until ping -n -c 1 -W 1 10.42.0.2; do :; done'")
    assert int(first.run("wg show wg0 latest-handshakes").stdout.split()[1]) > 0


def test_four_hosts_see_each_other(rack_of_four: Rack) -> None:
    assert [host.name for host in rack_of_four.hosts] == ["host1", "host2", "host3", "host4"]
    for host in rack_of_four.hosts:
        assert _lost(host, rack_of_four.hosts[host.number % 4].fabric_address, 2) == 0
