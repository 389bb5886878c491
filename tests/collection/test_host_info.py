"""`host_info` on generated hosts: nothing found on good ones, each seeded fault found with its fix."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import look_at_wireguard

from tests.collection import recorded_host
from tests.collection.recorded_host import (
    CARDS,
    RecordedHost,
    add_device,
    add_to_iommu_group,
    healthy_host,
    mapped_gid,
    set_addresses,
)

#: The ids of host-contract 1.A to 1.E and 1.H, and the subnet manager's of 3.5.
CONTRACT_IDS = {
    "boot.secure_boot",
    "cpu.governor",
    "docker.daemon_json",
    "docker.present",
    "docker.restart_safe",
    "executor.ports",
    "fabric.kind",
    "fabric.mixed",
    "ib.subnet_manager",
    "kernel.cmdline_iommu",
    "kernel.headers_match",
    "limits.memlock",
    "mem.hugepages",
    "net.arp_multirail",
    "net.global_pause",
    "net.mtu",
    "numa.affinity",
    "nvidia.toolkit",
    "os.supported",
    "pcie.acs",
    "pcie.ats",
    "pcie.link",
    "pcie.relaxed_ordering",
    "probe.image_cached",
    "probe.tcp_18515",
    "rdma.device_nodes",
    "rdma.modules",
    "rdma.netns_mode",
    "rdma.peermem",
    "rdma.persistent_naming",
    "rdma.port_active",
    "rdma.sriov",
    "rdma.stack_identity",
    "roce.gid_index_uniform",
    "roce.gid_window",
    "roce.same_prefix_assumption",
    "roce.single_segment",
    "roce.unique_address",
    "sysbox.runtime",
    "time.ntp",
}
FOUND = ("MUST_FIX", "WARN", "UNKNOWN")


def look_at(host: RecordedHost, folder: Path) -> dict[str, Record]:
    return {record.id: record for record in look(open_probe(str(host.write(folder)), {}), {}).records}


def look_at_all(host: RecordedHost, folder: Path) -> dict[str, Record]:
    """The records of `wireguard_info` and `lossless_info` as well."""
    found = look(open_probe(str(host.write(folder)), {}), {}).records
    overlay = look_at_wireguard(open_probe(str(folder), {}), {"ports": [51820]}).records
    lossless = look_at_lossless(open_probe(str(folder), {}), {}).records
    return {record.id: record for record in (*found, *overlay, *lossless)}


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_found_on_a_healthy_host(seed: int, tmp_path: Path) -> None:
    host = healthy_host(random.Random(seed))
    records = look_at(host, tmp_path / "host")
    assert set(records) == CONTRACT_IDS
    assert {row.id: row.observed for row in records.values() if row.status in FOUND} == {}, host.description


def _roce(seed: int = 3) -> RecordedHost:
    """A RoCE host of two mlx5 rails, whatever the seed draws for the rest."""
    rng = random.Random(seed)
    while True:
        host = healthy_host(rng, kind="roce")
        if host.description.endswith("2 x mlx5_core"):
            return host


def old_kernel(host: RecordedHost) -> None:
    host.answer("uname -r", "5.15.0-1-generic\n")


def arm_machine(host: RecordedHost) -> None:
    host.answer("uname -m", "aarch64\n")


def unsigned_driver(host: RecordedHost) -> None:
    host.answer("mokutil --sb-state", "SecureBoot enabled\n")
    host.answer("dkms status", "mlnx-ofed-kernel/24.10, 6.8.0-60-generic, x86_64: installed\n")


def translating_iommu(host: RecordedHost) -> None:
    add_to_iommu_group(host, "/sys/devices/pci0000:00/0000:10:01.0/0000:20:00.0", 7, "DMA-FQ")


def translated_gpu(host: RecordedHost) -> None:
    add_to_iommu_group(host, "/sys/bus/pci/devices/0000:43:00.0", 8, "DMA")


def clock_off(host: RecordedHost) -> None:
    host.answer("timedatectl show -p NTPSynchronized --value", "no\n")


def driver_not_built(host: RecordedHost) -> None:
    host.answer("dkms status", "mlnx-ofed-kernel/24.10, 5.15.0-9-generic, x86_64: installed\n")


def module_missing(host: RecordedHost) -> None:
    host.folders.discard("/sys/module/rdma_ucm")


def no_gpudirect(host: RecordedHost) -> None:
    host.folders.discard("/sys/module/nvidia_peermem")
    host.files["/proc/kallsyms"] = "0000000000000000 t ib_umem_get\t[ib_uverbs]"
    host.answer("modinfo -F license nvidia", "NVIDIA\n")


def closed_nodes(host: RecordedHost) -> None:
    host.modes["/dev/infiniband/uverbs1"] = 0o600


def exclusive_netns(host: RecordedHost) -> None:
    host.answer("rdma system show", "netns exclusive copy-on-fork on\n")


def exclusive_netns_of_half_an_sriov_path(host: RecordedHost) -> None:
    exclusive_netns(host)
    host.files["/etc/lium/rdma-fabric.json"] = '{"container_ip_range": "the rest", "vlan_id": 7}'


def exclusive_netns_without_a_free_function(host: RecordedHost) -> None:
    exclusive_netns(host)
    host.files["/etc/lium/rdma-fabric.json"] = '{"container_ip_range": "10.20.30.128/25"}'


def port_down(host: RecordedHost) -> None:
    for device in ("mlx5_0", "mlx5_1"):
        host.files[f"/sys/class/infiniband/{device}/ports/1/state"] = "5: ACTIVE_DEFER"


def no_card(host: RecordedHost) -> None:
    host.remove("/sys/class/infiniband")
    host.remove("/sys/class/infiniband_verbs")


def second_segment(host: RecordedHost) -> None:
    add_device(host, CARDS[0], 5, "192.0.2.1")


def stray_infiniband(host: RecordedHost) -> None:
    add_device(host, CARDS[0], 6, None, "InfiniBand")


def hidden_address(host: RecordedHost) -> None:
    local = "fe80:0000:0000:0000:966d:aeff:fe11:2233"
    wide = "fd00:0000:0000:0000:966d:aeff:fe11:2233"
    gids = [(local, "IB/RoCE v1"), (local, "RoCE v2"), (wide, "IB/RoCE v1"), (wide, "RoCE v2")]
    for index, device in enumerate(("mlx5_0", "mlx5_1")):
        address = mapped_gid(f"10.20.30.{1 + index * 25}")
        host.set_gids(device, [*gids, (address, "IB/RoCE v1"), (address, "RoCE v2")], f"enp{32 + index}s0np0")


def mixed_gid_index(host: RecordedHost) -> None:
    local = ("fe80:0000:0000:0000:966d:aeff:fe11:2233", "RoCE v2")
    host.set_gids("mlx5_1", [local, (mapped_gid("10.20.30.26"), "RoCE v2")], "enp33s0np0")


def link_local_only(host: RecordedHost) -> None:
    for index, device in enumerate(("mlx5_0", "mlx5_1")):
        host.set_gids(device, [(mapped_gid("169.254.7.7"), "RoCE v2")], f"enp{32 + index}s0np0")


def small_mtu(host: RecordedHost) -> None:
    for index in range(2):
        host.files[f"/sys/class/net/enp{32 + index}s0np0/mtu"] = "1500"


def two_mtus(host: RecordedHost) -> None:
    host.files["/sys/class/net/enp33s0np0/mtu"] = "1500"


def arp_flux(host: RecordedHost) -> None:
    host.files["/proc/sys/net/ipv4/conf/enp33s0np0/arp_ignore"] = "0"


def pause_on(host: RecordedHost) -> None:
    host.answer("ethtool -a enp32s0np0", "Pause parameters for enp32s0np0:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\ton\n")


def narrow_slot(host: RecordedHost) -> None:
    host.files["/sys/devices/pci0000:00/0000:10:01.0/0000:20:00.0/current_link_width"] = "8"


def acs_redirect(host: RecordedHost) -> None:
    text = host.commands["lspci -D -vvv"]["stdout"]
    host.answer("lspci -D -vvv", str(text).replace("ReqRedir-", "ReqRedir+"))


def memory_limit(host: RecordedHost) -> None:
    host.answer("sh -c ulimit -l", "8192\n")


def docker_down(host: RecordedHost) -> None:
    host.answer("docker info --format {{json .}}", rc=1, stderr="Cannot connect to the Docker daemon\n")


def broken_daemon_json(host: RecordedHost) -> None:
    host.files["/etc/docker/daemon.json"] = "{ // sysbox\n}"


def no_sysbox(host: RecordedHost) -> None:
    host.answer("docker info --format {{json .}}", json.dumps({"ServerVersion": "28", "Runtimes": {"nvidia": {}}}))


def few_ports(host: RecordedHost) -> None:
    host.files["/opt/lium-io/neurons/executor/.env"] = "RENTING_PORT_RANGE=9000-9001"


def no_probe_image(host: RecordedHost) -> None:
    line = "docker image inspect --format {{.Id}} daturaai/lium-rdma-probe:0.0.1"
    host.answer(line, rc=1, stderr="Error response from daemon: No such image: daturaai/lium-rdma-probe:0.0.1\n")


def probe_port_held(host: RecordedHost) -> None:
    line = "   0: 00000000:4853 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 0 100 0 0 10 0"
    host.files["/proc/net/tcp"] += "\n" + line
    host.files["/proc/311/comm"] = "ib_write_bw"
    host.links["/proc/311/fd/4"] = "socket:[4711]"


def input_dropped(host: RecordedHost) -> None:
    chain = {"family": "inet", "table": "mine", "name": "in", "hook": "input", "type": "filter", "policy": "drop"}
    host.answer("nft -j list ruleset", json.dumps({"nftables": [{"chain": chain}]}))


def fabric_open_in_part(host: RecordedHost) -> None:
    host.answer("iptables -S", "-P INPUT DROP\n-A INPUT -s 10.20.30.7/32 -j ACCEPT\n")


def long_prefix(host: RecordedHost) -> None:
    set_addresses(host, {"enp32s0np0": ("10.20.30.1", 25), "enp33s0np0": ("10.20.30.26", 25)})


SEEDED = [
    (old_kernel, "os.supported", "MUST_FIX", "linux-generic-hwe-22.04"),
    (arm_machine, "os.supported", "MUST_FIX", "x86_64"),
    (unsigned_driver, "boot.secure_boot", "MUST_FIX", "mokutil --import /var/lib/shim-signed/mok/MOK.der"),
    (translating_iommu, "kernel.cmdline_iommu", "WARN", "iommu=pt"),
    (translated_gpu, "kernel.cmdline_iommu", "WARN", "iommu=pt"),
    (clock_off, "time.ntp", "MUST_FIX", "systemd-timesyncd"),
    (driver_not_built, "rdma.stack_identity", "MUST_FIX", "dkms autoinstall"),
    (module_missing, "rdma.modules", "MUST_FIX", "modprobe -a rdma_ucm"),
    (no_gpudirect, "rdma.peermem", "WARN", "modprobe nvidia_peermem"),
    (closed_nodes, "rdma.device_nodes", "MUST_FIX", "udev rule"),
    (exclusive_netns, "rdma.netns_mode", "MUST_FIX", "netns_mode=0"),
    (exclusive_netns_of_half_an_sriov_path, "rdma.netns_mode", "MUST_FIX", "container_ip_range such as"),
    (exclusive_netns_without_a_free_function, "rdma.netns_mode", "MUST_FIX", "sriov_numvfs"),
    (port_down, "rdma.port_active", "MUST_FIX", "cable"),
    (no_card, "rdma.port_active", "MUST_FIX", "Fit an RDMA card"),
    (second_segment, "roce.single_segment", "MUST_FIX", "enable_rdma"),
    (link_local_only, "roce.single_segment", "MUST_FIX", "static IPv4 address"),
    (stray_infiniband, "fabric.mixed", "WARN", "mlx5_6:1"),
    (hidden_address, "roce.gid_window", "MUST_FIX", "accept_ra=0"),
    (mixed_gid_index, "roce.gid_index_uniform", "MUST_FIX", "GID tables"),
    (long_prefix, "roce.same_prefix_assumption", "WARN", "/24"),
    (small_mtu, "net.mtu", "WARN", "9000"),
    (two_mtus, "net.mtu", "MUST_FIX", "one MTU"),
    (arp_flux, "net.arp_multirail", "WARN", "arp_ignore=1"),
    (pause_on, "net.global_pause", "WARN", "ethtool -A enp32s0np0 autoneg off rx off tx off"),
    (narrow_slot, "pcie.link", "WARN", "slot"),
    (acs_redirect, "pcie.acs", "WARN", "setpci"),
    (memory_limit, "limits.memlock", "WARN", "90-lium-rdma.conf"),
    (docker_down, "docker.present", "MUST_FIX", "systemctl start docker"),
    (broken_daemon_json, "docker.daemon_json", "MUST_FIX", "json.tool"),
    (no_sysbox, "sysbox.runtime", "MUST_FIX", "Sysbox CE 0.6.6"),
    (few_ports, "executor.ports", "MUST_FIX", "at least 3"),
    (no_probe_image, "probe.image_cached", "WARN", "docker pull"),
    (probe_port_held, "probe.tcp_18515", "MUST_FIX", "End the program"),
    (input_dropped, "probe.tcp_18515", "MUST_FIX", "tcp dport 18515 accept"),
    (fabric_open_in_part, "probe.tcp_18515", "WARN", "Run verify_roce"),
]


@pytest.mark.parametrize(("breaks", "record_id", "status", "fix"), SEEDED, ids=[row[0].__name__ for row in SEEDED])
def test_a_seeded_fault_is_found_with_its_fix(
    breaks: Callable[[RecordedHost], None], record_id: str, status: str, fix: str, tmp_path: Path
) -> None:
    host = _roce()
    breaks(host)
    record = look_at(host, tmp_path / "host")[record_id]
    assert record.status == status, record
    assert fix in record.remediation
    assert "Why: " in record.remediation


def test_a_fault_is_found_alone(tmp_path: Path) -> None:
    """What is broken once is reported once; a consequence is left out or points to its cause."""
    alone = {
        row[0].__name__: sorted(
            record.id
            for record in look_at(_broken(row[0]), tmp_path / row[0].__name__).values()
            if record.status in FOUND
        )
        for row in SEEDED
    }
    several = {name: ids for name, ids in alone.items() if len(ids) > 1}
    assert several == {
        "hidden_address": ["roce.gid_window", "roce.single_segment"],
        "unsigned_driver": ["boot.secure_boot", "kernel.headers_match"],
        "driver_not_built": ["kernel.headers_match", "rdma.stack_identity"],
        "docker_down": ["docker.present", "nvidia.toolkit", "sysbox.runtime"],
    }


def _broken(breaks: Callable[[RecordedHost], None]) -> RecordedHost:
    host = _roce()
    breaks(host)
    return host


def test_what_is_neither_rdma_card_nor_gpu_may_be_translated(tmp_path: Path) -> None:
    host = _roce()
    add_to_iommu_group(host, "/sys/devices/pci0000:00/0000:10:01.0/0000:20:00.0", 0)
    add_to_iommu_group(host, "/sys/bus/pci/devices/0000:00:14.0", 9, "DMA")
    record = look_at(host, tmp_path / "host")["kernel.cmdline_iommu"]
    assert (record.status, "0000:20:00.0" in record.observed, "0000:00:14.0" in record.observed) == ("OK", True, False)


def test_an_sriov_path_that_is_whole_is_well_in_exclusive_mode(tmp_path: Path) -> None:
    host = _broken(exclusive_netns_without_a_free_function)
    host.links["/sys/devices/pci0000:00/0000:11:01.0/0000:21:00.0/physfn"] = "../../0000:10:01.0/0000:20:00.0"
    record = look_at(host, tmp_path / "host")["rdma.netns_mode"]
    assert (record.status, "free: mlx5_1" in record.observed) == ("OK", True), record


COMPOSE = "docker compose ls --all --format json"


@pytest.mark.parametrize(
    ("stderr", "rc", "status"),
    [
        ("permission denied while trying to connect to the Docker daemon socket\n", 1, "UNKNOWN"),
        ("", 1, "UNKNOWN"),
        ("docker: unknown command: docker compose\n\nRun 'docker --help' for more information\n", 1, "SKIPPED"),
        ("docker: 'compose' is not a docker command.\nSee 'docker --help'\n", 1, "SKIPPED"),
        ("unknown flag: --all\nSee 'docker --help'.\n", 125, "SKIPPED"),
    ],
)
def test_an_executor_that_could_not_be_looked_for_is_unknown(stderr: str, rc: int, status: str, tmp_path: Path) -> None:
    host = _roce()
    host.answer(COMPOSE, rc=rc, stderr=stderr)
    record = look_at(host, tmp_path / "host")["executor.ports"]
    assert record.status == status, record


def test_a_listing_of_compose_that_is_none_is_unknown(tmp_path: Path) -> None:
    host = _roce()
    host.answer(COMPOSE, '{"Name": "executor"}')
    assert look_at(host, tmp_path / "host")["executor.ports"].status == "UNKNOWN"


def test_an_executor_without_settings_is_there(tmp_path: Path) -> None:
    host = _roce()
    host.remove("/opt/lium-io/neurons/executor/.env")
    record = look_at(host, tmp_path / "host")["executor.ports"]
    assert (record.status, "neither is set" in record.observed) == ("WARN", True), record


ASK = "arping -D -c 2 -w 3 -I enp32s0np0 10.20.30.1"
ASK_AS_WELL = "arping -D -c 2 -w 3 -I enp33s0np0 10.20.30.26"


@pytest.mark.parametrize(
    ("recording", "status", "seen"),
    [
        ("arping-dad-free", "OK", "10.20.30.1, 10.20.30.26"),
        ("arping-dad-own-rail", "OK", "for 10.20.30.1 answered a rail of this host: see net.arp_multirail"),
        (
            "arping-dad-duplicate",
            "MUST_FIX",
            "roce.duplicate_address: 10.20.30.1 of enp32s0np0 is that of d6:b8:a4:5b:20:ac too",
        ),
        ("arping-dad-down", "UNKNOWN", 'Interface "a0" is down'),
        ("arping-dad-nodev", "UNKNOWN", "Device nope not available"),
        ("arping-habets-dad", "UNKNOWN", "100% packet loss"),
    ],
)
def test_who_else_answers_for_the_fabric_address(recording: str, status: str, seen: str, tmp_path: Path) -> None:
    host = _roce()
    host.files["/sys/class/net/enp33s0np0/address"] = "ba:d2:73:6d:9f:0c"
    host.answer_as_recorded(ASK, recording)
    record = look_at(host, tmp_path / "host")["roce.unique_address"]
    assert (record.status, seen in record.observed) == (status, True), record


def test_a_duplicate_is_named_though_another_rail_could_not_be_asked(tmp_path: Path) -> None:
    host = _roce()
    host.answer_as_recorded(ASK, "arping-dad-down")
    host.answer_as_recorded(ASK_AS_WELL, "arping-dad-duplicate")
    record = look_at(host, tmp_path / "host")["roce.unique_address"]
    assert (record.status, "10.20.30.26 of enp33s0np0" in record.observed) == ("MUST_FIX", True), record


@pytest.mark.parametrize("version", ["arping-habets-version", None])
def test_another_arping_is_not_asked(version: str | None, tmp_path: Path) -> None:
    """For Thomas Habets' program `-D` means something else: its exit code 1 says nothing of the address."""
    host = _roce()
    for line in (ASK, ASK_AS_WELL):
        host.answer_as_recorded(line, "arping-habets-dad")
    if version is None:
        del host.commands["arping -V"]
    else:
        host.answer_as_recorded("arping -V", version)
    record = look_at(host, tmp_path / "host")["roce.unique_address"]
    assert (record.status, "the link was not asked" in record.observed) == ("OK", True), record


def test_a_blocker_skips_what_needs_it_and_says_so(tmp_path: Path) -> None:
    records = look_at(_broken(module_missing), tmp_path / "host")
    assert records["roce.single_segment"].status == "SKIPPED"
    assert "rdma.modules must be fixed first" in records["roce.single_segment"].observed
    assert records["docker.present"].status == "OK"


def cvm_state(host: RecordedHost) -> None:
    host.folders.add("/var/lib/lium-cvm")


def of_vfio(host: RecordedHost, pci_class: str | None) -> None:
    host.links["/sys/bus/pci/drivers/vfio-pci/0000:41:00.0"] = "../../../../devices/pci0000:40/0000:41:00.0"
    if pci_class:
        host.files["/sys/bus/pci/devices/0000:41:00.0/class"] = pci_class


def gpu_of_vfio(host: RecordedHost) -> None:
    of_vfio(host, "0x030200")


def device_of_vfio_without_a_class(host: RecordedHost) -> None:
    of_vfio(host, None)


def running_qemu(host: RecordedHost) -> None:
    host.files["/proc/4711/comm"] = "qemu-system-x86"


@pytest.mark.parametrize(
    ("sign", "seen"),
    [
        (cvm_state, "/var/lib/lium-cvm"),
        (gpu_of_vfio, "GPU 0000:41:00.0 bound to vfio-pci"),
        (device_of_vfio_without_a_class, "GPU 0000:41:00.0 bound to vfio-pci"),
        (running_qemu, "QEMU running (pid 4711)"),
    ],
)
def test_nothing_is_looked_at_on_a_host_for_confidential_vms(
    sign: Callable[[RecordedHost], None], seen: str, tmp_path: Path
) -> None:
    records = look_at_all(_broken(sign), tmp_path / "host")
    assert {record.status for record in records.values()} == {"SKIPPED"}
    assert all(seen in record.observed for record in records.values())


def network_card_of_vfio(host: RecordedHost) -> None:
    of_vfio(host, "0x020000")


def other_architecture_emulated(host: RecordedHost) -> None:
    host.files["/proc/4711/comm"] = "qemu-aarch64"


@pytest.mark.parametrize("no_sign", [network_card_of_vfio, other_architecture_emulated])
def test_a_host_with_less_than_that_is_looked_at(no_sign: Callable[[RecordedHost], None], tmp_path: Path) -> None:
    assert look_at(_broken(no_sign), tmp_path / "host")["os.supported"].status == "OK"


def test_what_cannot_be_read_is_unknown_never_ok(tmp_path: Path) -> None:
    """An empty host: no file and no command is there. Nothing about it may be called good."""
    records = look_at(RecordedHost(), tmp_path / "host")
    good = {record.id: record.observed for record in records.values() if record.status == "OK"}
    # Read and found absent: the kernel shows these folders only where the thing is in use.
    assert set(good) == {"kernel.cmdline_iommu", "boot.secure_boot", "cpu.governor"}
    assert records["os.supported"].status == "UNKNOWN"
    assert records["time.ntp"].status == "UNKNOWN"
    assert records["docker.restart_safe"].status == "SKIPPED"


@pytest.mark.parametrize("line", sorted(recorded_host.healthy_host(random.Random(0)).commands))
def test_a_command_that_hangs_gives_no_ok_of_its_own(line: str, tmp_path: Path) -> None:
    host = _roce()
    if line not in host.commands:
        return
    before = look_at_all(host, tmp_path / "before")
    host.commands[line] = {"timeout": True}
    after = look_at_all(host, tmp_path / "after")
    changed = {record_id for record_id in before if before[record_id].status != after[record_id].status}
    assert changed, f"no record depends on `{line}`"
    assert {after[record_id].status for record_id in changed} <= {"UNKNOWN", "MUST_FIX", "SKIPPED"}
