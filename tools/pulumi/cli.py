"""Finds the Pulumi CLI, installs it, or builds it; says which.

Order: the one on PATH; the official installer, where it can be reached; the Go module. The last brings no Python
language host, so the project's own (`host/`) is put beside it. The version stands in `go.mod` beside this file.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.cache import cache_root, digest, made_once
from tools.console import SetupError, say
from tools.gotool import PULUMI

INSTALLER = "https://get.pulumi.com/install.sh"
INSTALLER_TIMEOUT_S = 5.0
INSTALL_TIMEOUT_S = 600.0
HOST = Path(__file__).resolve().parent / "host"


@dataclass(frozen=True)
class Cli:
    """A usable Pulumi CLI: its binary, version (no `v`), where it came from, and whether it needs our language host."""

    binary: Path
    version: str
    origin: str
    needs_host: bool = False

    def path(self, path: str) -> str:
        """`path` (a PATH variable) with this CLI first and, if it came without, our language host last."""
        parts = [str(self.binary.parent), *filter(None, path.split(os.pathsep))]
        return os.pathsep.join([*parts, str(HOST)] if self.needs_host else parts)


def version_of(binary: Path) -> str:
    """What `pulumi version` answers, without the `v`. SetupError if it is no working Pulumi 3."""
    try:
        done = subprocess.run(
            [str(binary), "version"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{binary} does not run ({error}): mend it or take it off PATH") from error
    found = re.search(r"^v?(\d+\.\d+\.\d+\S*)", done.stdout.strip())
    if done.returncode != 0 or not found:
        said = (done.stdout + done.stderr).strip()[:200]
        raise SetupError(f"{binary} answers `version` with {said!r}: mend it or take it off PATH")
    if not found[1].startswith("3."):
        raise SetupError(f"{binary} is Pulumi {found[1]}; this project needs Pulumi 3: take it off PATH or update it")
    return found[1]


def on_path(environ: Mapping[str, str]) -> Cli | None:
    """The CLI on PATH, if there is one."""
    found = shutil.which("pulumi", path=environ.get("PATH", ""))
    if found is None:
        return None
    binary = Path(found).resolve()
    beside = os.pathsep.join([str(Path(found).parent), str(binary.parent), environ.get("PATH", "")])
    return Cli(Path(found), version_of(binary), "on PATH", shutil.which("pulumi-language-python", path=beside) is None)


def fetch_installer(url: str = INSTALLER, timeout: float = INSTALLER_TIMEOUT_S) -> bytes | None:
    """Text of the official install script, or None where it cannot be reached."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            text: bytes = answer.read(1_000_000)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return text if text.startswith(b"#!") else None  # a portal's page is no script


def installed(cache: Path, fetch: Callable[[], bytes | None] = fetch_installer) -> Cli | None:
    """The CLI by the official installer, kept in `cache`; None where the installer cannot be had or fails."""
    name = f"pulumi-{PULUMI.version}-official"

    def make(scratch: Path) -> None:
        script = fetch()
        if script is None:
            raise SetupError(f"{INSTALLER} is out of reach")
        say(f"installing Pulumi {PULUMI.version} with the official installer, into {cache}")
        (scratch / "install.sh").write_bytes(script)
        arguments = ["--no-edit-path", "--install-root", str(scratch), "--version", PULUMI.version]
        try:
            done = subprocess.run(
                ["sh", str(scratch / "install.sh"), *arguments],
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise SetupError(f"the official installer was not done after {INSTALL_TIMEOUT_S:.0f} s") from error
        if done.returncode != 0 or not (scratch / "bin" / "pulumi").is_file():
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
            raise SetupError(f"the official installer failed ({done.returncode}): {last[0]}")

    try:
        binary = made_once(cache, name, make) / "bin" / "pulumi"
        return Cli(binary, version_of(binary), "official installer")
    except SetupError as reason:
        say(f"Pulumi: {reason}; building it instead")
        return None


def built(cache: Path) -> Cli:
    """The CLI from its Go module, with our language host."""
    binary = PULUMI.build(cache)
    scripts = sorted(path for path in HOST.iterdir() if path.is_file())
    key = digest(part for path in scripts for part in (path.name.encode(), path.read_bytes()))

    def make(scratch: Path) -> None:
        for script in scripts:
            shutil.copy2(script, scratch)
        # The engine takes hosts that lie beside its own file, so a symbolic link would not do.
        try:
            os.link(binary, scratch / "pulumi")
        except OSError:
            shutil.copy2(binary, scratch)

    folder = made_once(cache, f"{PULUMI.cached_name}-host-{key}", make)
    return Cli(folder / "pulumi", version_of(folder / "pulumi"), "built from its Go module")


def resolve(environ: Mapping[str, str] = os.environ) -> Cli:
    """The CLI to use on this machine. SetupError says what is missing."""
    cache = cache_root(environ) / "tools"
    cli = on_path(environ)
    if cli is None and (cache / PULUMI.cached_name).is_dir():
        cli = built(cache)  # no question to the network when the answer is known
    if cli is None:
        cli = installed(cache) or built(cache)
    return cli


def shell_lines(cli: Cli, environ: Mapping[str, str], environment: Path) -> str:
    """Lines for `eval` in a shell: PATH with the Python environment and the CLI, for the shell's own use of both."""
    path = cli.path(environ.get("PATH", os.defpath))
    return (
        f"export PATH={shlex.quote(os.pathsep.join([str(environment / 'bin'), path]))}\n"
        f"export VIRTUAL_ENV={shlex.quote(str(environment))}"
    )


def main(arguments: Sequence[str]) -> int:
    """Prints the CLI's binary and where it came from; with `--sh` lines for `eval` that put it on PATH."""
    if arguments not in ([], ["--sh"]):
        print(f"error: {' '.join(arguments)!r}: there is --sh, and nothing else", file=sys.stderr)
        return 2
    try:
        cli = resolve()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments:
        print(shell_lines(cli, os.environ, HOST.parents[2] / ".venv"))
    else:
        say(f"Pulumi {cli.version} ({cli.origin}): {cli.binary}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
