"""What a role leaves on a host can be taken back exactly, also after a run that died half-way."""

from __future__ import annotations

import dataclasses
import json
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import FirewallRule
from ansible_collections.lium.cluster.plugins.module_utils._footprint import (
    Footprint,
    FootprintError,
    ManagedFile,
    Wanted,
    sysctl_path,
)
from ansible_collections.lium.cluster.plugins.module_utils._kmod import explain_modprobe
from ansible_collections.lium.cluster.plugins.module_utils._ledger import FOLDER, LedgerError
from ansible_collections.lium.cluster.plugins.module_utils._packages import PackageError, parse_query, query_command

#: What `ib_uverbs` needs and brings along.
NEEDS = ["ib_core"]


class Kernel:
    """Commands that load modules and set netdevs up in a tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[list[str]] = []
        self.installed: set[str] = set()
        self.rules = False

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        argv = list(argv)
        self.calls.append(argv)
        modules = self.root / "sys/module"
        if argv[0] == "modprobe" and argv[1] == "-r":
            for name in [argv[2], *(NEEDS if argv[2] == "ib_uverbs" else [])]:
                shutil.rmtree(modules / name, ignore_errors=True)
        elif argv[0] == "modprobe":
            if argv[1] == "rdma_rxe":
                return 1, "modprobe: FATAL: Module rdma_rxe not found in directory /lib/modules/6.1.0-21-cloud-amd64\n"
            for name in [argv[1], *NEEDS]:
                (modules / name / "holders").mkdir(parents=True, exist_ok=True)
                (modules / name / "refcnt").write_text("0\n")
            for name in NEEDS:
                (modules / name / "holders" / argv[1]).mkdir()
                (modules / name / "refcnt").write_text("1\n")
        elif argv[0] == "rpm" and argv[1] == "-qp":
            return 0, "doca-host"
        elif argv[0] == "rpm":
            return 0, "".join(f"installed {name}\n" for name in argv[4:] if name in self.installed)
        elif argv[:3] == ["ufw", "route", "allow"] or argv[:3] == ["ufw", "route", "delete"]:
            self.rules = argv[2] == "allow"
        elif argv[:3] == ["ufw", "show", "added"]:
            return 0, "ufw route allow 51820/udp\n" if self.rules else ""
        elif argv[0] == "ip":
            flags = {"up": "0x1003", "down": "0x1002"}[argv[4]]
            (self.root / f"sys/class/net/{argv[3]}/flags").write_text(flags + "\n")
        loaded = sorted(path.name for path in modules.iterdir())
        (self.root / "proc/modules").write_text("".join(f"{name} 16384 0 - Live 0x0\n" for name in loaded))
        return 0, ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in {
        "proc/sys/net/ipv4/conf/enp1s0/arp_ignore": "0\n",
        "sys/class/net/enp1s0/flags": "0x1002\n",
        "dev/infiniband/uverbs0": "",
        "etc/limits.conf": "old\n",
        "proc/modules": "",
    }.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "dev/infiniband/uverbs0").chmod(0o600)
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "sys/module").mkdir()
    return tmp_path


WANTED = Wanted(
    files=[ManagedFile("/etc/modules-load.d/lium.conf", "ib_uverbs\n"), ManagedFile("/etc/limits.conf", "new\n")],
    modules=["ib_uverbs"],
    sysctls={"net.ipv4.conf.enp1s0.arp_ignore": "1"},
    modes={"/dev/infiniband/uverbs*": 0o666},
    links_up=["enp1s0"],
    packages=["rdma-core"],
)


def snapshot(root: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_text() if path.is_file() else "")
        for path in sorted(root.rglob("*"))
    }


def test_apply_twice_then_remove_leaves_the_host_as_it_was(root: Path) -> None:
    before = snapshot(root)
    kernel = Kernel(root)
    first = Footprint("rdma", str(root), kernel).apply(WANTED)
    assert len(first.changes) == 6
    assert (root / "etc/limits.conf").read_text() == "new\n"
    assert stat.S_IMODE((root / "dev/infiniband/uverbs0").stat().st_mode) == 0o666
    assert Footprint("rdma", str(root), kernel).apply(WANTED).changes == []
    assert Footprint("rdma", str(root)).packages == ["rdma-core"]

    removal = Footprint("rdma", str(root), kernel).remove()
    assert removal.left == []
    assert snapshot(root) == before
    assert Footprint("rdma", str(root), kernel).remove().changes == []


def test_check_mode_predicts_the_changes_and_makes_none(root: Path) -> None:
    before = snapshot(root)
    predicted = Footprint("rdma", str(root), Kernel(root), dry=True).apply(WANTED)
    assert snapshot(root) == before
    done = Footprint("rdma", str(root), Kernel(root)).apply(WANTED)
    assert predicted.changes == done.changes
    after = snapshot(root)
    removal = Footprint("rdma", str(root), Kernel(root), dry=True)
    predicted = removal.remove()
    assert snapshot(root) == after
    assert removal.packages == ["rdma-core"], "the task that removes the packages asks for them in check mode"
    assert predicted.changes == Footprint("rdma", str(root), Kernel(root)).remove().changes


def test_a_run_that_dies_half_way_can_be_undone(root: Path) -> None:
    before = snapshot(root)
    with pytest.raises(FootprintError, match="cloud flavour"):
        Footprint("rdma", str(root), Kernel(root)).apply(
            Wanted(files=WANTED.files, modules=["ib_uverbs", "rdma_rxe"], sysctls=WANTED.sysctls)
        )
    assert snapshot(root) != before
    Footprint("rdma", str(root), Kernel(root)).remove()
    assert snapshot(root) == before


def test_what_others_changed_since_is_left_and_named(root: Path) -> None:
    Footprint("rdma", str(root), Kernel(root)).apply(WANTED)
    (root / "etc/limits.conf").write_text("theirs\n")
    (root / "proc/sys/net/ipv4/conf/enp1s0/arp_ignore").write_text("2\n")
    outcome = Footprint("rdma", str(root), Kernel(root)).remove()
    assert outcome.left == ["file /etc/limits.conf: changed by someone else since"]
    assert (root / "etc/limits.conf").read_text() == "theirs\n"
    assert (root / "proc/sys/net/ipv4/conf/enp1s0/arp_ignore").read_text() == "2\n"


def test_what_a_rental_lives_on_stays_and_remains_noted(root: Path) -> None:
    kernel = Kernel(root)
    kernel.installed = {"rdma-core"}
    wanted = dataclasses.replace(WANTED, firewall=[FirewallRule("ufw", 51820)])
    Footprint("rdma", str(root), kernel).apply(wanted)
    live = snapshot(root / "dev") | snapshot(root / "proc") | snapshot(root / "sys")
    outcome = Footprint("rdma", str(root), kernel).remove(busy="a rental runs (pod_1)")
    node = root / "dev/infiniband/uverbs0"
    assert sorted(outcome.left) == [
        "firewall UDP 51820 by ufw: a rental runs (pod_1)",
        "link enp1s0: a rental runs (pod_1)",
        f"mode {node}: a rental runs (pod_1)",
        "module ib_core: a rental runs (pod_1)",
        "module ib_uverbs: a rental runs (pod_1)",
        "packages rdma-core: a rental runs (pod_1)",
        "sysctl net.ipv4.conf.enp1s0.arp_ignore: a rental runs (pod_1)",
    ]
    assert snapshot(root / "dev") | snapshot(root / "proc") | snapshot(root / "sys") == live
    assert kernel.rules
    assert not (root / "etc/modules-load.d/lium.conf").exists()
    kernel.installed = set()
    later = Footprint("rdma", str(root), kernel).remove()
    assert later.left == []
    assert later.changes == [
        "no longer allow UDP 51820 by ufw",
        "set enp1s0 down",
        f"mode 0600 for {node}",
        "set net.ipv4.conf.enp1s0.arp_ignore=0",
        "unload module ib_uverbs",
        "unload module ib_core",
    ]
    assert not (root / FOLDER.lstrip("/")).exists()


def test_a_package_is_noted_until_it_is_gone(root: Path) -> None:
    """A rental that ends between the look and the removal: the packages were left, and are found next time."""
    kernel = Kernel(root)
    kernel.installed = {"rdma-core"}
    Footprint("rdma", str(root), kernel).apply(Wanted(packages=["rdma-core", "perftest"]))
    assert Footprint("rdma", str(root), kernel).remove().left == ["packages rdma-core: still installed"]
    assert Footprint("rdma", str(root), kernel).packages == ["rdma-core"]


def test_packages_are_noted_before_they_come(root: Path) -> None:
    """apt fails half-way or the run dies: the next one finds nothing new, and offboard still knows what came."""
    kernel = Kernel(root)
    kernel.installed = {"ethtool"}
    Footprint("rdma", str(root), kernel).note_packages(["rdma-core", "ethtool", "perftest"])
    kernel.installed |= {"rdma-core"}
    Footprint("rdma", str(root), kernel).note_packages(["perftest"])
    kernel.installed |= {"perftest"}
    Footprint("rdma", str(root), kernel).apply(Wanted(packages=["perftest", "libfoo"]))
    assert Footprint("rdma", str(root)).packages == ["rdma-core", "perftest", "libfoo"]
    dry = Footprint("wireguard", str(root), kernel, dry=True)
    dry.note_packages(["wireguard-tools"])
    assert Footprint("wireguard", str(root)).packages == []


def test_a_fetched_package_goes_with_its_file(root: Path) -> None:
    before, kernel, path = snapshot(root), Kernel(root), "/var/cache/lium-doca-host.rpm"
    Footprint("rdma", str(root), kernel).note_packages([], [path])
    (root / "var/cache").mkdir()
    (root / path.lstrip("/")).write_text("package\n")
    Footprint("rdma", str(root), kernel).note_packages([], [path])
    # What the role notes is no file of an earlier set of options.
    Footprint("rdma", str(root), kernel).apply(Wanted())
    assert Footprint("rdma", str(root)).packages == ["doca-host"]
    assert Footprint("rdma", str(root), kernel).remove().changes == [f"remove {path}"]
    (root / "var/cache").rmdir()
    assert snapshot(root) == before


def test_packages_that_cannot_be_asked_for_stay_noted(root: Path) -> None:
    Footprint("rdma", str(root), Kernel(root)).apply(Wanted(packages=["rdma-core"]))
    with pytest.raises(PackageError, match="rpm is not installed"):
        Footprint("rdma", str(root), lambda argv: (127, f"{argv[0]} is not installed")).remove()
    assert Footprint("rdma", str(root)).packages == ["rdma-core"]


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("installed libibverbs1\nunpacked rdma-core\n", {"libibverbs1", "rdma-core"}),
        ("dpkg-query: no packages found matching perftest\nconfig-files ucf\nnot-installed numactl\n", set()),
        ("package perftest is not installed\ninstalled ethtool\n", {"ethtool"}),
        ("", set()),
    ],
)
def test_packages_that_are_there(text: str, present: set[str]) -> None:
    assert parse_query(text) == present
    assert query_command(["a=1.2-3", "b"], apt=True)[-2:] == ["a", "b"]


def test_a_module_in_use_is_not_forced_out(root: Path) -> None:
    kernel = Kernel(root)
    Footprint("rdma", str(root), kernel).apply(Wanted(modules=["ib_uverbs"]))
    (root / "sys/module/ib_uverbs/refcnt").write_text("1\n")
    (root / "sys/module/ib_uverbs/holders/mlx5_ib").mkdir(parents=True)
    outcome = Footprint("rdma", str(root), kernel).remove()
    assert outcome.left == [
        "module ib_uverbs: in use (mlx5_ib); gone after a reboot",
        "module ib_core: in use (ib_uverbs); gone after a reboot",
    ]
    assert ["modprobe", "-r", "ib_uverbs"] not in kernel.calls


def test_a_secret_stays_out_of_diff_and_ledger(root: Path) -> None:
    secret = ManagedFile("/etc/wireguard/wg0.conf", "PrivateKey = hunter2\n", 0o600, secret=True)
    footprint = Footprint("wireguard", str(root), Kernel(root))
    outcome = footprint.apply(Wanted(files=[secret]))
    assert "hunter2" not in json.dumps([outcome.before, outcome.after])
    assert "hunter2" not in (root / FOLDER.lstrip("/") / "wireguard.json").read_text()
    assert stat.S_IMODE((root / "etc/wireguard/wg0.conf").stat().st_mode) == 0o600


def test_an_option_taken_back_takes_its_file_back(root: Path) -> None:
    Footprint("rdma", str(root), Kernel(root)).apply(WANTED)
    Footprint("rdma", str(root), Kernel(root)).apply(Wanted(files=[WANTED.files[0]]))
    assert (root / "etc/limits.conf").read_text() == "old\n"


def test_a_broken_ledger_stops_the_role_and_is_kept(root: Path) -> None:
    ledger = root / FOLDER.lstrip("/") / "rdma.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{")
    with pytest.raises(LedgerError, match="restore it from a backup"):
        Footprint("rdma", str(root))
    assert ledger.read_text() == "{"


def test_sysctl_of_a_vlan() -> None:
    assert sysctl_path("net.ipv4.conf.eth0/100.rp_filter") == "/proc/sys/net/ipv4/conf/eth0.100/rp_filter"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "modprobe: FATAL: Module wireguard not found in directory /lib/modules/5.4.0-1-generic",
            "linux-modules-extra",
        ),
        ("modprobe: ERROR: could not insert 'mlx5_ib': Key was rejected by service", "mokutil --import"),
        ("modprobe: ERROR: could not insert 'wireguard': Operation not permitted", "the host has to load it"),
        ("", "no message"),
    ],
)
def test_a_failed_modprobe_says_what_to_do(text: str, said: str) -> None:
    assert said in explain_modprobe("wireguard", text)


def test_a_value_set_twice_goes_back_to_the_first_one(root: Path) -> None:
    key = "net.ipv4.conf.enp1s0.arp_ignore"
    for value in ("1", "2"):
        Footprint("rdma", str(root), Kernel(root)).apply(Wanted(sysctls={key: value}))
    Footprint("rdma", str(root), Kernel(root)).remove()
    assert (root / "proc/sys/net/ipv4/conf/enp1s0/arp_ignore").read_text() == "0\n"
