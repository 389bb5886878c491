"""Accounts, workspaces and API keys: who calls, what the key may do, what may be spent (contract 1.2, 2.2, 7.2.7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from . import scenario
from .pods import OPEN, STARTING, Pod
from .records import UNSTORED, Record
from .refusal import Refusal
from .wire import micros, usd

LISTINGS_A_MINUTE = 60


class Tenant:
    """Who sees which pods: an account outside workspaces, or a workspace."""

    __slots__ = ("pods", "rows", "rows_at", "starting")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.rows: list[dict[str, Any]] | None = None
        self.rows_at = 0.0
        self.starting = False

    def listing(self, now: float) -> list[dict[str, Any]]:
        """The rows of the listed pods, by id: an order that says nothing about ranks (contract 4.9: no fixed order)."""
        if self.rows is None or (self.starting and self.rows_at != now):
            pods, rows, starting = self.pods, [], False
            for name in sorted(pods):
                pod = pods[name]
                rows.append(pod.row(now))
                if pod.status in STARTING:
                    starting = True
            self.rows, self.rows_at, self.starting = rows, now, starting
        return self.rows.copy()


@dataclass(slots=True, eq=False, repr=False)
class Account(Record):
    """Who pays. `balance` in millionths of a USD; `listings` are the times of the pod listings of the last minute."""

    spec: scenario.Account = field(metadata=UNSTORED)
    id: str = ""
    balance: int = 0
    listings: list[float] = field(default_factory=list)
    recent: deque[float] = field(metadata=UNSTORED, default_factory=lambda: deque(maxlen=LISTINGS_A_MINUTE))
    open_pods: dict[str, Pod] = field(metadata=UNSTORED, default_factory=dict)

    def __post_init__(self) -> None:
        self.id = self.spec.id
        self.balance = micros(self.spec.balance)

    def admit_listing(self, now: float) -> None:
        """Count a pod listing, or refuse the 61st within 60 s (contract 1.5)."""
        recent = self.recent
        if len(recent) == LISTINGS_A_MINUTE and recent[0] > now - 60.0:
            wait = max(1, int(recent[0] + 60.0 - now) + 1)
            raise Refusal(
                429,
                "rate_limited",
                f"Pod listings are limited to {LISTINGS_A_MINUTE} a minute for each account",
                hint=f"Retry in {wait} s",
                headers={"Retry-After": str(wait)},
            )
        recent.append(now)

    def to_record(self) -> dict[str, Any]:
        self.listings = list(self.recent)
        return Record.to_record(self)

    def load(self, record: Mapping[str, Any]) -> Account:
        Record.load(self, record)
        self.recent.extend(self.listings)
        return self

    def open_price(self) -> int:
        """Millionths of a USD an hour of the pods that bill or are about to."""
        return sum([pod.price for pod in self.open_pods.values() if pod.status in OPEN])

    def require_balance(self, price: int) -> None:
        """Refuse a rental at `price` an hour unless the balance covers more than 15 minutes of it and of every open
        pod."""
        floor = (price + self.open_price()) / 4
        if self.balance <= floor:
            raise Refusal(
                403,
                "insufficient_balance",
                "Insufficient balance",
                hint="Add funds",
                detail=f"Insufficient balance. Renting this requires at least ${usd(round(floor)):.2f} "
                f"(15 minutes of runtime). Your balance is ${usd(self.balance):.2f}.",
            )


@dataclass(slots=True, eq=False, repr=False)
class Workspace(Record):
    """A shared place, known by the name that keys carry. The first account with a key in it pays and owns it."""

    name: str
    id: str
    owner: str
    members: list[str]
    created_at: float


@dataclass(slots=True, eq=False, repr=False)
class ApiKey(Record):
    """A key and what was spent through it: in all, and on the latest UTC day and month that it was charged on."""

    spec: scenario.Key = field(metadata=UNSTORED)
    account: Account = field(metadata=UNSTORED)
    payer: Account = field(metadata=UNSTORED)
    tenant: Tenant = field(metadata=UNSTORED)
    tenant_name: str = field(metadata=UNSTORED)
    workspace: Workspace | None = field(metadata=UNSTORED)
    id: str = ""
    spent: int = 0
    day: str = ""
    day_spent: int = 0
    month: str = ""
    month_spent: int = 0
    scopes: frozenset[str] = field(metadata=UNSTORED, default_factory=frozenset)
    limited: bool = field(metadata=UNSTORED, default=False)
    open_pods: dict[str, Pod] = field(metadata=UNSTORED, default_factory=dict)

    def __post_init__(self) -> None:
        self.scopes = frozenset(self.spec.scopes)
        budget = self.spec.budget
        self.limited = any(limit is not None for limit in (budget.daily, budget.monthly, budget.max))

    def require(self, scope: str) -> None:
        """Refuse unless the key has the scope."""
        if scope not in self.scopes:
            raise Refusal(
                403,
                "missing_scope",
                f"This API key does not have the '{scope}' scope",
                hint=f"Use a key with the '{scope}' scope",
            )

    def require_over(self, pods: Iterable[Pod]) -> None:
        """Refuse unless the key made every pod or may manage what others made (contract 1.2)."""
        if "manage" not in self.scopes and any(pod.key_id != self.id for pod in pods):
            self.require("manage")

    def spend(self, amount: int, at: float) -> None:
        """Count a charge of one of the key's pods; by windows only where the key has a budget."""
        self.spent += amount
        if not self.limited:
            return
        moment = datetime.fromtimestamp(at, timezone.utc)
        day, month = moment.strftime("%Y-%m-%d"), moment.strftime("%Y-%m")
        self.day_spent = self.day_spent + amount if day == self.day else amount
        self.month_spent = self.month_spent + amount if month == self.month else amount
        self.day, self.month = day, month

    def require_budget(self, now: float, unsettled: int) -> None:
        """Refuse what would spend more once a window's budget is reached; `unsettled` was used but not charged yet."""
        if not self.limited:
            return
        moment = datetime.fromtimestamp(now, timezone.utc)
        budget = self.spec.budget
        windows = (
            ("daily", budget.daily, self.day_spent if self.day == moment.strftime("%Y-%m-%d") else 0),
            ("monthly", budget.monthly, self.month_spent if self.month == moment.strftime("%Y-%m") else 0),
            ("max", budget.max, self.spent),
        )
        for window, limit, spent in windows:
            if limit is not None and spent + unsettled >= micros(limit):
                text = f"{window} budget reached"
                raise Refusal(
                    402,
                    "API_KEY_BUDGET_EXCEEDED",
                    text,
                    data={
                        "message": text,
                        "window": window,
                        "budget_usd": limit,
                        "spent_usd": usd(spent + unsettled),
                        "api_key_id": self.id,
                    },
                )
