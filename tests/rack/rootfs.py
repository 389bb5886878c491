"""The file system that host images are made from, and the packages that roles may install there."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.rack import packages
from tests.rack.cache import entry
from tests.rack.shell import ISOLATED, ending_with_us, run
from tools.console import say

ARCHIVE = "rootfs.tar"
DOWNLOADS = "debs"
_UNWANTED = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")


def rootfs() -> Path:
    """The cache entry with `rootfs.tar` and the folder `debs`. Needs the network where it is not there yet."""
    sources = packages.package_sources()
    release = packages.suite(sources)

    def build(folder: Path) -> None:
        say(f"rack: making the hosts' file system from {release} packages (about two minutes, needs the network)")
        # Its temporary files would otherwise outlive a kill in the middle.
        (folder / "tmp").mkdir()
        run(
            [*ending_with_us(), *_command(folder, release, sources)],
            environ={"TMPDIR": str(folder / "tmp"), "DEBIAN_FRONTEND": "noninteractive"},
        )
        (folder / "tmp").rmdir()

    made_from = [part.encode() for part in _command(Path("x"), release, sources)]
    return entry("rootfs", made_from, build, need_gib=4)


def _command(folder: Path, release: str, sources: list[str]) -> list[str]:
    # Resolved inside the new system, so that each group's closure is exactly what a bare host lacks.
    download = "apt-get install --yes --no-install-recommends --download-only"
    hooks = [f'chroot "$1" {download} {shlex.join(group)}' for group in packages.ROLE_PACKAGES]
    hooks.append(f'cp -r "$1"/var/cache/apt/archives {shlex.quote(str(folder / DOWNLOADS))}')
    return [
        *ISOLATED,
        *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages.HOST_PACKAGES)}"),
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude={path}" for path in _UNWANTED),
        *(f"--customize-hook={hook}" for hook in hooks),
        *(release, str(folder / ARCHIVE)),
        *sources,
    ]
