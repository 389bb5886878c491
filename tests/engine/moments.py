"""The ten moments at which an engine is killed, each held open by the emulator for as long as a test needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.clusters import ORDER, cluster, live, market, program
from tests.support.pulumi_stack import Running, Stack
from tools.emulator import ControlPlane

HELD_S = 4.0
"""How long the emulator holds a request: the kill falls into it, and what is left over ends by itself."""
REACHED_S = 150.0
"""An engine on a busy machine may take as long to come to the moment."""
HOSTS = 12

NEIGHBOURS = ("train", "train-2", "train-0a1b2c-0a1b2c")
"""Names of clusters that nobody may touch: ordered by hand, or with another owner's mark."""
NEIGHBOUR_KEYS = "neighbour-"
"""With this their idempotency keys begin."""

Look = Callable[[ControlPlane], bool]


def _urn(operation: dict[str, Any]) -> str:
    return str(operation["resource"]["urn"])


def _nothing(emulator: ControlPlane) -> None: ...


def ours(emulator: ControlPlane) -> set[str]:
    """Ids of the clusters that are not the neighbours' and bill, or will."""
    return {pod["cluster_id"] for pod in live(emulator) if pod["pod_name"] not in NEIGHBOURS}


def _requests(emulator: ControlPlane, on: str) -> list[dict[str, Any]]:
    """The journal's rows of one kind, such as `DELETE /clusters/*`, without the neighbours' orders."""
    method, path = on.split()
    wanted = path.split("/")
    return [
        row
        for row in emulator.journal()
        if row["method"] == method
        and not (row["idempotency_key"] or "").startswith(NEIGHBOUR_KEYS)
        and len(found := row["path"].removeprefix("/api").split("/")) == len(wanted)
        and all(want in ("*", part) for want, part in zip(wanted, found, strict=True))
    ]


def held(on: str) -> Look:
    """True while a request of this kind has arrived and is not yet answered."""
    return lambda emulator: any(row["status"] is None for row in _requests(emulator, on))


def done(on: str, times: int = 1) -> Look:
    """True once the service has carried this many out, whatever its client has heard of it."""
    return lambda emulator: sum(row["committed"] for row in _requests(emulator, on)) >= times


def hold(on: str, *, after: int = 0, when: str = "before") -> Callable[[ControlPlane], None]:
    """Lets the first request of this kind, after so many others, wait before or after the service acts."""

    def arm(emulator: ControlPlane) -> None:
        emulator.fault(on, "delay", after=after, seconds=HELD_S, when=when)

    return arm


@dataclass(frozen=True)
class Moment:
    """`arrange` sets the market up before `verb` runs; `reached` says that it is there, and so it stays for a while.

    `begun` is a first stage that some moments have: when it is true, `then` arms what holds the moment itself.
    `first_up`: the cluster runs already, as `verb` is about its end. `killed_before`: an engine has been killed at
    that other moment, and `verb` is the recovery from it. `saved`: the engine has the cluster in its state.
    """

    name: str
    reached: Look
    arrange: Callable[[ControlPlane], None] = _nothing
    begun: Look | None = None
    then: Callable[[ControlPlane], None] = _nothing
    verb: str = "up"
    first_up: bool = False
    killed_before: str | None = None
    saved: bool = False
    boot: tuple[float, float] = (0, 0)
    inputs: dict[str, Any] = field(default_factory=dict)

    def market(self) -> dict[str, Any]:
        """A scenario with room for the cluster, for what is ordered in its place, and for the neighbours."""
        scenario = market(hosts=HOSTS, boot=self.boot)
        other = {"id": "other", "email": "other@example.com", "balance": 100000.0, "keys": [{"key": "sk_other"}]}
        scenario["accounts"].append(other)
        return scenario

    def program(self) -> str:
        return program(cluster(ttl="2h", **self.inputs))

    def run_into(self, stack: Stack, emulator: ControlPlane) -> Running:
        """Starts the command and answers it at the moment."""
        self.arrange(emulator)
        running = stack.start(self.verb)
        if self.begun is not None:
            begun = self.begun
            running.wait_until(lambda: begun(emulator), what=f"the beginning of {self.name}", timeout=REACHED_S)
            self.then(emulator)
        running.wait_until(lambda: self.reached(emulator), what=self.name, timeout=REACHED_S)
        if self.saved:
            running.wait_until(
                lambda: any("ClusterReady" in _urn(op) for op in stack.pending_operations()), what="the wait"
            )
        return running


def _fail_a_start(emulator: ControlPlane) -> None:
    emulator.event("pod_fails", rank=1, reason="no active RDMA port")
    hold("DELETE /clusters/*")(emulator)


def _refuse_half(emulator: ControlPlane) -> None:
    (cluster_id,) = ours(emulator)
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=1)
    hold("DELETE /clusters/*", when="after")(emulator)


SCHEDULE = "POST /pods/*/schedule-removal"
_ALL = (
    Moment("before the snapshot", held("GET /pods"), hold("GET /pods")),
    Moment("order sent, not answered", held(ORDER), hold(ORDER)),
    Moment("answered, not saved", done(SCHEDULE, 2), hold(SCHEDULE, after=1, when="after")),
    Moment("members not listed", held("GET /pods"), hold(ORDER, when="after"), done(ORDER), hold("GET /pods")),
    Moment("TTL half set", held(SCHEDULE), hold(SCHEDULE, after=1)),
    Moment("readiness wait", done(SCHEDULE, 2), saved=True, boot=(8, 8)),
    Moment("failed start being removed", held("DELETE /clusters/*"), _fail_a_start, boot=(1, 1)),
    Moment("delete sent", held("DELETE /clusters/*"), hold("DELETE /clusters/*"), verb="destroy", first_up=True),
    Moment("delete half done", done("DELETE /clusters/*"), _refuse_half, verb="destroy", first_up=True),
    Moment("recovery", held("GET /pods"), hold("GET /pods"), killed_before="order sent, not answered"),
)
MOMENTS = {moment.name: moment for moment in _ALL}
