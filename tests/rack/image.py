"""The disk image, kernel and initial RAM disk of the hosts."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Literal

from tests.rack import rootfs as source
from tests.rack.cache import content, entry
from tests.rack.packages import FULL_PACKAGES
from tests.rack.shell import ISOLATED, ending_with_us, run
from tools.console import say

#: Hosts with none of the roles' packages, and hosts with those that `onboard` installs.
Kind = Literal["bare", "full"]

GUEST = Path(__file__).parent / "guest"
DISK, KERNEL, INITRD = "disk.img", "vmlinuz", "initrd.gz"
DISK_SIZE_GIB = 6

#: Units that cost seconds of emulated start-up and stand for hardware or habits no test looks at.
_MASKED = [
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-setup.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty-static.service",
    "getty@tty1.service",
    "keyboard-setup.service",
    "ldconfig.service",
    "modprobe@drm.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "proc-sys-fs-binfmt_misc.automount",
    "serial-getty@ttyS0.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-flush.service",
    "systemd-logind.service",
    "systemd-machine-id-commit.service",
    "systemd-networkd-wait-online.service",
    "systemd-networkd.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-udev-settle.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-update-utmp.service",
]

#: Driver folders of the kernel package that only make the image larger.
_PRUNED = [
    "sound",
    "net/wireless",
    "net/mac80211",
    "net/bluetooth",
    "net/nfc",
    "net/atm",
    "net/can",
    "net/ax25",
    "net/mac802154",
    "net/ieee802154",
    "fs/btrfs",
    "fs/xfs",
    "fs/ocfs2",
    "fs/gfs2",
    "fs/cifs",
    "fs/ceph",
    "fs/afs",
    "fs/jfs",
    "fs/f2fs",
    "fs/nilfs2",
    "fs/ntfs3",
    "fs/nfsd",
    "fs/udf",
    "fs/ubifs",
    "drivers/gpu",
    "drivers/media",
    "drivers/staging",
    "drivers/iio",
    "drivers/hwmon",
    "drivers/usb",
    "drivers/input",
    "drivers/hid",
    "drivers/bluetooth",
    "drivers/isdn",
    "drivers/scsi",
    "drivers/ata",
    "drivers/nvme",
    "drivers/mmc",
    "drivers/leds",
    "drivers/watchdog",
    "drivers/i2c",
    "drivers/video",
    "drivers/comedi",
    "drivers/firewire",
    "drivers/thunderbolt",
    "drivers/atm",
    "drivers/net/wireless",
    "drivers/net/can",
    "drivers/net/usb",
    "drivers/net/ieee802154",
    "drivers/net/wwan",
    "drivers/edac",
    "drivers/md",
    "drivers/power",
    "drivers/gpio",
    "drivers/mfd",
    "drivers/target",
]

#: Enough to find the disk; everything else is loaded from there.
_BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio-rng", "ext4", "crc32c_generic")

_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
while read module; do $b insmod /modules/$module; done < /modules/order
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 200 ]; do $b usleep 50000; tries=$((tries+1)); done
$b mount -t ext4 -o rw,noatime /dev/vda /root
$b mount --move /dev /root/dev
exec $b switch_root /root /lib/systemd/systemd
"""


def image(kind: Kind) -> Path:
    """The cache entry with `disk.img`, `vmlinuz` and `initrd.gz`."""
    made_of = source.rootfs()
    public_key = ssh_key().with_suffix(".pub").read_text()
    extra = FULL_PACKAGES if kind == "full" else ()

    def build(folder: Path) -> None:
        say(f"rack: making the disk image of {kind} hosts")
        _build(made_of, folder, extra, public_key)

    made_from = [made_of.name.encode(), " ".join(extra).encode(), public_key.encode()]
    return entry("image", [*made_from, *content(GUEST), *content(Path(__file__))], build, need_gib=4)


def ssh_key() -> Path:
    """The private key that all hosts made from this cache let in; made once, never leaves this machine."""

    def build(folder: Path) -> None:
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rack", "-f", folder / "key"])

    return entry("ssh", [b"ed25519"], build, need_gib=0) / "key"


def _build(made_of: Path, folder: Path, extra: tuple[str, ...], public_key: str) -> None:
    root = folder / "root"
    root.mkdir()
    run(["tar", "--extract", "--preserve-permissions", "--file", made_of / source.ARCHIVE, "--directory", root])
    _add_package_source(root, made_of / source.DOWNLOADS)
    _install(root, extra)
    _configure(root, public_key)
    release = next((root / "lib/modules").iterdir()).name
    for name in _PRUNED:
        shutil.rmtree(root / "lib/modules" / release / "kernel" / name, ignore_errors=True)
    run(["chroot", root, "depmod", release])
    shutil.copy(root / f"boot/vmlinuz-{release}", folder / KERNEL)
    for initrd in (root / "boot").glob("initrd.img-*"):
        initrd.unlink()
    _make_initrd(root, release, folder)
    run(["truncate", "--size", f"{DISK_SIZE_GIB}G", folder / DISK])
    run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-d", root, folder / DISK])
    shutil.rmtree(root)


def _add_package_source(root: Path, downloads: Path) -> None:
    """Make the roles' packages, less what the file system has installed already, the image's only package source."""
    status = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", "--showformat", "${Package}\n"])
    installed = set(status.split())
    source_folder = root / "opt/packages"
    source_folder.mkdir(parents=True)
    for package in downloads.glob("*.deb"):
        if package.name.split("_")[0] not in installed:
            shutil.copy(package, source_folder)
    (source_folder / "Packages").write_text(run(["apt-ftparchive", "packages", "."], cwd=source_folder))
    release = run(["apt-ftparchive", "-o", "APT::FTPArchive::Release::Suite=rack", "release", "."], cwd=source_folder)
    (source_folder / "Release").write_text(release)
    shutil.rmtree(root / "etc/apt/sources.list.d")
    shutil.copytree(GUEST / "etc/apt", root / "etc/apt", dirs_exist_ok=True)


def _install(root: Path, extra: tuple[str, ...]) -> None:
    """Install packages as a role would on the running host: units enabled, nothing started yet."""
    if not extra:
        return
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    script = (
        'mount -t proc proc "$0/proc" && chroot "$0" apt-get update -qq && '
        'chroot "$0" apt-get install --yes -qq --no-install-recommends "$@"'
    )
    run(
        # Its own mount and process namespaces, as for the file system itself.
        [*ending_with_us(), *ISOLATED, "sh", "-c", script, root, *extra],
        environ={"DEBIAN_FRONTEND": "noninteractive"},
    )
    policy.unlink()


def _configure(root: Path, public_key: str) -> None:
    for old in (*root.glob("etc/ssh/ssh_host_*"), *root.glob("etc/update-motd.d/*")):
        old.unlink()
    shutil.copytree(GUEST, root, dirs_exist_ok=True)
    authorized = root / "root/.ssh/authorized_keys"
    authorized.parent.mkdir(mode=0o700, exist_ok=True)
    authorized.write_text(public_key)
    authorized.chmod(0o600)
    (root / "etc/fstab").write_text("")
    (root / "etc/default/locale").write_text("LANG=C.UTF-8\n")
    (root / "etc/rack").mkdir()
    # sshd does not start without one; each host gets its own before it has an address.
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "image", "-f", root / "etc/ssh/ssh_host_ed25519_key"])
    # The tiny initrd is made here once; a package that a role installs must not start making another.
    (root / "etc/initramfs-tools").mkdir(exist_ok=True)
    (root / "etc/initramfs-tools/update-initramfs.conf").write_text("update_initramfs=no\n")
    units = root / "etc/systemd/system"
    for unit in _MASKED:
        _link(units / unit, "/dev/null")
    for unit in ("rack-network.service", "rack-agent.service"):
        _link(units / "multi-user.target.wants" / unit, f"/etc/systemd/system/{unit}")
    _link(units / "default.target", "/lib/systemd/system/multi-user.target")
    # eth0, eth1 by the order of the slots, whatever addresses a clone gets.
    _link(root / "etc/udev/rules.d/80-net-setup-link.rules", "/dev/null")


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _make_initrd(root: Path, release: str, folder: Path) -> None:
    tree = folder / "initrd"
    modules = tree / "modules"
    for name in ("bin", "dev", "root", "modules"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    busybox = shutil.which("busybox")
    assert busybox is not None, "packages.why_not has installed it"
    shutil.copy(busybox, tree / "bin/busybox")
    order: list[str] = []
    for name in _BOOT_MODULES:
        needs = run(["chroot", root, "modprobe", "--set-version", release, "--show-depends", name])
        for file in (Path(line.split()[1]) for line in needs.splitlines() if line.startswith("insmod")):
            if file.name not in order:
                order.append(file.name)
                shutil.copy(root / file.relative_to("/"), modules)
    (modules / "order").write_text("".join(f"{name}\n" for name in order))
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    archive = folder / "initrd.cpio"
    files = "".join(f"{file.relative_to(tree)}\n" for file in sorted(tree.rglob("*")))
    run(["cpio", "--create", "--format=newc", "--quiet", "--file", archive], text=files, cwd=tree)
    (folder / INITRD).write_bytes(gzip.compress(archive.read_bytes(), compresslevel=1))
    archive.unlink()
    shutil.rmtree(tree)
