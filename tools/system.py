"""System packages: what is missing is installed with the machine's package manager, where we may."""

from __future__ import annotations

import os
import shutil
import subprocess

from tools.console import say


def installed(package: str) -> bool:
    """Whether dpkg has the package in full."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == "installed"


def ensure(packages: tuple[str, ...]) -> str | None:
    """Installs those that are missing; answers why they still are, or None. Says what it installs."""
    if not packages:
        return None
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        return f"cannot tell whether these are installed without apt: {' '.join(packages)}"
    missing = [package for package in packages if not installed(package)]
    if not missing:
        return None
    if os.geteuid() != 0:
        return f"not installed: `sudo apt-get install {' '.join(missing)}` brings it"
    say(f"installing system packages: {' '.join(missing)}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "--no-install-recommends", "-y", *missing],
    ):
        done = subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return f"`{' '.join(command)}` failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
    return None
