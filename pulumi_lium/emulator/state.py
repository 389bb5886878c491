"""State: the market's tables, the indexes over them, and what has changed since it was last stored."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from .accounts import Account, ApiKey, Tenant, Workspace
from .catalogue import SshKey, Template
from .fabrics import Fabric, FabricGroup
from .hosts import Host
from .idempotency import OrderRecord
from .ledger import LedgerRow
from .pods import BILLED, LEAVE, READY, REMOVE, Pod
from .records import Record
from .scenario import Provider, Scenario
from .seeded import Seeded

DEBIT_SECONDS = 300.0


@dataclass(slots=True, eq=False, repr=False)
class Cluster(Record):
    """An accepted cluster order. Its members are the pods that carry its id."""

    id: str
    name: str
    account: str
    tenant: str
    fabric_id: str
    created_at: float


@dataclass(slots=True)
class Tables:
    """Everything that is stored, apart from the few values in `State.meta`."""

    hosts: dict[str, Host] = field(default_factory=dict)
    fabrics: dict[str, Fabric] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    workspaces: dict[str, Workspace] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    ssh_keys: dict[str, SshKey] = field(default_factory=dict)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    ledger: dict[str, LedgerRow] = field(default_factory=dict)


# Tables whose rows come from the scenario (their stored part is laid over it), and tables whose rows are made in the
# market.
FROM_SCENARIO = ("hosts", "fabrics", "accounts", "keys")
MADE: dict[str, type[Record]] = {
    "workspaces": Workspace,
    "templates": Template,
    "ssh_keys": SshKey,
    "clusters": Cluster,
    "pods": Pod,
    "orders": OrderRecord,
    "ledger": LedgerRow,
}


class State:
    """All of the market. `track` keeps the names of changed records for `take_changes`."""

    def __init__(self, scenario: Scenario, start: float, *, track: bool) -> None:
        self.scenario = scenario
        self.settings = scenario.settings
        self.rate_limit = scenario.settings.rate_limit
        self.boot_seconds = scenario.boot.seconds
        self.start = start
        self.now = start
        self.seeded = Seeded(scenario.seed)
        self.seq = 0
        self.debits = 1
        self.events_done = 0
        self.armed: list[dict[str, Any]] = []
        self.events_failed: list[dict[str, Any]] = []
        self.revision = 0
        self.tables = Tables()
        self.key_by_text: dict[str, ApiKey] = {}
        self.tenants: dict[str, Tenant] = {}
        self.members: dict[str, dict[str, Pod]] = {}
        self.billing: dict[str, Pod] = {}
        self.groups: list[FabricGroup] = []
        self.agenda: list[tuple[float, int, int, Pod]] = []
        self.agenda_limit = 256
        self.events = sorted(
            ((start + float(raw["at_s"]), i, raw) for i, raw in enumerate(scenario.events)), key=lambda due: due[:2]
        )
        # When the next debit and the next event are due. With the agenda's head, all that time has to look at.
        self.debit_at = self.event_at = inf
        self.plan_event()
        self.track = track
        self._changed: dict[str, set[str]] = {}
        self._dropped: set[tuple[str, str]] = set()
        self._meta_changed = False
        self._build()

    # Construction ---------------------------------------------------------------------------------------------------

    def next_seq(self) -> int:
        """The next record's place in the order of creation."""
        self.seq += 1
        return self.seq

    def _build(self) -> None:
        tables = self.tables
        for provider in self.scenario.providers:
            self._build_provider(provider)
        for account in self.scenario.accounts:
            tables.accounts[account.id] = Account(self.next_seq(), account)
        for account in self.scenario.accounts:
            for key in account.keys:
                workspace = self._workspace(key.workspace, account.id) if key.workspace else None
                tenant = f"workspace:{workspace.name}" if workspace else f"account:{account.id}"
                record = ApiKey(
                    self.next_seq(),
                    key,
                    tables.accounts[account.id],
                    tables.accounts[workspace.owner if workspace else account.id],
                    self.tenants.setdefault(tenant, Tenant()),
                    tenant,
                    workspace,
                    id=key.id or self.seeded.uuid(),
                )
                tables.keys[record.id] = record
                self.key_by_text[key.key] = record
        for template in self.scenario.templates:
            made = Template.from_scenario(self.next_seq(), template.id or self.seeded.uuid(), template)
            tables.templates[made.id] = made

    def _build_provider(self, provider: Provider) -> None:
        tables = self.tables
        hosts = []
        for spec in provider.hosts:
            free = spec.gpu_count if spec.free_gpus is None else spec.free_gpus
            host = Host(self.next_seq(), spec, provider, taken=spec.gpu_count - (free if spec.free else 0))
            tables.hosts[host.id] = host
            hosts.append(host)
        for wire in provider.fabrics:
            fabric = Fabric(self.next_seq(), wire, provider)
            tables.fabrics[fabric.id] = fabric
            members = [host for host in hosts if host.spec.fabric == wire.name]
            fabric.addresses(members)
            alike: dict[tuple[str, int], list[Host]] = {}
            for host in members:
                alike.setdefault((host.spec.gpu_model, host.spec.gpu_count), []).append(host)
            fabric.groups = [FabricGroup(fabric, group) for group in alike.values()]
            self.groups += fabric.groups

    def _workspace(self, name: str, account: str) -> Workspace:
        workspace = next((known for known in self.tables.workspaces.values() if known.name == name), None)
        if workspace is None:
            workspace = Workspace(self.next_seq(), name, self.seeded.uuid(), account, [account], self.start)
            self.tables.workspaces[workspace.id] = workspace
        elif account not in workspace.members:
            workspace.members.append(account)
        return workspace

    # Pods and their indexes -----------------------------------------------------------------------------------------

    def add_pod(self, pod: Pod) -> None:
        """Take a new pod into every index."""
        self.tables.pods[pod.id] = pod
        self.index_pod(pod)
        self.touch_pod(pod)

    def index_pod(self, pod: Pod) -> None:
        """Put a listed pod where it is looked for."""
        name, tables = pod.id, self.tables
        host = pod.host = tables.hosts[pod.host_id]
        key = pod.key = tables.keys[pod.key_id]
        if pod.gone_at is not None:
            return
        key.tenant.pods[name] = key.payer.open_pods[name] = key.open_pods[name] = pod
        if pod.cluster_id is not None:
            self.members.setdefault(pod.cluster_id, {})[name] = pod
        if not pod.vacated:
            host.hold(pod)
        if pod.status in BILLED:
            self.billing[name] = pod
        if pod.ready_at is not None:
            self.at(pod.ready_at, READY, pod)
        if pod.removal_due is not None:
            self.at(pod.removal_due, REMOVE, pod)
        if pod.leave_at is not None:
            self.at(pod.leave_at, LEAVE, pod)

    def at(self, due: float, kind: int, pod: Pod) -> None:
        """Note that `kind` happens to the pod at `due`; void when the pod's own field says another time by then.

        `seq` tells pods apart, so that two pods are never compared.
        """
        heapq.heappush(self.agenda, (due, pod.seq, kind, pod))
        if len(self.agenda) >= self.agenda_limit:
            self._tidy_agenda()

    def _tidy_agenda(self) -> None:
        """Drop the entries that have become void, whose times may lie years ahead: removals of pods that are gone."""
        self.agenda[:] = [entry for entry in self.agenda if entry[3].awaits(entry[2], entry[0])]
        heapq.heapify(self.agenda)
        self.agenda_limit = 2 * len(self.agenda) + 256

    def plan_debit(self) -> None:
        """What bills has changed, or a debit is done: when is the next? Never while nothing bills."""
        self.debit_at = self.start + DEBIT_SECONDS * self.debits if self.billing else inf

    def plan_event(self) -> None:
        """An event is done: when is the scenario's next, if any?"""
        self.event_at = self.events[self.events_done][0] if self.events_done < len(self.events) else inf

    def touch_pod(self, pod: Pod) -> None:
        """A pod changed: its row and its tenant's listing are rendered anew."""
        pod.row_cache = None
        pod.key.tenant.rows = None
        self.revision += 1
        if self.track:
            self._note("pods", pod.id)

    def members_of(self, cluster_id: str) -> list[Pod]:
        """The listed members of a cluster by rank."""
        return sorted(self.members.get(cluster_id, {}).values(), key=lambda pod: pod.rank or 0)

    # What is stored -------------------------------------------------------------------------------------------------

    def touch(self, table: str, identity: str) -> None:
        """A record changed."""
        self.revision += 1
        if self.track:
            self._note(table, identity)

    def _note(self, table: str, identity: str) -> None:
        self._changed.setdefault(table, set()).add(identity)
        self._dropped.discard((table, identity))

    def drop(self, table: str, identity: str) -> None:
        """A record is no longer needed."""
        self.revision += 1
        if self.track:
            self._changed.get(table, set()).discard(identity)
            self._dropped.add((table, identity))

    def note_meta(self) -> None:
        """What `meta` holds is a change to be stored though no record has changed."""
        self._meta_changed = True

    def meta(self) -> dict[str, Any]:
        """The values outside the tables."""
        return {
            "start": self.start,
            "now": self.now,
            "drawn": self.seeded.drawn,
            "seq": self.seq,
            "debits": self.debits,
            "events_done": self.events_done,
            "armed": list(self.armed),
            "events_failed": list(self.events_failed),
            "revision": self.revision,
        }

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON-able data: `meta`, and `tables` of records by id."""
        tables = {
            name: {key: record.to_record() for key, record in getattr(self.tables, name).items()}
            for name in (*FROM_SCENARIO, *MADE)
        }
        raw = self.scenario.model_dump(mode="json")
        return {"meta": self.meta(), "tables": {"scenario": {"scenario": raw}, **tables}}

    def take_changes(self) -> dict[str, Any] | None:
        """What changed since the last call: `meta`, `put` (table, id, record), `drop` (table, ids). None when nothing
        did."""
        if not self._changed and not self._dropped and not self._meta_changed:
            return None
        put = {
            name: {key: getattr(self.tables, name)[key].to_record() for key in sorted(keys)}
            for name, keys in sorted(self._changed.items())
            if keys
        }
        drop: dict[str, list[str]] = {}
        for name, key in sorted(self._dropped):
            drop.setdefault(name, []).append(key)
        self._changed.clear()
        self._dropped.clear()
        self._meta_changed = False
        return {"meta": self.meta(), "put": put, "drop": drop}

    def load(self, meta: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> None:
        """Lay a snapshot over a state freshly built from the snapshot's own scenario."""
        self.now = meta["now"]
        self.seeded.drawn = meta["drawn"]
        self.seq = meta["seq"]
        self.debits = meta["debits"]
        self.events_done = meta["events_done"]
        self.armed = list(meta["armed"])
        self.events_failed = list(meta["events_failed"])
        for name in FROM_SCENARIO:
            for key, record in tables.get(name, {}).items():
                getattr(self.tables, name)[key].load(record)
        for name, kind in MADE.items():
            table = getattr(self.tables, name)
            table.clear()
            for key, record in sorted(tables.get(name, {}).items(), key=lambda item: item[1]["seq"]):
                table[key] = kind.from_record(record)
        for caller in self.tables.keys.values():
            if caller.workspace is not None:
                caller.workspace = self.tables.workspaces[caller.workspace.id]
        for pod in self.tables.pods.values():
            self.index_pod(pod)
        self.plan_debit()
        self.plan_event()
        for group in self.groups:
            group.stale = True
        self.revision = meta["revision"]
        self._changed.clear()
        self._dropped.clear()
