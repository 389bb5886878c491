"""The market: hosts, fabrics, offers, orders, pods, accounts and the ledger, as one deterministic state machine.

Time is a parameter (epoch seconds): `advance_to(t)` lets everything happen that is due by then, and the verbs act at
`market.now`. Every random choice, ids included, comes from the scenario's seed. The same calls give the same answers.

    load_scenario(source: str | dict | None) -> Scenario        # scenario.py; None = built-in, str = YAML or JSON text
    Market(scenario, start: float, *, track_changes=False)
    .now, .scenario, .settings, .revision                       # revision grows with every durable change
    .advance_to(t) ; .next_due() -> float | None
    .snapshot() -> dict ; Market.restore(d, track_changes=False)
    .take_changes() -> {"meta": …, "put": {table: {id: record}}, "drop": {table: [id]}} | None
    .note_clock()                                               # a moved virtual clock is itself a change to be stored
    .state() ; .apply_event(event) ; .load_measurements(report) # control plane; EventError, MeasurementError are
    ValueErrors

The API verbs take the X-API-KEY header's text (None or "" where there is none) and JSON-like dicts. They answer plain
JSON-able values that the caller must not change (rows are shared between answers), or raise `Refusal`, whose
`.envelope(request_id)` is the body. The two order verbs answer `Reply(body, headers, committed)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from . import catalogue, events, idempotency, measurements, orders, removals, transitions, view
from .accounts import ApiKey, Workspace
from .idempotency import Reply
from .refusal import Refusal, not_found
from .scenario import MarketSettings, Scenario, load_scenario
from .state import DEBIT_SECONDS, State
from .wire import iso, usd

__all__ = ["DEBIT_SECONDS", "Market", "Refusal", "Reply", "load_scenario"]

VERSION = "2026.11.3"
SCOPES = {
    "read": "List machines, pods, templates and keys",
    "rent": "Rent machines and clusters, and delete what this key rented",
    "manage": "Change and delete whatever the account or workspace has",
    "billing": "Add funds; stands alone on its key",
}


class Market:
    """One market. See the module's text; `track_changes` keeps what `take_changes` answers."""

    def __init__(self, scenario: Scenario, start: float, *, track_changes: bool = False) -> None:
        self._state = State(scenario, start, track=track_changes)

    @classmethod
    def restore(cls, snapshot: Mapping[str, Any], *, track_changes: bool = False) -> Market:
        """The market that `snapshot` (or the records of `take_changes`, put together) describes, exactly."""
        tables = snapshot["tables"]
        scenario = load_scenario(tables["scenario"]["scenario"])
        market = cls(scenario, snapshot["meta"]["start"], track_changes=track_changes)
        market._state.load(snapshot["meta"], tables)
        return market

    # Time and storage -----------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self._state.now

    @property
    def scenario(self) -> Scenario:
        return self._state.scenario

    @property
    def settings(self) -> MarketSettings:
        return self._state.settings

    @property
    def revision(self) -> int:
        return self._state.revision

    def next_due(self) -> float | None:
        """When the next transition, debit or event is due (it may be now); None when nothing is."""
        state = self._state
        due = min(transitions.next_on_agenda(state), state.debit_at, state.event_at)
        return due if due < inf else None

    def advance_to(self, at: float) -> None:
        """Let everything happen that is due by `at`, in order of time; at one moment debits come first, then pods, then
        events. A time before `now` changes nothing: the market's time never runs back."""
        transitions.advance(self._state, at)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON-able data."""
        return self._state.snapshot()

    def take_changes(self) -> dict[str, Any] | None:
        """The records that changed since the last call; None when none did. Needs `track_changes`."""
        return self._state.take_changes()

    def note_clock(self) -> None:
        """Let the next `take_changes` answer the time even if nothing else has changed."""
        self._state.note_meta()

    # Control plane --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The whole market, for `GET /_emulator/state`."""
        return view.view(self._state)

    def apply_event(self, event: Mapping[str, Any]) -> None:
        """Let an event happen now. Raises EventError, and then nothing has changed."""
        events.apply(self._state, events.parse_event(event, scheduled=False))

    def load_measurements(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the proof of the RoCE fabrics that a verification report speaks of. Raises MeasurementError."""
        return measurements.load_measurements(self._state, report)

    def identify(self, api_key: str | None) -> str | None:
        """The id of a key, for the journal; None for no key or an unknown one."""
        key = self._state.key_by_text.get(api_key or "")
        return key.id if key else None

    def account_of(self, api_key: str | None) -> str | None:
        """Whose pods a key sees, as one name; None for no key or an unknown one."""
        key = self._state.key_by_text.get(api_key or "")
        return key.tenant_name if key else None

    def listings(self) -> dict[str, list[dict[str, Any]]]:
        """What `GET /pods` says now, by `account_of`; counts against no rate limit."""
        return {name: tenant.listing(self.now) for name, tenant in self._state.tenants.items()}

    def fabrics_on_sale(self) -> list[dict[str, Any]]:
        """What `GET /executors/infiniband-clusters` says now, in the scenario's order."""
        return [offer for group in self._state.groups if (offer := group.offer()) is not None]

    def hold_idempotency_key(self, api_key: str | None, idempotency_key: str) -> None:
        """The first request with this key is under way: others with it are told so until it is released."""
        key = self._state.key_by_text.get(api_key or "")
        if key is not None and f"{key.account.id}:{idempotency_key}" not in self._state.tables.orders:
            idempotency.remember(self._state, key.account.id, idempotency_key, None)

    def release_idempotency_key(self, api_key: str | None, idempotency_key: str) -> None:
        """The request that held the key goes on now. A known outcome stays known."""
        key = self._state.key_by_text.get(api_key or "")
        if key is not None:
            idempotency.release(self._state, key.account.id, idempotency_key)

    # Keys -----------------------------------------------------------------------------------------------------------

    def _key(self, api_key: str | None, scope: str) -> ApiKey:
        """Who calls, with the scope it needs. Raises 401, 403."""
        key = self._state.key_by_text.get(api_key or "")
        if key is None:
            raise Refusal(401, "invalid_api_key", "Invalid API key", hint="Send a valid key in X-API-KEY")
        if scope not in key.scopes:
            key.require(scope)
        return key

    def _maybe_key(self, api_key: str | None) -> ApiKey | None:
        """Who calls a route that answers without a key too; a wrong key is still refused."""
        return self._key(api_key, "read") if api_key else None

    # Without a key --------------------------------------------------------------------------------------------------

    def version(self) -> dict[str, Any]:
        """Version and features (contract 4.1)."""
        return {"version": VERSION, "features": ["rent_idempotency"] if self.settings.idempotency else []}

    def key_scopes(self) -> list[dict[str, Any]]:
        """Scopes that a key can have (contract 1.2)."""
        return [
            {"scope": scope, "title": scope.capitalize(), "description": text, "default": scope != "billing"}
            for scope, text in SCOPES.items()
        ]

    def executors(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Hosts that rent as ordinary pods (contract 4.5)."""
        return catalogue.list_executors(self._state, query)

    def templates(self, api_key: str | None) -> list[dict[str, Any]]:
        """Templates that the caller sees (contract 4.4)."""
        key = self._maybe_key(api_key)
        return catalogue.list_templates(self._state, key.account.id if key else None)

    # Reading --------------------------------------------------------------------------------------------------------

    def machines(self) -> list[dict[str, Any]]:
        """GPU models (contract 4.6)."""
        return catalogue.list_machines(self._state)

    def me(self, api_key: str | None) -> dict[str, Any]:
        """The key's user; `workspace` only for a key that acts inside one (contract 4.2)."""
        key = self._key(api_key, "read")
        me: dict[str, Any] = {
            "id": key.account.id,
            "email": key.account.spec.email,
            "balance": usd(key.payer.balance),
            "stripe_customer_id": None,
        }
        if key.workspace is not None:
            me["workspace"] = {**self._workspace(key, key.workspace), "is_personal": False}
        return me

    def workspaces(self, api_key: str | None) -> list[dict[str, Any]]:
        """The workspace that the key acts in (contract 4.12)."""
        key = self._key(api_key, "read")
        return [self._workspace(key, key.workspace)] if key.workspace else []

    def get_workspace(self, api_key: str | None, workspace_id: str) -> dict[str, Any]:
        """One workspace; 404 unless it is the key's own."""
        key = self._key(api_key, "read")
        return self._workspace(key, self._own_workspace(key, workspace_id))

    def workspace_members(self, api_key: str | None, workspace_id: str) -> list[dict[str, Any]]:
        """Members of the key's own workspace."""
        place = self._own_workspace(self._key(api_key, "read"), workspace_id)
        return [
            {
                "user_id": member,
                "name": member,
                "email": self._state.tables.accounts[member].spec.email,
                "role": "owner" if member == place.owner else "member",
                "is_billing_owner": member == place.owner,
                "joined_at": iso(place.created_at),
            }
            for member in place.members
        ]

    @staticmethod
    def _own_workspace(key: ApiKey, workspace_id: str) -> Workspace:
        if key.workspace is None or key.workspace.id != workspace_id:
            raise not_found("Workspace")
        return key.workspace

    @staticmethod
    def _workspace(key: ApiKey, place: Workspace) -> dict[str, Any]:
        return {
            "id": place.id,
            "name": place.name,
            "role": "owner" if key.account.id == place.owner else "member",
            "billing_owner_user_id": place.owner,
            "pending_billing_owner_user_id": None,
            "created_at": iso(place.created_at),
        }

    def get_template(self, api_key: str | None, template_id: str) -> dict[str, Any]:
        """One template (contract 4.4)."""
        key = self._maybe_key(api_key)
        return catalogue.get_template(self._state, key.account.id if key else None, template_id)

    def create_template(self, api_key: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """A template of the account's own."""
        return catalogue.create_template(self._state, self._key(api_key, "manage").account.id, body)

    def update_template(self, api_key: str | None, template_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change a template of the account's own."""
        return catalogue.update_template(self._state, self._key(api_key, "manage").account.id, template_id, body)

    def default_docker_images(self, api_key: str | None, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """Images for a rental without a template (contract 4.11)."""
        self._maybe_key(api_key)
        return catalogue.default_docker_images(self._state)

    def deployment_estimate(self, api_key: str | None, query: Mapping[str, str]) -> dict[str, Any]:
        """How long a start takes."""
        key = self._maybe_key(api_key)
        return catalogue.deployment_estimate(self._state, key.account.id if key else None, query)

    def quote(self, api_key: str | None, executor_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        """What a rental costs."""
        return catalogue.quote(self._state, self._key(api_key, "read"), executor_id, query)

    def ssh_keys(self, api_key: str | None) -> list[dict[str, Any]]:
        """Registered SSH keys (contract 4.3)."""
        return catalogue.list_ssh_keys(self._state, self._key(api_key, "read").tenant_name)

    def create_ssh_key(self, api_key: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """Register an SSH key; whoever may rent may."""
        return catalogue.create_ssh_key(self._state, self._key(api_key, "rent").tenant_name, body)

    def volumes(self, api_key: str | None) -> list[dict[str, Any]]:
        """Volumes; there are none here (contract 4.13)."""
        self._key(api_key, "read")
        return []

    def offers(self, api_key: str | None) -> list[dict[str, Any]]:
        """Fabrics on sale (contract 4.7, 7.1), in the scenario's order."""
        self._key(api_key, "read")
        return self.fabrics_on_sale()

    def list_pods(self, api_key: str | None, query: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Pods of the key's account or workspace, in no order that means anything (contract 4.9)."""
        key = self._key(api_key, "read")
        state = self._state
        if state.rate_limit:
            key.account.admit_listing(state.now)
        rows = key.tenant.listing(state.now)
        wanted = query.get("api_key_id") if query else None
        return [row for row in rows if row["api_key_id"] == wanted] if wanted else rows

    def get_pod(self, api_key: str | None, pod_id: str) -> dict[str, Any]:
        """One pod with its last event."""
        pod = removals.find_pod(self._state, self._key(api_key, "read"), pod_id)
        row = pod.row(self._state.now)
        return {**row, "executor": {**row["executor"], "disk_health_ok": True}, "last_event": pod.events()[-1]}

    def pod_events(self, api_key: str | None, pod_id: str) -> list[dict[str, Any]]:
        """What happened to a pod, oldest first; deleted pods too."""
        return removals.find_pod(self._state, self._key(api_key, "read"), pod_id, gone=True).events()

    def pod_logs(self, api_key: str | None, pod_id: str) -> str:
        """The pod's log: its history, a line each."""
        pod = removals.find_pod(self._state, self._key(api_key, "read"), pod_id)
        return "".join(f"{event['created_at']} {event['to_status']}\n" for event in pod.events())

    # Acting ---------------------------------------------------------------------------------------------------------

    def order_cluster(
        self,
        api_key: str | None,
        body: Mapping[str, Any],
        idempotency_key: str | None = None,
        *,
        lose_outcome: bool = False,
    ) -> Reply:
        """Rent all hosts of an order, or none (contract 4.8). With `lose_outcome` the market acts, and the answer is
        not kept under the key."""
        key = self._key(api_key, "rent")
        return orders.order_cluster(self._state, key, body, idempotency_key, lose_outcome)

    def rent_host(
        self,
        api_key: str | None,
        executor_id: str,
        body: Mapping[str, Any],
        idempotency_key: str | None = None,
        *,
        lose_outcome: bool = False,
    ) -> Reply:
        """Rent one host, or some of its GPUs (contract 4.11)."""
        key = self._key(api_key, "rent")
        return orders.rent_host(self._state, key, executor_id, body, idempotency_key, lose_outcome)

    def delete_cluster(self, api_key: str | None, cluster_id: str) -> dict[str, Any]:
        """Delete every member of a cluster (contract 4.10, 7.5)."""
        return removals.delete_cluster(self._state, self._acting_key(api_key), cluster_id)

    def delete_pod(self, api_key: str | None, pod_id: str) -> dict[str, Any]:
        """Delete one pod."""
        return removals.delete_pod(self._state, self._acting_key(api_key), pod_id)

    def reboot_pod(self, api_key: str | None, pod_id: str) -> dict[str, Any]:
        """Start a pod anew."""
        return removals.reboot_pod(self._state, self._acting_key(api_key), pod_id)

    def schedule_removal(self, api_key: str | None, pod_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Set the time of a pod's removal (contract 7.6)."""
        return removals.schedule_removal(self._state, self._acting_key(api_key), pod_id, body)

    def cancel_removal(self, api_key: str | None, pod_id: str) -> dict[str, Any]:
        """Forget the time of a pod's removal."""
        return removals.cancel_removal(self._state, self._acting_key(api_key), pod_id)

    def _acting_key(self, api_key: str | None) -> ApiKey:
        """Who calls a route that needs no scope of its own: `manage` only for what the key did not make (contract
        1.2)."""
        key = self._state.key_by_text.get(api_key or "")
        if key is None:
            self._key(api_key, "manage")
            raise AssertionError("an unknown key was let through")
        return key
