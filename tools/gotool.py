"""Command-line tools that are built from their Go module.

Each has a folder with `go.mod`, `go.sum` and `tools.go`; the one import of `tools.go` is the command. A version stands
in `go.mod` and nowhere else. `python3 -m tools.gotool NAME [ARGUMENT …]` builds one if need be and runs it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.cache import cache_root, digest, made_once
from tools.console import SetupError, say

TOOLS = Path(__file__).resolve().parent
HEARTBEAT_S = 30.0


@dataclass(frozen=True)
class GoTool:
    """A command in a Go module. `ldflags` may use `{version}`; `cost` warns of a long build on cold caches."""

    name: str
    ldflags: str = "-s -w"
    cost: str = ""

    @property
    def folder(self) -> Path:
        return TOOLS / self.name

    @property
    def command(self) -> str:
        """Import path of the command, from `tools.go`."""
        found: list[str] = re.findall(
            r'^\s*(?:import\s+)?_\s+"([^"]+)"', (self.folder / "tools.go").read_text(), re.MULTILINE
        )
        if len(found) != 1:
            raise SetupError(f"{self.folder / 'tools.go'} must import exactly one command, it imports {len(found)}")
        return found[0]

    @property
    def version(self) -> str:
        """Version of the command's module without the `v`, from `go.mod`."""
        for line in (self.folder / "go.mod").read_text().splitlines():
            match = re.match(r"^(?:require\s+)?\s*(\S+)\s+v(\S+?)\s*(?://.*)?$", line)
            if match and "// indirect" not in line and self._is_module_of_command(match[1]):
                return match[2]
        raise SetupError(f"{self.folder / 'go.mod'} requires no module that holds {self.command}")

    def _is_module_of_command(self, module: str) -> bool:
        return self.command == module or self.command.startswith(module + "/")

    @property
    def cached_name(self) -> str:
        """Its folder in the cache, by a hash of all it is made from but the Go version: any that builds it will do."""
        files = [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go")]
        host = f"{platform.system()}-{platform.machine()}"
        return f"{self.name}-{self.version}-{digest([*files, self.ldflags.encode(), host.encode()])}"

    def build(self, root: Path | None = None) -> Path:
        """Path of the binary, built unless the cache under `root` has it. SetupError says why it cannot be built."""
        return made_once(root or cache_root() / "tools", self.cached_name, self._make) / self.name

    def _make(self, scratch: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise SetupError(
                f"{self.name} {self.version} must be built from its Go module, and there is no `go` on PATH: "
                f"install Go (see the `go` line of {self.folder / 'go.mod'}) or {self.name} itself"
            )
        say(f"building {self.name} {self.version} from its Go module{f' ({self.cost})' if self.cost else ''}")
        began = time.monotonic()
        arguments = [
            *(go, "build", "-buildvcs=false", "-mod=readonly"),
            *("-ldflags", self.ldflags.format(version=self.version)),
            *("-o", str(scratch / self.name), self.command),
        ]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                arguments, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "GOWORK": "off"}
            )
            try:
                while (code := _wait(process, HEARTBEAT_S)) is None:
                    say(f"  still building {self.name}, {time.monotonic() - began:.0f} s")
            except BaseException:
                process.terminate()
                process.wait()
                raise
            if code != 0:
                log.seek(0)
                lines = [line for line in log.read().decode(errors="replace").splitlines() if "downloading" not in line]
                raise SetupError(f"go build of {self.name} failed ({code}):\n" + "\n".join(lines[-20:]))
        say(f"built {self.name} {self.version} in {time.monotonic() - began:.0f} s, kept in {scratch.parent}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


PULUMI = GoTool(
    "pulumi",
    ldflags="-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",
    cost="about five minutes and 3.4 GB on cold caches",
)
ACTIONLINT = GoTool("actionlint")
TOOLS_BY_NAME = {tool.name: tool for tool in (PULUMI, ACTIONLINT)}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in TOOLS_BY_NAME:
        print(f"error: name one of {' '.join(TOOLS_BY_NAME)}", file=sys.stderr)
        return 2
    try:
        binary = TOOLS_BY_NAME[arguments[0]].build()
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return subprocess.run([str(binary), *arguments[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
