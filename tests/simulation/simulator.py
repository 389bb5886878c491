"""Runs a schedule and judges it.

The invariants, after the schedule's recovery has ended well and 120 s more have passed:

- orphans: clusters of ours of which a member bills, or will, and that stand neither in the engine's state nor in an
  open intent. 0.
- foreign touched: writes (delete, removal time) to anything that no order of ours made, and foreign clusters in the
  state. 0.
- double orders: orders of one resource that the service carried out while another cluster of that resource, ordered by
  us too, still billed. 0. One thing is left out: where the journal was lost with its runner and the engine's state does
  not hold the first cluster, nothing can keep the next `up` from ordering; recovery has to remove what is too much, so
  that at most one cluster of a resource bills in the end.
- wrong: the state drops a cluster that bills; a command removes a cluster that the state holds; recovery does not come
  to an end; a process breaks off with anything but an error for a person. 0. One thing is left out: where a note could
  not be written and the process died, a sweep that was given no state takes the journal at its last word.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi_lium.api.errors import LiumError
from pulumi_lium.lifecycle.errors import OrderUnsettled

from .commands import run_command
from .points import Killed
from .schedule import Schedule, Step
from .world import World

SETTLED = 120.0
"""Seconds after the recovery at which the invariants are judged."""
_TRIES, _BETWEEN = 5, 360.0
"""A recovery that says that something may still arrive is run again after this many seconds."""
_FOR_A_PERSON = ("nothing_matches", "ttl_over")
"""Refusals that say that the program has to change; what went before was settled first."""
_FINALES = {
    "up": ("up",),
    "destroy": ("destroy", "sweep --stack-export"),
    "sweep": ("sweep",),
    "sweep --stack-export": ("sweep --stack-export",),
    "recover": ("recover", "up"),
    "teardown": ("teardown",),
}


@dataclass
class Verdict:
    """What a schedule came to. `notes` say what was wrong, in words."""

    orphans: int = 0
    foreign: int = 0
    doubles: int = 0
    wrong: int = 0
    kills: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.orphans or self.foreign or self.doubles or self.wrong)

    @property
    def kinds(self) -> frozenset[str]:
        """Which invariants are broken."""
        return frozenset(kind for kind in ("orphans", "foreign", "doubles", "wrong") if getattr(self, kind))


def run(schedule: Schedule, *, say: Callable[[str], None] | None = None, **parts: Any) -> Verdict:
    """Plays the schedule, recovers, judges. `say` takes the story line by line; `parts` go to `World`."""
    world = World(schedule, say=say, **parts)
    verdict = Verdict()
    for step in schedule.steps:
        play(world, step, verdict)
    _recover(world, verdict)
    _judge(world, verdict)
    return verdict


def play(world: World, step: Step, verdict: Verdict) -> bool:
    """One step, whatever comes of it; True where it ended well. What must never happen goes into the verdict."""
    world.clock.sleep(step.wait)
    if step.bare:
        world.lose_disk()
    world.network.others(step.busy)
    world.points.begin(step.kill)
    world.network.begin(step.faults)
    another = " with the key of another account" if step.foreign_key else ""
    world.say(f"$ {step.verb}{' on a bare disk' if step.bare else ''}{another}")
    try:
        run_command(world, step)
    except Killed:
        world.say("killed")
        return False
    except LiumError as error:
        world.told.append(str(error))
        if isinstance(error, OrderUnsettled):
            world.names_told.update(re.findall(r"--name-prefix ([\w.-]+)", str(error)))
        # The one key there is: the person can say so where an error asks for it.
        world.told_same_key = world.told_same_key or "--same-key" in str(error)
        world.say(f"failed: {error}")
        return error.code in _FOR_A_PERSON
    except Exception:  # noqa: BLE001  whatever it is, it is a finding
        verdict.wrong += 1
        verdict.notes.append(traceback.format_exc(limit=-3))
        return False
    return True


def _recover(world: World, verdict: Verdict) -> None:
    """The schedule's recovery, as a person does it: what says that it is not done is run again later.

    An `up` that names an interrupted order of a resource that its program lacks is followed by the sweep that it names.
    Where the journal was lost, the state's pending operations are settled first, and a name that an error told to sweep
    by is swept once nothing can arrive any more.
    """
    last = world.schedule.steps[-1] if world.schedule.steps else Step()
    verbs = list(_FINALES[world.schedule.finale])
    bare = world.schedule.bare_finale
    if (bare or world.network.disks > 1) and verbs[0] in ("up", "sweep"):
        verbs.insert(0, "recover")
    if (bare or world.network.disks > 1) and world.names_told:
        verbs.insert(0, "sweep --name-prefix")
    for verb in verbs:  # grows by what an `up` tells to run after it
        wait = _BETWEEN if verb == "sweep --name-prefix" else 0.0
        step = replace(last, verb=verb, wait=wait, kill=None, faults=(), bare=bare, foreign_key=False)
        for _ in range(_TRIES):
            if play(world, step, verdict):
                break
            if verb == "sweep" and "--stack-export" in world.told[-1]:
                verb = "sweep --stack-export"
            step = replace(step, verb=verb, wait=_BETWEEN, bare=False)
        else:
            verdict.wrong += 1
            verdict.notes.append(f"{verb} does not come to an end: {world.told[-1:]}")
        if verb == "up" and any("run `pulumi stack export" in line for line in world.told):
            verbs.append("sweep --stack-export")
        bare = False


def _judge(world: World, verdict: Verdict) -> None:
    network, clock = world.network, world.clock
    clock.at = max(clock.at, network.last_arrival()) + SETTLED
    network.arrive()
    world.market.advance_to(clock.at)
    held = {resource.id for resource in world.checkpoint.resources.values()}
    intents = world.disk.records.values()
    waiting = {intent.cluster_id for intent in intents} | {intent.pod_name for intent in intents}
    billing = network.billing()
    for cluster in billing.values():
        if cluster.id not in held and cluster.id not in waiting and cluster.name not in waiting:
            verdict.orphans += 1
            verdict.notes.append(f"{cluster.name} ({cluster.id}) bills and nothing owns it")
        elif cluster.id not in held:
            verdict.wrong += 1
            verdict.notes.append(f"{cluster.name} ({cluster.id}) is left in an intent by a recovery that ended well")
    for resource in {cluster.resource for cluster in billing.values()}:
        if sum(cluster.resource == resource for cluster in billing.values()) > 1:
            verdict.doubles += 1
            verdict.notes.append(f"two clusters of {resource} bill after the recovery")
    for cluster_id in held - network.ours.keys():
        verdict.foreign += 1
        verdict.notes.append(f"{cluster_id} stands in the state and is not ours")
    verdict.foreign += network.counts.foreign
    verdict.doubles += network.counts.doubles
    verdict.wrong += len(world.gone_wrong) + network.counts.owned
    verdict.notes += network.counts.notes + world.gone_wrong
    verdict.kills = world.points.hit
