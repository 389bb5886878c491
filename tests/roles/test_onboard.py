"""From a bare host to a sellable one and back, on virtual hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import MakeStack
from tests.rack.rack import Rack
from tests.roles.conftest import Playbook, differences, snapshot
from tests.support.clusters import cluster, live, program, unmeasured
from tools.emulator import Emulator

pytestmark = [pytest.mark.rack, pytest.mark.slow, pytest.mark.timeout(3600)]

#: What a rack of virtual hosts does not have: Docker and the executor come with the provider's own installer, and a
#: Soft-RoCE device has no queues whose setting could be read.
NOT_OURS = {"docker.present": "MUST_FIX", "docker.daemon_json": "MUST_FIX", "roce.lossless": "UNKNOWN"}

#: What Debian keeps when a package is gone, by its policy: system groups, and records of the package manager.
PACKAGE_MANAGER = r"/etc/(group|gshadow|passwd|shadow|subuid|subgid)-? |/etc/ld\.so\.cache |/var/lib/(dpkg|apt|ucf)/"


def test_bare_host_is_onboarded_and_offboarded(
    rack: Rack,
    inventory: Callable[[Rack], Path],
    playbook: Playbook,
    make_stack: MakeStack,
    engine_env: dict[str, str],
    emulator: Emulator,
) -> None:
    hosts = inventory(rack)
    before = {host.name: snapshot(host) for host in rack.hosts}

    audit = playbook("audit", hosts)
    assert audit.rc == 2, audit.screen
    for host in rack.hosts:
        assert audit.record(host.name, "rdma.modules")["status"] == "MUST_FIX"
        assert audit.record(host.name, "wg.module")["status"] == "MUST_FIX"
        assert differences(before[host.name], snapshot(host)) == [], "an audit changes nothing"

    predicted = playbook("onboard", hosts, "--check", "--diff")
    assert predicted.rc == 0, predicted.screen
    assert "the hosts as they are before any change" in predicted.screen
    for host in rack.hosts:
        assert re.search(rf"^{host.name} +:.* failed=0 .*rescued=0 ", predicted.screen, re.M), predicted.screen
        assert differences(before[host.name], snapshot(host)) == [], "check mode changes nothing"

    first = playbook("onboard", hosts)
    for host in rack.hosts:
        assert first.not_well(host.name) == NOT_OURS, first.screen
        assert first.changed[host.name] == predicted.changed[host.name], "check mode predicts the real run"
        assert host.run("cat /etc/modules-load.d/lium-rdma.conf").stdout.split("\n")[1:3] == ["ib_uverbs", "rdma_ucm"]
        assert set(host.run("lsmod").stdout.split()) >= {"ib_uverbs", "rdma_ucm", "wireguard"}

    second = playbook("onboard", hosts)
    assert second.changed == {host.name: 0 for host in rack.hosts}, second.screen
    assert {host.name: second.not_well(host.name) for host in rack.hosts} == {
        host.name: NOT_OURS for host in rack.hosts
    }

    the_verified_hosts_are_ordered(rack, hosts, playbook, make_stack, engine_env, emulator)

    rebooted = rack.hosts[0]
    rebooted.reboot()
    assert set(rebooted.run("lsmod").stdout.split()) >= {"ib_uverbs", "rdma_ucm", "wireguard"}, "also after a reboot"
    assert rebooted.run("ulimit -l").stdout.strip() == "unlimited"

    gone = playbook("offboard", hosts)
    assert gone.rc == 0, gone.screen
    for host in rack.hosts[1:]:
        assert differences(before[host.name], snapshot(host), PACKAGE_MANAGER) == []
        assert host.run("ls /var/lib/lium-cluster", check=False).returncode != 0
    again = playbook("offboard", hosts)
    assert again.changed == {host.name: 0 for host in rack.hosts}, again.screen


def the_verified_hosts_are_ordered(
    rack: Rack,
    hosts: Path,
    playbook: Playbook,
    make_stack: MakeStack,
    engine_env: dict[str, str],
    emulator: Emulator,
) -> None:
    """What the verification measured is what the service sells from then on, and `pulumi up` orders it."""
    names = [host.name for host in rack.hosts]
    results = hosts.with_name("lium-roce.json")
    patience = {"pair_timeout_s": 150, "listen_wait_s": 90, "patience_s": 60}  # processors are emulated
    done = playbook(
        "verify_roce",
        hosts,
        roce_verify_results=str(results),
        **{f"roce_verify_{name}": value for name, value in patience.items()},
    )
    assert done.rc == 0, done.screen
    assert f"Sellable as one cluster: all {len(names)} hosts" in done.screen
    emulator.reset(unmeasured(names))
    stack = make_stack(program(cluster(nodes=len(names), fabric_type="roce")), env=engine_env)
    stack.up(ok=False)
    assert live(emulator) == [], "nothing is on sale before a pair is measured"
    emulator.call("POST", "measurements", json.loads(results.read_text(encoding="utf-8")))
    stack.up()
    assert sorted(pod["executor"]["id"] for pod in live(emulator)) == sorted(names)
    stack.destroy()
    assert live(emulator) == []


def test_faults_of_the_fabric_are_named(
    rack_of_four: Rack, inventory: Callable[[Rack], Path], playbook: Playbook
) -> None:
    hosts = inventory(rack_of_four)
    one, two, three, four = rack_of_four.hosts
    for host in rack_of_four.hosts:
        host.run("modprobe rdma_ucm")
    one.remove_rdma_device()
    two.add_rdma_device("rxe1", "eth0")
    three.run(f"ip addr flush dev eth1 && ip addr add {four.fabric_address}/24 dev eth1")
    first = playbook("audit", hosts)

    absent = first.record("host1", "rdma.port_active")
    assert (absent["status"], "Fit an RDMA card" in absent["remediation"]) == ("MUST_FIX", True)
    segments = first.record("host2", "roce.single_segment")
    assert segments["status"] == "MUST_FIX"
    assert segments["observed"].startswith("roce.two_segments: 10.77.0.0/24, 172.16.5.0/24")
    assert "enable_rdma" in segments["remediation"]
    for name in ("host3", "host4"):
        twice = first.record(name, "roce.unique_address")
        assert twice["status"] == "MUST_FIX"
        assert f"roce.duplicate_address: {four.fabric_address}" in twice["observed"]
    # Each fault is on the page as well, at first glance: what was seen, on which hosts, and what to do.
    for on, planted in (("host1", absent), ("host2", segments), ("host3, host4", twice)):
        shown = first.on_page(planted["id"])
        assert f"Hosts {on} Seen {planted['observed']} Do {planted['remediation']}" in shown, first.page

    one.add_rdma_device()
    one.run("ip link set eth1 mtu 4200")
    two.remove_rdma_device("rxe1")
    two.run(
        "ip addr flush dev eth1 && for n in 1 2 3 4; do ip -6 addr add fd00:77::$n/64 dev eth1 nodad; done"
        f" && ip addr add {two.fabric_address}/24 dev eth1"
    )
    three.run(f"ip addr flush dev eth1 && ip addr add {three.fabric_address}/24 dev eth1")
    second = playbook("audit", hosts)

    hidden = second.record("host2", "roce.gid_window")
    assert hidden["status"] == "MUST_FIX", second.screen
    index = re.search(r"at GID index (\d+)", hidden["observed"])
    assert index is not None
    assert int(index[1]) >= 4
    assert "accept_ra=0" in hidden["remediation"]
    for name in ("host1", "host3", "host4"):
        mtu = second.record(name, "net.mtu")
        assert (mtu["status"], "host1 4200" in mtu["observed"]) == ("MUST_FIX", True)
        assert second.record(name, "roce.unique_address")["status"] == "OK"
