"""The service as the simulated processes meet it: the market, and what goes wrong on the way to it.

Whatever is ordered through here with our key is ours, and everything else is foreign: that is the ground truth which
the invariants compare the lifecycle with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pulumi_lium.emulator.events import EventError
from pulumi_lium.emulator.market import Market, Refusal

from .clock import VirtualClock
from .points import Killed, Points

LATENCY = 0.1
"""Seconds that an exchange takes."""
OURS, OTHER = "sk_ours", "sk_other"
BILLS = frozenset({"PENDING", "RUNNING", "REBOOT_PENDING", "REBOOT_FAILED"})
"""Statuses that bill, or will by themselves (contract 3.3)."""
FIRST_HOSTS = ("a1", "a2")
FOREIGN_HOSTS = ("f1", "f2", "f3", "f4", "f5", "f6")


@dataclass(frozen=True)
class Fault:
    """What happens to the requests of this `label` in one step, after the first `skip` of them, `times` times.

    To the exchange: `refused` (never sent), `drop` (not done, no answer), `lost` (done, no answer), `503` (not done),
    `504` (done, and known under the key), `500` (done, and forgotten under the key), `html` (done, answer unreadable),
    `429` (`value` is Retry-After), `401`, `402`, `403`, `404` (not done), `slow` (an order that is done `value`
    seconds after its caller was told 504). In the market, before the request: an event's name, `rival` (others take
    the machines), `namesake` (a foreign cluster with a name like ours appears).
    On a journal write (`open`, `note`, `close`): `before` or `after` the change.
    """

    label: str
    kind: str
    skip: int = 0
    times: int = 1
    value: float = 0.0


class Reply(NamedTuple):
    """An answer: the JSON document, or None with `page` where it is none."""

    status: int
    document: Any
    headers: Mapping[str, str]
    page: bool = False


class Cut(Exception):
    """No answer. `sent`: the request may have reached the service."""

    def __init__(self, sent: bool) -> None:
        super().__init__(sent)
        self.sent = sent
        self.error = ConnectionResetError if sent else ConnectionRefusedError


@dataclass
class Cluster:
    """A cluster that one of our processes ordered. `known`: the journal that its intent was written to still exists."""

    id: str
    name: str
    resource: str
    pods: tuple[str, ...]
    at: float
    """When the service carried the order out, epoch seconds; `removed_at`: when it first accepted its removal."""
    known: bool = True
    removed_at: float | None = None


@dataclass
class _Late:
    """An order on its way: it reaches the service at `due`."""

    due: float
    body: dict[str, Any]
    key: str | None
    resource: str
    disks: int


@dataclass
class Counts:
    """What must never happen, counted where it happens."""

    foreign: int = 0
    doubles: int = 0
    owned: int = 0
    notes: list[str] = field(default_factory=list)


class Network:
    """Exchanges with one market. `lag`: seconds until a new pod is listed (contract 5.4: within 6)."""

    def __init__(self, market: Market, clock: VirtualClock, points: Points, *, lag: float, say: Callable[..., None]):
        self.market, self.clock, self.points = market, clock, points
        self.counts = Counts()
        self.ours: dict[str, Cluster] = {}
        self.our_pods: dict[str, Cluster] = {}
        self.resource = ""
        """Whose verb runs now."""
        self.key = OURS
        """The key of the command that is running."""
        self.held: frozenset[str] = frozenset()
        """Clusters that a command must leave alone, as the state holds them."""
        self.unnoted = False
        """A note of the journal was lost: what it says last may be older than what the state says."""
        self.disks = 1
        """How many disks there have been: the intent of an order is on the one of its time."""
        self._busy = False
        self._lag, self._say = lag, say
        self._listed_from: dict[str, float] = {}
        self._late: list[_Late] = []
        self._faults: list[list[Any]] = []

    def begin(self, faults: tuple[Fault, ...]) -> None:
        """A step begins, with faults of its own."""
        self._faults = [[fault, 0] for fault in faults]

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def exchange(self, method: str, path: str, body: Any, idempotency_key: str | None) -> Reply:
        """One request to its end. Raises `Cut` and `Killed`."""
        segments = path.split("/")[1:]
        label = _label(method, segments)
        late = self.points.enter(label)
        self.clock.at += LATENCY
        self.arrive()
        if late is not None:
            self._send_late(body, idempotency_key, late.delay)
            raise Killed
        fault = self._next_fault(label)
        kind = fault.kind if fault else ""
        reply = self._answer(kind, fault, label, method, segments, body, idempotency_key)
        if self._say:
            self._say(f"{method} {path} -> {reply.status if isinstance(reply, Reply) else 'no answer'} {kind}")
        self.points.leave()
        if isinstance(reply, Cut):
            raise reply
        return reply

    def _answer(
        self, kind: str, fault: Fault | None, label: str, method: str, segments: list[str], body: Any, key: str | None
    ) -> Reply | Cut:
        if kind in ("refused", "drop"):
            return Cut(sent=kind == "drop")
        if kind in _NOT_DONE:
            headers = {"retry-after": str(int(fault.value))} if fault and kind == "429" and fault.value else {}
            return _refused(int(kind), f"fault_{kind}", headers)
        if kind == "slow" and label == "order" and fault:
            self._send_late(body, key, fault.value)
            return _refused(504, "gateway_timeout", {})
        if fault and kind not in _DONE:
            self._event(fault)
        reply = self._act(label, method, segments, body, key, lose_outcome=kind == "500")
        if kind in ("504", "500"):
            return _refused(int(kind), f"fault_{kind}", {})
        if kind == "lost":
            return Cut(sent=True)
        if kind == "html":
            return Reply(200, None, {}, page=True)
        return reply

    def _act(self, label: str, method: str, segments: list[str], body: Any, key: str | None, **how: Any) -> Reply:
        market = self.market
        market.advance_to(self.clock.at)
        if method != "GET" and label != "order":
            self._note_foreign(segments)
        try:
            if label == "list":
                return Reply(200, self._listing(), {})
            if label == "order":
                return self._order(_Late(self.clock.at, body, key, self.resource, self.disks), **how)
            return Reply(200, _SERVE[label](market, self.key, segments, body), {})
        except Refusal as refusal:
            headers = {name.lower(): value for name, value in refusal.headers.items()}
            return Reply(refusal.status, refusal.envelope("req-1"), headers)

    def _listing(self) -> list[dict[str, Any]]:
        rows = self.market.list_pods(self.key)
        if self._lag and self._listed_from:
            now = self.clock.at
            self._listed_from = {pod: at for pod, at in self._listed_from.items() if at > now}
            rows = [row for row in rows if row["id"] not in self._listed_from]
        return rows

    def _order(self, sent: _Late, lose_outcome: bool = False) -> Reply:
        resource, body = sent.resource, sent.body
        others = [cluster for cluster in self.ours.values() if cluster.resource == resource and self.bills(cluster.id)]
        reply = self.market.order_cluster(OURS, body, sent.key, lose_outcome=lose_outcome)
        if reply.committed:
            pods = tuple(reply.body["pod_ids"])
            cluster_id = self.market.get_pod(OURS, pods[0])["cluster_id"]
            cluster = Cluster(cluster_id, body["pod_name"], resource, pods, sent.due, known=sent.disks == self.disks)
            self.ours[cluster_id] = cluster
            for place, pod in enumerate(pods):
                self.our_pods[pod] = cluster
                if self._lag:
                    self._listed_from[pod] = sent.due + self._lag * (place + 1) / len(pods)
            for other in others:
                if other.known and cluster.known:
                    self.counts.doubles += 1
                    self.counts.notes.append(f"{cluster.name} ordered while {other.name} of {resource} bills")
        return Reply(200, reply.body, {name.lower(): text for name, text in reply.headers.items()})

    def _note_foreign(self, segments: list[str]) -> None:
        known = self.ours if segments[0] == "clusters" else self.our_pods
        if segments[1] not in known:
            self.counts.foreign += 1
            self.counts.notes.append(f"a write to {'/'.join(segments)}, which is not ours")
        elif segments[0] == "clusters" and self.key == OURS and self.ours[segments[1]].removed_at is None:
            self.ours[segments[1]].removed_at = self.clock.at
        if segments[1] in self.held:
            self.counts.owned += 1
            self.counts.notes.append(f"a command removes {segments[1]}, which the state holds")

    # -- orders on their way -------------------------------------------------------------------------------------------

    def _send_late(self, body: dict[str, Any], key: str | None, delay: float) -> None:
        if key:
            self.market.hold_idempotency_key(OURS, key)
        self._late.append(_Late(self.clock.at + delay, body, key, self.resource, self.disks))

    def arrive(self) -> None:
        """Lets what is due by now reach the service."""
        while self._late:
            late = min(self._late, key=lambda one: one.due)
            if late.due > self.clock.at:
                return
            self._late.remove(late)
            self.market.advance_to(late.due)
            if late.key:
                self.market.release_idempotency_key(OURS, late.key)
            try:
                self._order(late)
            except Refusal:
                continue
            if self._say:
                self._say(f"an order arrives late: {late.body['pod_name']}")

    def last_arrival(self) -> float:
        """When everything that was ever sent has reached the service."""
        return max((late.due for late in self._late), default=self.clock.at)

    # -- faults and events ---------------------------------------------------------------------------------------------

    def _next_fault(self, label: str) -> Fault | None:
        for entry in self._faults:
            fault: Fault = entry[0]
            if fault.label not in (label, "any"):
                continue
            entry[1] += 1
            if fault.skip < entry[1] <= fault.skip + fault.times:
                return fault
        return None

    def journal_failure(self, label: str) -> str | None:
        """How the next write of the journal fails."""
        if not self._faults:
            return None
        fault = self._next_fault(label)
        self.unnoted |= fault is not None and label == "note"
        return fault.kind if fault else None

    def _event(self, fault: Fault) -> None:
        self.market.advance_to(self.clock.at)
        live = [cluster for cluster in self.ours.values() if self.bills(cluster.id)]
        if fault.kind == "rival":
            event: dict[str, Any] = {"event": "rival_order", "fabric": "ib", "nodes": 2}
        elif fault.kind == "namesake":
            name = next(reversed(self.ours.values())).name if self.ours else "train"
            self.add_foreign((f"{name}0", name[:-1], f"0{name}")[int(fault.value)])
            return
        elif not live or (fault.kind == "pod_stuck" and not self.market.settings.cancel_in_flight_creates):
            return  # a start that never ends and may not be cancelled could never be removed by anybody
        elif fault.kind == "machine_lost":
            pod = self.market.list_pods(OURS)[0]
            if pod["id"] not in self.our_pods:
                return
            event = {"event": "machine_lost", "host": pod["executor"]["id"]}
        else:
            event = {"event": fault.kind, "cluster": live[0].id, "rank": int(fault.value), "times": 2}
            if fault.kind != "refuse_delete":
                del event["times"]
        try:
            self.market.apply_event(event)
        except EventError:
            return

    def others(self, busy: bool) -> None:
        """Others take, or leave, what they can of the two machines that an order of ours would take first."""
        if busy != self._busy:
            self._busy = busy
            self.arrive()
            self.market.advance_to(self.clock.at)
            for host in FIRST_HOSTS:
                self.market.apply_event({"event": "machine_taken" if busy else "machine_freed", "host": host})

    def add_foreign(self, name: str, key: str = OURS, dead: bool = False) -> None:
        """A cluster of somebody else: of another stack with our account, or of another account. A dead one has run and
        failed; its rows stay."""
        free = [
            host for offer in self.market.fabrics_on_sale() for host in offer["nodes"] if host["id"] in FOREIGN_HOSTS
        ]
        if len(free) >= 2:
            template = self.market.templates(key)[0]["id"]
            body = {
                "pod_name": name,
                "template_id": template,
                "executor_uuids": [free[0]["id"], free[1]["id"]],
                "user_public_key": ["ssh-ed25519 AAAA other"],
            }
            reply = self.market.order_cluster(key, body)
            if dead:
                self.market.advance_to(self.market.now + 60)
                for pod in reply.body["pod_ids"]:
                    self.market.apply_event({"event": "pod_fails", "pod": pod})

    # -- ground truth --------------------------------------------------------------------------------------------------

    def bills(self, cluster_id: str) -> bool:
        """Whether any member bills, or will."""
        cluster = self.ours[cluster_id]
        return any(row["id"] in cluster.pods and row["status"] in BILLS for row in self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return self.market.list_pods(OURS)

    def billing(self) -> dict[str, Cluster]:
        """Our clusters of which a member bills, or will, by id."""
        found = {}
        for row in self._rows():
            cluster = self.our_pods.get(row["id"])
            if cluster is not None and row["status"] in BILLS:
                found[cluster.id] = cluster
        return found


_NOT_DONE = frozenset({"503", "429", "401", "402", "403", "404"})
_DONE = frozenset({"504", "500", "lost", "html"})


def _refused(status: int, code: str, headers: Mapping[str, str]) -> Reply:
    document = {"success": False, "error": {"code": code, "message": code, "hint": None, "request_id": "req-0"}}
    return Reply(status, document, headers)


def _label(method: str, segments: list[str]) -> str:
    if method == "POST":
        return "order" if segments[0] == "executors" else "ttl"
    if method == "DELETE":
        return "delete" if segments[0] == "clusters" else "delete_pod" if len(segments) == 2 else "untime"
    if segments[0] == "pods":
        return "list" if len(segments) == 1 else "get" if len(segments) == 2 else "events"
    return {"executors": "offers", "templates": "templates", "version": "version", "users": "me"}[segments[0]]


_SERVE: dict[str, Callable[[Market, str, list[str], Any], Any]] = {
    "offers": lambda market, key, segments, body: market.offers(key),
    "templates": lambda market, key, segments, body: market.templates(key),
    "version": lambda market, key, segments, body: market.version(),
    "me": lambda market, key, segments, body: market.me(key),
    "get": lambda market, key, segments, body: market.get_pod(key, segments[1]),
    "events": lambda market, key, segments, body: market.pod_events(key, segments[1]),
    "delete": lambda market, key, segments, body: market.delete_cluster(key, segments[1]),
    "delete_pod": lambda market, key, segments, body: market.delete_pod(key, segments[1]),
    "ttl": lambda market, key, segments, body: market.schedule_removal(key, segments[1], body),
    "untime": lambda market, key, segments, body: market.cancel_removal(key, segments[1]),
}
