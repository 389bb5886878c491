"""What every verb needs, handed in: the service, time, randomness, a voice, the intents."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pulumi_lium.api import Clock, LiumApi, Offer, Pod
from pulumi_lium.api.errors import LiumError
from pulumi_lium.api.users import User

from .intents import Intent, IntentLog


class Claims:
    """Which machines the clusters of this process are about to take.

    Two clusters of one program see the same offers: what one has chosen is left out for the others, in previews too.
    The claims are hints; only the order itself reserves.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._ordering = threading.Lock()
        self._machines: dict[str, frozenset[str]] = {}

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Keeps others from choosing between a look at the claims and one's own."""
        with self._guard:
            yield

    @contextmanager
    def ordering(self) -> Iterator[None]:
        """One order at a time: from the look at the offers until the service has answered."""
        with self._ordering:
            yield

    def of_others(self, owner: str) -> frozenset[str]:
        with self._guard:
            return frozenset().union(*(taken for holder, taken in self._machines.items() if holder != owner))

    def claim(self, owner: str, machines: frozenset[str]) -> None:
        with self._guard:
            self._machines[owner] = machines

    def release(self, owner: str) -> None:
        with self._guard:
            self._machines.pop(owner, None)


class Handled:
    """Whose resources this process has handled, and which orders of others it has told of: of each once."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._owners: set[str] = set()
        self._told: set[str] = set()

    def add(self, owner: str) -> None:
        with self._guard:
            self._owners.add(owner)

    def untold(self, intents: Iterable[Intent]) -> list[Intent]:
        """Those of owners that were not handled, each only the first time."""
        with self._guard:
            found = [
                intent
                for intent in intents
                if intent.owner not in self._owners and intent.idempotency_key not in self._told
            ]
            self._told.update(intent.idempotency_key for intent in found)
            return found


class Looks:
    """What the resources of one program share: the account's latest listing, for those who only look, the offers that a
    check has just seen, and the account's user.

    The service allows 60 listings a minute (contract 1.5); a refresh of twenty clusters would ask for as many.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pods: list[Pod] = []
        self._at = -math.inf
        self._user: User | None = None
        self._offers: list[Offer] = []
        self._offers_at = -math.inf

    def pods(self, api: LiumApi, clock: Clock, max_age: float) -> list[Pod]:
        """The pods as they were at most `max_age` seconds ago. Raises what the listing raises, to whoever asked."""
        with self._guard:
            if clock.monotonic() - self._at > max_age:
                asked_at = clock.monotonic()
                self._pods = api.pods.list()
                self._at = asked_at
            return list(self._pods)

    def offers(self, api: LiumApi, clock: Clock) -> list[Offer]:
        """The offers as they are now, kept for `recent_offers`."""
        asked_at = clock.monotonic()
        found = api.offers.list()
        with self._guard:
            self._offers, self._offers_at = found, asked_at
        return found

    def recent_offers(self, clock: Clock, max_age: float) -> list[Offer] | None:
        """What `offers` saw at most `max_age` seconds ago, unless something was ordered since."""
        with self._guard:
            return list(self._offers) if clock.monotonic() - self._offers_at <= max_age else None

    def forget_offers(self) -> None:
        """An order leaves: it takes machines that were free."""
        with self._guard:
            self._offers_at = -math.inf

    def user(self, api: LiumApi) -> User:
        """Whose key `api` has, asked once: a client keeps its key, and a key its workspace (contract 1.2)."""
        with self._guard:
            if self._user is None:
                self._user = api.users.me()
            return self._user


def _always() -> None:
    """Somebody waits for the outcome."""


@dataclass(frozen=True)
class Context:
    """The surroundings of a verb. `report` takes one line for the person who is watching.

    `require_caller` raises `LiumError` once nobody is there any more to take what a verb returns: then nothing new is
    ordered.
    """

    api: LiumApi
    clock: Clock
    rng: random.Random
    report: Callable[[str], None]
    intents: IntentLog
    claims: Claims = field(default_factory=Claims)
    looks: Looks = field(default_factory=Looks)
    handled: Handled = field(default_factory=Handled)
    require_caller: Callable[[], None] = _always

    def note_in_state(self, cluster_id: str, state: Mapping[str, Any] | None = None) -> None:
        """The engine has this cluster in its state: its intent is closed.

        By the id, and by the key in the state where a note of the id was lost.
        """
        key = (state or {}).get("idempotency_key")
        with self.journal_may_fail():
            self.intents.close_cluster(cluster_id)
        if isinstance(key, str) and key:
            with self.journal_may_fail():
                self.intents.close(key)

    @contextmanager
    def journal_may_fail(self) -> Iterator[None]:
        """For what follows no order: a journal that fails is reported and keeps no verb from its work.

        An intent that stays open is settled later, a cluster that cannot be deleted bills.
        """
        try:
            yield
        except LiumError as error:
            self.report(f"warning: {error}")
