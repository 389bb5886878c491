"""`make demo`: a cluster from nothing to nothing, on one machine and without an account.

It finds or builds the Pulumi CLI, starts the emulator, runs `pulumi up` on `examples/cluster`, shows what was ordered,
runs `pulumi destroy`, and shows the emulator's ledger. All that it writes lies in a scratch folder that it removes.
However it ends, a cluster that was ordered is destroyed first; Ctrl-C twice skips even that.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tools.console import SetupError, coloured, paint, say
from tools.emulator import Emulator
from tools.environment import ROOT, VENV, environ
from tools.pulumi import cli

EXAMPLE = ROOT / "examples" / "cluster"
STACK = "demo"
KEY = "sk_emulator_owner"
CLUSTER_TYPE = "pulumi-python:dynamic/lium:Cluster"
READY_TYPE = "pulumi-python:dynamic/lium:ClusterReady"
INTERRUPT_GRACE_S = 120.0
STEPS = 6


class DemoFailed(Exception):
    """The demo did not show what it is there to show."""


def step(number: int, text: str) -> None:
    say(paint(f"\n[{number}/{STEPS}] {text}", "bold"))


def public_key() -> str:
    """An SSH public key in the right form. Nobody has its private half: the emulator's pods cannot be entered."""
    parts = (b"ssh-ed25519", secrets.token_bytes(32))
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} demo\n"


class Project:
    """A copy of the example in a scratch folder, with a file backend and a Pulumi home of its own."""

    def __init__(self, scratch: Path, pulumi: cli.Cli, base_url: str) -> None:
        self.folder = scratch / "program"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "Pulumi.*.yaml"))
        (self.folder / "key.pub").write_text(public_key())
        state = scratch / "state"
        state.mkdir()
        inherited = {name: text for name, text in environ().items() if not name.startswith(("PULUMI_", "LIUM_"))}
        self._binary = pulumi.binary
        self._environ = {
            **inherited,
            "PATH": pulumi.path(inherited["PATH"]),
            "PULUMI_HOME": str(scratch / "pulumi-home"),
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": secrets.token_urlsafe(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "XDG_STATE_HOME": str(scratch / "user-state"),
            "LIUM_BASE_URL": base_url,
            "LIUM_API_KEY": KEY,
        }

    def show(self, *arguments: str) -> None:
        """Runs the CLI with its output before the person's eyes. Ctrl-C reaches it as one interrupt, through us."""
        display = ["--non-interactive", "--color", "always" if coloured() else "never"]
        process = subprocess.Popen(
            [str(self._binary), *arguments, *display],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            say(paint("\nstopping: the engine finishes what it is at", "yellow"))
            process.send_signal(signal.SIGINT)
            try:
                process.wait(INTERRUPT_GRACE_S)
            finally:
                process.kill()
                process.wait()
            raise
        if code != 0:
            raise DemoFailed(f"`pulumi {arguments[0]}` ended with exit code {code}")

    def read(self, *arguments: str) -> Any:
        """JSON that the CLI prints."""
        done = subprocess.run(
            [str(self._binary), *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise DemoFailed(f"`pulumi {' '.join(arguments)}` failed: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def cluster(self) -> dict[str, Any]:
        """Outputs of the cluster, from the stack's state."""
        resources = self.read("stack", "export", "--stack", STACK)["deployment"].get("resources") or []
        found = [item["outputs"] for item in resources if item["type"] == CLUSTER_TYPE]
        ready = [item["outputs"] for item in resources if item["type"] == READY_TYPE]
        if len(found) != 1 or len(ready) != 1:
            raise DemoFailed(f"the stack's state holds {len(found)} clusters, {len(ready)} ready ones; expected one")
        return {**found[0], **ready[0]}

    def destroy(self) -> None:
        # A lock is left only where the engine was killed; without one, cancel has nothing to do and says so.
        subprocess.run(
            [str(self._binary), "cancel", "--yes", STACK, "--non-interactive"],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
        )
        self.show("destroy", "--yes", "--skip-preview", "--stack", STACK)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([paint(lines[0], "dim"), *lines[1:]])


def describe(cluster: dict[str, Any], exported: dict[str, Any]) -> str:
    """What was ordered: the offer and price from the state, the nodes and the rest as the program exports them."""
    nodes = exported["nodes"]
    rows = [("rank", "overlay", "machine", "GPUs", "enter with", "USD/h")]
    rows += [
        (
            f"{node['rank']:.0f}",
            node["overlay_ip"],
            node["machine_id"],
            f"{node['gpus']:.0f} x {node['gpu_type']}",
            node["ssh_command"],
            f"{node['price_per_hour']:.2f}",
        )
        for node in nodes
    ]
    lines = [
        f"offer chosen: {len(nodes)} machines of {cluster['gpus_per_node']:.0f} x {cluster['gpu_type']}, "
        f"{cluster['fabric_type']} fabric {cluster['fabric_id']}",
        f"price: ${cluster['price_per_hour']:.2f} an hour, ends by itself at {cluster['expires_at']}",
        table(rows),
        f"master address for torchrun: {exported['master']}",
        "hostfile:",
        *("  " + line for line in exported["hostfile"].splitlines()),
    ]
    return "\n".join(lines)


def settle(emulator: Emulator) -> str:
    """The ledger's line on what was paid and what still bills. DemoFailed if anything does."""
    state = emulator.state()
    billing, paid = state["billing"], sum(row["usd"] for row in state["ledger"])
    pods = {row["pod"] for row in state["ledger"] if row["pod"]}
    if billing["pods"]:
        raise DemoFailed(f"{len(billing['pods'])} pods still bill ${billing['price_per_hour']:.2f} an hour")
    if not pods:
        raise DemoFailed("the ledger has no charge: nothing was ordered")
    return f"ledger: {len(pods)} pods were charged ${paid:.4f} in all; nothing bills now: $0.00 an hour, 0 pods"


def demonstrate(scratch: Path) -> None:
    began = time.monotonic()
    step(1, "Python environment and Pulumi CLI")
    pulumi = cli.resolve()
    say(f"Python: {VENV / 'bin' / 'python'}\nPulumi {pulumi.version}, {pulumi.origin}: {pulumi.binary}")
    step(2, "the emulator: Lium's API on this machine")
    with Emulator([str(VENV / "bin" / "pulumi-lium")]) as emulator:
        say(f"answers at {emulator.base_url}")
        project = Project(scratch, pulumi, emulator.base_url)
        project.show("stack", "init", STACK)
        project.show("config", "set", "--stack", STACK, "sshPublicKey", "key.pub")
        step(3, f"pulumi up of {EXAMPLE.relative_to(ROOT)}")
        try:
            project.show("up", "--yes", "--stack", STACK)
            step(4, "what was ordered")
            exported = project.read("stack", "output", "--json", "--stack", STACK)
            try:
                say(describe(project.cluster(), exported))
            except (KeyError, TypeError) as error:
                raise DemoFailed(f"the outputs are not those of LiumCluster: {error!r}") from error
        except BaseException:
            say(emulator.errors() and paint("the emulator said:\n", "yellow") + emulator.errors())
            step(5, "pulumi destroy, because the demo did not get to its end")
            project.destroy()
            say(settle(emulator) if emulator.state()["ledger"] else "ledger: nothing was ordered, nothing bills")
            raise
        step(5, "pulumi destroy")
        project.destroy()
        step(6, "what it cost, and what still bills")
        say(paint(settle(emulator), "green"))
    say(f"\ndemo done in {time.monotonic() - began:.0f} s")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Exit code 0 if all was shown, 1 if not, 130 if a person stopped it."""
    signal.signal(signal.SIGTERM, _interrupt)
    scratch = Path(tempfile.mkdtemp(prefix="pulumi-lium-demo-"))
    try:
        demonstrate(scratch)
    except (SetupError, DemoFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
