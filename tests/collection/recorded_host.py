"""Hosts to look at: a tree of files and the answers of commands, as `host_root` of the check modules takes them.

`healthy_host(rng)` generates a host on which no check finds anything; tests then break one thing at a time.
"""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

from tests.collection.lossless import outputs

RECORDED = Path(__file__).parents[1] / "fixtures" / "recorded"

PROC_NET_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def mapped_gid(address: str) -> str:
    """``10.20.30.11`` as the kernel writes it in a GID table."""
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


@dataclasses.dataclass
class RecordedHost:
    """Files (path -> text), links (path -> target), modes of files, and command line -> answer."""

    files: dict[str, str] = dataclasses.field(default_factory=dict)
    links: dict[str, str] = dataclasses.field(default_factory=dict)
    modes: dict[str, int] = dataclasses.field(default_factory=dict)
    folders: set[str] = dataclasses.field(default_factory=set)
    commands: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)
    description: str = ""

    def answer(self, line: str, stdout: str = "", rc: int = 0, stderr: str = "") -> None:
        self.commands[line] = {"rc": rc, "stdout": stdout, "stderr": stderr}

    def answer_as_recorded(self, line: str, name: str) -> None:
        """The answer of a file in ``tests/fixtures/recorded``."""
        answer = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
        self.commands[line] = {key: answer[key] for key in ("rc", "stdout", "stderr")}

    def remove(self, prefix: str) -> None:
        """Takes away all files, links and folders below a path."""
        for group in (self.files, self.links, self.modes):
            for path in [path for path in group if path == prefix or path.startswith(f"{prefix}/")]:
                del group[path]
        self.folders = {path for path in self.folders if path != prefix and not path.startswith(f"{prefix}/")}

    def write(self, root: Path) -> Path:
        for folder in self.folders:
            (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text + "\n", encoding="utf-8")
            target.chmod(self.modes.get(path, 0o644))
        for path, destination in self.links.items():
            link = root / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(destination)
        root.mkdir(parents=True, exist_ok=True)
        (root / "commands.json").write_text(json.dumps(self.commands), encoding="utf-8")
        return root

    def set_gids(self, device: str, entries: list[tuple[str, str | None]], netdev: str, port: int = 1) -> None:
        """Fills the GID table of a port with (GID, type); an empty slot has no type, as the kernel has it."""
        folder = f"/sys/class/infiniband/{device}/ports/{port}"
        self.remove(f"{folder}/gids")
        self.remove(f"{folder}/gid_attrs")
        for index, (gid, kind) in enumerate([*entries, (EMPTY_GID, None)]):
            self.files[f"{folder}/gids/{index}"] = gid
            if kind is not None:
                self.files[f"{folder}/gid_attrs/types/{index}"] = kind
                self.files[f"{folder}/gid_attrs/ndevs/{index}"] = netdev


def usual_gids(address: str, driver: str) -> list[tuple[str, str | None]]:
    """The table that a driver usually shows (host-contract 3.2)."""
    local = "fe80:0000:0000:0000:966d:aeff:fe11:2233"
    if driver == "ice":
        return [(local, "RoCE v2"), (mapped_gid(address), "RoCE v2")]
    return [
        (local, "IB/RoCE v1"),
        (local, "RoCE v2"),
        (mapped_gid(address), "IB/RoCE v1"),
        (mapped_gid(address), "RoCE v2"),
    ]


@dataclasses.dataclass(frozen=True)
class Card:
    driver: str
    half: str
    name: str
    rate: str


CARDS = (
    Card("mlx5_core", "mlx5_ib", "mlx5_{}", "400 Gb/sec (4X NDR)"),
    Card("bnxt_en", "bnxt_re", "bnxt_re{}", "200 Gb/sec (4X HDR)"),
    Card("ice", "irdma", "irdma{}", "100 Gb/sec (4X EDR)"),
)
SYSTEMS = (
    ("ubuntu", "22.04", "debian", "6.8.0-60-generic"),
    ("ubuntu", "24.04", "debian", "6.8.0-60-generic"),
    ("debian", "12", "", "6.1.0-37-amd64"),
)


def add_device(host: RecordedHost, card: Card, index: int, address: str | None, kind: str = "Ethernet") -> str:
    """Adds a card with one active port; ``address=None`` on Ethernet leaves it without an IPv4 GID."""
    name = card.name.format(index)
    bus, bridge = f"0000:{0x20 + index:02x}:00.0", f"0000:{0x10 + index:02x}:01.0"
    netdev = f"enp{0x20 + index}s0np0"
    pci = f"/sys/devices/pci0000:00/{bridge}/{bus}"
    for key, value in (("link_speed", "32.0 GT/s PCIe"), ("link_width", "16")):
        host.files[f"{pci}/current_{key}"] = host.files[f"{pci}/max_{key}"] = value
    host.files[f"{pci}/numa_node"] = str(index // 4)
    host.links[f"{pci}/driver"] = f"../../../../bus/pci/drivers/{card.driver}"
    host.links[f"/sys/bus/pci/devices/{bus}"] = f"../../../devices/pci0000:00/{bridge}/{bus}"
    host.links[f"/sys/bus/pci/drivers/{card.driver}/{bus}"] = f"../../../../devices/pci0000:00/{bridge}/{bus}"
    folder = f"/sys/class/infiniband/{name}"
    host.links[f"{folder}/device"] = f"../../../devices/pci0000:00/{bridge}/{bus}"
    host.files[f"{folder}/node_guid"] = f"946d:ae03:0011:{index:04x}"
    host.files[f"{folder}/fw_ver"] = "28.43.2566"
    host.files[f"/sys/class/infiniband_verbs/uverbs{index}/ibdev"] = name
    host.files[f"/dev/infiniband/uverbs{index}"] = ""
    host.modes[f"/dev/infiniband/uverbs{index}"] = 0o666
    port = f"{folder}/ports/1"
    infiniband = kind == "InfiniBand"
    host.files |= {
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/link_layer": kind,
        f"{port}/rate": card.rate,
        f"{port}/lid": "0xe" if infiniband else "0x0",
        f"{port}/sm_lid": "0x1" if infiniband else "0x0",
        f"{port}/pkeys/0": "0xffff",
    }
    for module in (card.driver, card.half):
        host.folders.add(f"/sys/module/{module}")
    if infiniband:
        host.set_gids(name, [("fe80:0000:0000:0000:946d:ae03:0011:0000", "IB/RoCE v1")], "")
        host.remove(f"{port}/gid_attrs")
        host.folders.add("/sys/module/ib_umad")
        return name
    host.files[f"{pci}/net/{netdev}/mtu"] = host.files[f"/sys/class/net/{netdev}/mtu"] = "9000"
    host.files[f"/sys/class/net/{netdev}/address"] = f"94:6d:ae:11:22:{index:02x}"
    host.answer_as_recorded("arping -V", "arping-version")
    if address:
        host.answer_as_recorded(f"arping -D -c 2 -w 3 -I {netdev} {address}", "arping-dad-free")
    for key, value in (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2")):
        host.files[f"/proc/sys/net/ipv4/conf/{netdev}/{key}"] = value
    gids = usual_gids(address, card.driver) if address else [("fe80:0000:0000:0000:966d:aeff:fe11:2233", "RoCE v2")]
    host.set_gids(name, gids, netdev)
    host.answer(f"ethtool -a {netdev}", outputs.PAUSE_OFF.format(netdev))
    host.files |= outputs.good_files(card.driver, name, netdev)
    for line, stdout in outputs.good_commands(card.driver, netdev).items():
        host.answer(line, stdout)
    return name


def set_addresses(host: RecordedHost, addresses: dict[str, tuple[str, int]]) -> None:
    """What ``ip -j addr show`` answers: netdev -> (address, prefix length)."""
    rows = [
        {
            "ifindex": index,
            "ifname": netdev,
            "mtu": 9000,
            "addr_info": [{"family": "inet", "local": address, "prefixlen": length, "scope": "global"}],
        }
        for index, (netdev, (address, length)) in enumerate(addresses.items(), 2)
    ]
    host.answer("ip -j addr show", json.dumps(rows))


def healthy_host(
    rng: random.Random, number: int = 1, kind: str | None = None, driver: str | None = None
) -> RecordedHost:
    """A host that can be sold, drawn by ``rng``. ``number`` (1 to 200) keeps hosts of one fabric apart.

    Hosts of one RoCE fabric need cards of one ``driver``: the lossless set-up of one is not that of another.
    """
    host = RecordedHost()
    system, version, like, kernel = rng.choice(SYSTEMS)
    kind = kind or rng.choice(("roce", "roce", "infiniband"))
    cards = CARDS[:1] if kind == "infiniband" else [card for card in CARDS if driver in (None, card.driver)]
    card = rng.choice(cards)
    rails = rng.choice((1, 2, 4, 8)) if number <= 24 else 1
    host.description = f"{system} {version}, {kind}, {rails} x {card.driver}"
    like_line = f"\nID_LIKE={like}" if like else ""
    host.files["/etc/os-release"] = f'ID={system}\nVERSION_ID="{version}"{like_line}'
    host.answer("uname -r", kernel + "\n")
    host.answer("uname -m", "x86_64\n")
    host.answer("timedatectl show -p NTPSynchronized --value", "yes\n")
    host.answer(
        "mokutil --sb-state", rng.choice(("SecureBoot disabled\n", "EFI variables are not supported on this system\n"))
    )
    host.files["/proc/cmdline"] = "ro quiet"
    if rng.random() < 0.5:
        host.files["/sys/class/iommu/dmar0/name"] = ""
        for group in range(4):
            host.files[f"/sys/kernel/iommu_groups/{group}/type"] = "identity"
    if card.driver == "mlx5_core" and rng.random() < 0.3:
        host.answer("ofed_info -s", "MLNX_OFED_LINUX-24.10-3.2.5.0:\n")
        host.answer("dkms status", f"mlnx-ofed-kernel/24.10, {kernel}, x86_64: installed\n")
        host.answer("modinfo -F filename mlx5_ib", f"/lib/modules/{kernel}/updates/dkms/mlx5_ib.ko.zst\n")
        host.folders.add(f"/lib/modules/{kernel}/build")
    host.folders |= {
        "/sys/module/ib_core",
        "/sys/module/ib_uverbs",
        "/sys/module/rdma_ucm",
        "/sys/module/nvidia",
        "/sys/module/nvidia_peermem",
    }
    host.files["/dev/infiniband/rdma_cm"] = ""
    host.modes["/dev/infiniband/rdma_cm"] = 0o666
    host.answer("rdma system show", "netns shared privileged-qkey off monitor on copy-on-fork on\n")
    addresses = {}
    names = []
    for index in range(rails):
        address = f"10.20.30.{number + index * 25}"
        if kind == "roce":
            addresses[f"enp{0x20 + index}s0np0"] = (address, 24)
        names.append(add_device(host, card, index, address, "Ethernet" if kind == "roce" else "InfiniBand"))
    addresses["eno1"] = (f"192.0.2.{number}", 24)
    set_addresses(host, addresses)
    for key, value in (("arp_ignore", "0"), ("arp_announce", "0"), ("rp_filter", "0")):
        host.files[f"/proc/sys/net/ipv4/conf/all/{key}"] = value
    verbs = "".join(f"hca_id:\t{name}\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t4096 (5)\n" for name in names)
    host.answer("ibv_devinfo", verbs)
    lspci = "".join(
        f"0000:{0x10 + index:02x}:01.0 PCI bridge: Intel Corporation Device\n"
        "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"
        f"0000:{0x20 + index:02x}:00.0 Ethernet controller: Mellanox Technologies\n"
        "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+\n\t\tATSCtl:\tEnable-, Smallest Translation Unit: 00\n"
        for index in range(rails)
    )
    host.answer("lspci -D -vvv", lspci)
    host.answer("sh -c ulimit -l", "unlimited\n")
    for unit in ("docker", "containerd"):
        host.answer(f"systemctl show {unit} -p LoadState -p LimitMEMLOCK", "LoadState=loaded\nLimitMEMLOCK=infinity\n")
    host.files["/proc/meminfo"] = "MemTotal:       1056316 kB\nHugePages_Total:       0"
    for gpu in range(8):
        host.files[f"/proc/driver/nvidia/gpus/0000:{0x40 + gpu:02x}:00.0/information"] = (
            "Model: \t\t NVIDIA H100 80GB HBM3"
        )
        pci = f"/sys/bus/pci/devices/0000:{0x40 + gpu:02x}:00.0"
        host.files |= {f"{pci}/vendor": "0x10de", f"{pci}/class": "0x030200"}
    if "/sys/class/iommu/dmar0/name" in host.files:
        for index in range(rails):
            add_to_iommu_group(
                host, f"/sys/devices/pci0000:00/0000:{0x10 + index:02x}:01.0/0000:{0x20 + index:02x}:00.0", 0
            )
        add_to_iommu_group(host, "/sys/bus/pci/devices/0000:40:00.0", 1)
    add_executor(host, kind)
    add_overlay(host)
    return host


def add_to_iommu_group(host: RecordedHost, device: str, group: int, kind: str = "identity") -> None:
    host.files[f"/sys/kernel/iommu_groups/{group}/type"] = kind
    host.links[f"{device}/iommu_group"] = f"../../../../kernel/iommu_groups/{group}"


def add_overlay(host: RecordedHost) -> None:
    """What the overlay of cluster pods needs of a host: WireGuard, a free port, Docker's firewall and nothing else."""
    host.folders |= {"/sys/module/wireguard", "/sys/module/nf_tables", "/sys/module/nft_compat"}
    host.answer("docker ps --filter publish=51820/udp --format {{.Names}}", "")
    routes = [
        {"dst": "default", "gateway": "192.0.2.254", "dev": "eno1"},
        {"dst": "172.17.0.0/16", "dev": "docker0"},
        {"dst": "10.20.30.0/24", "dev": "enp32s0np0"},
    ]
    host.answer("ip -j route show", json.dumps(routes))
    host.answer("docker network ls --format {{.Name}}", "bridge\nhost\nnone\n")
    form = "{{.Name}} {{range .IPAM.Config}}{{.Subnet}} {{end}}"
    host.answer(f"docker network inspect --format {form} bridge host none", "bridge 172.17.0.0/16 \nhost \nnone \n")
    docker = {
        "family": "ip",
        "table": "filter",
        "name": "FORWARD",
        "hook": "forward",
        "type": "filter",
        "policy": "drop",
    }
    host.answer(
        "nft -j list ruleset", json.dumps({"nftables": [{"metainfo": {"version": "1.0.6"}}, {"chain": docker}]})
    )
    host.answer(
        "iptables -S", "-P INPUT ACCEPT\n-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -j RETURN\n"
    )
    host.files["/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream"] = "120"
    host.files["/proc/net/nf_conntrack"] = ""
    host.files["/sys/class/net/docker0/mtu"] = host.files["/sys/class/net/eno1/mtu"] = "1500"


def add_executor(host: RecordedHost, kind: str) -> None:
    """Docker as the executor's installer leaves it, and the executor's own settings."""
    settings = {
        "runtimes": {
            "sysbox-runc": {"path": "/usr/bin/sysbox-runc"},
            "nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []},
        },
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "features": {"cdi": False},
    }
    host.files["/etc/docker/daemon.json"] = json.dumps(settings)
    runtimes = {"runc": {"path": "runc"}, **settings["runtimes"]}
    host.answer("docker info --format {{json .}}", json.dumps({"ServerVersion": "28.1.1", "Runtimes": runtimes}))
    host.answer("docker ps --format {{.Names}}", "executor-runner\nfiller_7\n")
    host.files["/etc/nvidia-container-runtime/config.toml"] = "[nvidia-container-cli]\nno-cgroups = false"
    compose = "/opt/lium-io/neurons/executor/docker-compose.yml"
    rows = [{"Name": "executor", "Status": "running(2)", "ConfigFiles": compose}]
    host.answer("docker compose ls --all --format json", json.dumps(rows))
    host.files["/opt/lium-io/neurons/executor/.env"] = "INTERNAL_PORT=8001\nRENTING_PORT_RANGE=9000-9009"
    host.answer("docker image inspect --format {{.Id}} daturaai/lium-rdma-probe:0.0.1", "sha256:0\n")
    for protocol in ("tcp", "udp"):
        host.files[f"/proc/net/{protocol}"] = PROC_NET_HEAD
