"""What an order is about to do, said before it is done.

An intent is durable before the order leaves and is closed once the engine's state is known to hold the cluster, or once
nothing exists. Between the two, whoever finds it can settle it: adopt the cluster, or delete it (design 3.7).

This file holds the record and the protocol that the verbs use; the journal on disk is `pulumi_lium.recovery.intents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

Stage = Literal["opened", "sent", "answered", "listed", "removing"]
"""How far an order is known to have come.

`opened`: nothing has left this machine. `sent`: the request may have reached the service. `answered`: the service named
the pods. `listed`: the members and their cluster id were seen in the listing. `removing`: no state holds the cluster,
and its removal has begun.
"""


@dataclass(frozen=True)
class Intent:
    """One order of one cluster. Holds no secret: the account is a name, the keys in the body are public ones."""

    owner: str
    """`organization/project/stack/resource`."""
    pod_name: str
    """Exact name of every member; by it alone a cluster counts as this intent's."""
    idempotency_key: str
    base_url: str
    """The service it was sent to; an intent is settled only there."""
    account: str | None
    nodes: int
    price_per_hour: float | None
    """USD for the whole cluster, as planned."""
    opened_at: datetime
    stage: Stage = "opened"
    sent_at: datetime | None = None
    """When the order last left; from then on it may still arrive for a while (contract 4.8)."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The order exactly as sent, so that the same key can be sent again with the same body (contract 4.8)."""
    snapshot: tuple[str, ...] = ()
    """Cluster ids that were listed before the order: none of them is this one (contract 5.2 step 5)."""
    ttl_seconds: int | None = None
    """Span from the order to the removal that was asked for; None when there is no such limit."""
    fabric_id: str | None = None
    fabric_type: str | None = None
    """Of the machines ordered: a running cluster does not tell its fabric."""
    holder: Mapping[str, str | None] | None = None
    """Account and workspace that the key acted for (`holder.py`): with another key a listing says nothing.

    Empty where the order is known from a record that ought to tell it and does not (a state of an older version).
    """
    pod_ids: tuple[str, ...] = ()
    cluster_id: str | None = None


class IntentLog(Protocol):
    """Where intents live. Every writing call returns only when the change would survive the end of this process."""

    def open(self, intent: Intent) -> None:
        """Keeps a new intent and holds it as this process's own."""

    def note(self, intent: Intent) -> None:
        """Replaces the open intent that has the same idempotency key."""

    def close(self, idempotency_key: str) -> None:
        """Forgets an intent: the engine's state holds its cluster, or nothing exists. Unknown keys are no error."""

    def close_cluster(self, cluster_id: str) -> None:
        """Forgets the intent of a cluster that the engine has in its state, since it asked about that id."""

    def claim_abandoned(self, owner: str | None = None) -> list[Intent]:
        """Open intents whose process is gone (of one owner, or of all), oldest first; from now on they are ours.

        Two processes never get the same one. What is neither closed nor released stays with this process until it ends.
        Raises `LiumError` naming the file when a record cannot be read: an unreadable intent is never "no intent".
        """

    def release(self, idempotency_key: str) -> None:
        """Leaves a claimed intent open for another process to settle."""

    def held_elsewhere(self, owner: str) -> list[Intent]:
        """Open intents of an owner that another living process holds: it is at work on them."""

    def abandoned(self) -> list[Intent]:
        """Open intents that no living process holds, this one included, oldest first; claims none."""


class NullIntents:
    """Keeps nothing: for a look at the service in which no order is sent."""

    def open(self, intent: Intent) -> None: ...

    def note(self, intent: Intent) -> None: ...

    def close(self, idempotency_key: str) -> None: ...

    def close_cluster(self, cluster_id: str) -> None: ...

    def claim_abandoned(self, owner: str | None = None) -> list[Intent]:
        return []

    def release(self, idempotency_key: str) -> None: ...

    def held_elsewhere(self, owner: str) -> list[Intent]:
        return []

    def abandoned(self) -> list[Intent]:
        return []
