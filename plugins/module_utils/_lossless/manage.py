# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the lossless set-up of a host, keeps it through reboots by a unit, and takes it back.

The unit's script is what sets the values at once as well: what was verified is what a boot will do. Nothing is written
that could not be read before, as it could be neither verified nor undone.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence, Set

from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host
from ansible_collections.lium.cluster.plugins.module_utils._footprint import (
    Footprint,
    FootprintError,
    ManagedFile,
    Outcome,
    Wanted,
    run_command,
)
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._ledger import Ledger
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rails import find_rails
from ansible_collections.lium.cluster.plugins.module_utils._lossless.sources import read_leg
from ansible_collections.lium.cluster.plugins.module_utils._lossless.steps import Step, Value, steps
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe
from ansible_collections.lium.cluster.plugins.module_utils._ssh_route import netdev_refusal

UNIT = "lium-lossless.service"
SCRIPT = "/usr/local/sbin/lium-lossless"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"

#: Two ledgers: files and the unit as every role has them, and the values of the cards.
_FILES, _VALUES = "lossless", "lossless_values"
_KIND = "setting"

# Before Docker, which starts the pods of a rental again at boot: a change of PFC may take the link down for a moment.
_UNIT_TEXT = f"""# Written by lium.cluster.lossless
[Unit]
Description=Lossless set-up of the RoCE ports (lium.cluster.lossless)
Wants=network-online.target
After=network-online.target
Before=docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={SCRIPT}

[Install]
WantedBy=multi-user.target
"""


class ManageError(Exception):
    """The set-up could not be made. What was changed was taken back, as far as the message does not say otherwise."""


@dataclasses.dataclass(frozen=True)
class Manager:
    """The lossless set-up of this host. ``root``, ``run`` and ``pid`` stand in for the host in tests."""

    probe: HostProbe
    pid: int
    root: str = "/"
    run: Callable[[Sequence[str]], tuple[int, str]] = run_command
    dry: bool = False

    def present(self, policy: Policy) -> Outcome:
        """Makes the host as the policy wants it, where that may be done now; ``left`` says what was not, and why."""
        outcome = Outcome()
        kept_out = confidential_vm_host(self.probe)
        if kept_out:
            outcome.left.append(kept_out)
            return outcome
        host = Host(self.probe)
        wanted = self._steps(host, policy, outcome)
        if not wanted:
            return outcome
        open_steps = [step for step in wanted if not step.met]
        files = Wanted(files=_files(wanted))
        predicted = Footprint(_FILES, self.root, self.run, dry=True).apply(files).changes
        standing = self._unit_stands()
        if not open_steps and not predicted and standing:
            return outcome
        busy = host.occupancy.busy_for_tests
        if busy:
            outcome.left.append(f"{', '.join(step.name for step in open_steps) or UNIT}: {busy}")
            return outcome
        outcome.changes += [f"set {step.name}: {step.wanted} instead of {step.before}" for step in open_steps]
        outcome.changes += predicted + ([] if standing else [f"enable and start {UNIT}"])
        for step in open_steps:
            outcome.before[step.name], outcome.after[step.name] = f"{step.before}\n", f"{step.wanted}\n"
        if not self.dry:
            self._write(open_steps, files)
        return outcome

    def _steps(self, host: Host, policy: Policy, outcome: Outcome) -> list[Step]:
        """The steps of all legs that may be written."""
        found: list[Step] = []
        for leg in find_rails(host).legs:
            if leg.soft:
                continue
            refusal = netdev_refusal(host, leg.netdev, self.pid)
            if refusal:
                outcome.left.append(f"{leg.name}: {refusal}")
                continue
            reading = read_leg(self.probe, leg)
            of_leg = steps(reading, policy.target(reading.settings, leg.driver))
            unread = [step.kind.name for step in of_leg if step.before is None]
            if unread:
                outcome.left.append(f"{leg.name}: {', '.join(unread)} cannot be read, so it is not written")
            found += [step for step in of_leg if step.before is not None]
        return found

    def _unit_stands(self) -> bool:
        return all(self.run(["systemctl", verb, "--quiet", UNIT])[0] == 0 for verb in ("is-enabled", "is-active"))

    def _write(self, open_steps: Sequence[Step], files: Wanted) -> None:
        ledger = Ledger(_VALUES, self.root, dry=False)
        earlier = {entry["name"] for entry in ledger.entries}
        for step in open_steps:
            ledger.note(_KIND, step.name, **step.as_entry())
        footprint = Footprint(_FILES, self.root, self.run)
        footprint.apply(files)
        problem = self._start(footprint, files)
        if not problem:
            now = self._now(open_steps)
            wrong = [step for step in open_steps if not step.reads(now[step], step.wanted)]
            problem = "; ".join(f"{step.name} is {now[step]}, not {step.wanted}" for step in wrong)
        if problem:
            kept = self._take_back(open_steps, ledger, earlier)
            if not earlier:  # else the unit is that of a run that was verified
                self._remove_unit()
            raise ManageError(f"{problem}. {kept or 'Everything is as it was before'}")

    def _start(self, footprint: Footprint, files: Wanted) -> str:
        """Runs the script through its unit, now and at each boot; what went wrong."""
        for argv in (["systemctl", "daemon-reload"], ["systemctl", "stop", UNIT]):
            self.run(argv)
        try:
            footprint.apply(dataclasses.replace(files, services=[UNIT]))
        except FootprintError as exc:
            return f"{SCRIPT} failed: {exc}"
        return ""

    def _remove_unit(self) -> Outcome:
        removed = Footprint(_FILES, self.root, self.run, dry=self.dry).remove()
        if removed.changes and not self.dry:
            self.run(["systemctl", "daemon-reload"])
        return removed

    def _take_back(self, done: Sequence[Step], ledger: Ledger, earlier: Set[str]) -> str:
        """Undoes this run's writes; what could not be undone. Entries named in ``earlier`` are of other runs."""
        failed = self._set_back(done)
        for step in done:
            if step not in failed and step.name not in earlier:
                ledger.forget(_KIND, step.name)
        return "; ".join(f"{step.name} could not be set back to {step.before}" for step in failed)

    def _set_back(self, done: Sequence[Step]) -> list[Step]:
        """Leads values back, the last one first, and reads all of them again; those that are not as before."""
        now = self._now(done)
        for step in reversed(done):
            if not step.reads(now[step], step.before):
                for line in step.kind.lines(step.leg, step.tool, step.before, now[step]):
                    self.run(["sh", "-c", line])
        now = self._now(done)
        return [step for step in done if not step.reads(now[step], step.before)]

    def _now(self, asked: Sequence[Step]) -> dict[Step, Value]:
        """The values of these settings as they read at this moment; None for one that does not."""
        settings = {leg: read_leg(self.probe, leg).settings for leg in {step.leg for step in asked}}
        return {step: step.kind.now(settings[step.leg], step.wanted) for step in asked}

    def absent(self) -> Outcome:
        """Undoes what stands in the ledgers. What others changed since is left as it is and named."""
        ledger = Ledger(_VALUES, self.root, self.dry)
        outcome = Outcome()
        host = Host(self.probe)
        # The unit first: a boot in between must not set anew what is being taken back.
        removed = self._remove_unit()
        outcome.changes += removed.changes
        outcome.left += removed.left
        if not ledger.entries:
            return outcome
        busy = host.occupancy.busy_for_tests
        ours: list[Step] = []
        noted = [Step.from_entry(entry) for entry in ledger.entries]
        now = self._now(noted)
        for step in noted:
            refusal = busy or netdev_refusal(host, step.leg.netdev, self.pid)
            if refusal:
                outcome.left.append(f"{step.name}: {refusal}")
            elif self._still_ours(step, now[step], outcome):
                ours.append(step)
            else:
                ledger.forget(_KIND, step.name)
        outcome.changes += [f"set {step.name}: {step.before} instead of {step.wanted}" for step in ours]
        if not self.dry:
            failed = self._set_back(ours)
            outcome.left += [f"{step.name}: could not be set back to {step.before}" for step in failed]
            for step in ours:
                if step not in failed:
                    ledger.forget(_KIND, step.name)
        return outcome

    def _still_ours(self, step: Step, now: Value, outcome: Outcome) -> bool:
        """Whether a value is to be set back: not where its netdev is gone, or where it is no longer what was set."""
        if not self.probe.exists(f"/sys/class/net/{step.leg.netdev}") or step.reads(now, step.before):
            return False
        if now is None or step.reads(now, step.wanted):
            return True
        outcome.left.append(f"{step.name}: changed by someone else since")
        return False


def _files(wanted: Sequence[Step]) -> list[ManagedFile]:
    lines = "".join(f"{_guarded(line)}\n" for step in wanted for line in step.lines)
    script = f"""#!/bin/sh
# Written by lium.cluster.lossless: these settings do not outlive a reboot, so {UNIT} makes them again.
failed=0
{lines}exit $failed
"""
    return [ManagedFile(SCRIPT, script, 0o755), ManagedFile(UNIT_PATH, _UNIT_TEXT)]


def _guarded(line: str) -> str:
    """One failure must not keep the rest from being set. ethtool fails where nothing is left to change."""
    return f"{line} || true" if line.startswith("ethtool ") else f"{{ {line}; }} || failed=1"
