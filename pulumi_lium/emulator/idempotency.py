"""Idempotency of orders: what was answered under which key (contract 4.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .records import Record
from .refusal import Refusal

if TYPE_CHECKING:
    from .state import State

KEPT_SECONDS = 24 * 3600.0
LOCK_SECONDS = 300.0
REPLAYED = {"Idempotent-Replayed": "true"}


class Reply(NamedTuple):
    """An order's answer: the JSON body, headers to add, and whether this request rented anything."""

    body: dict[str, Any]
    headers: dict[str, str]
    committed: bool


@dataclass(slots=True, eq=False, repr=False)
class OrderRecord(Record):
    """What is known of an order sent with an idempotency key. Without `answer` and `refusal` its outcome is not known.

    `request` is what was asked; None while the first request has not been read yet. `at`: epoch seconds of the first
    request.
    """

    account: str
    key: str
    request: dict[str, Any] | None
    at: float
    answer: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None


def _name(account: str, key: str) -> str:
    return f"{account}:{key}"


def earlier(state: State, account: str, key: str, request: dict[str, Any]) -> Reply | None:
    """The stored outcome of an order with this key, or None where the key is new or its record is too old.

    Raises the stored refusal; 409 while the outcome is not known; 422 where the key came with another request.
    """
    record = state.tables.orders.get(_name(account, key))
    if record is None or state.now - record.at >= KEPT_SECONDS:
        return None
    if record.request is not None and record.request != request:
        raise Refusal(
            422,
            "idempotency_key_reused",
            "This Idempotency-Key was used for a different order",
            hint="Send a new key with a new order",
        )
    if record.refusal is not None:
        raise Refusal.from_record(record.refusal, REPLAYED)
    if record.answer is not None:
        return Reply(record.answer, REPLAYED, False)
    if state.now - record.at < LOCK_SECONDS:
        raise Refusal(409, "idempotency_in_progress", "The first order with this Idempotency-Key is still running")
    text = "The answer to the first order with this Idempotency-Key was not kept"
    raise Refusal(409, "idempotency_outcome_unknown", text, hint="Look for what it rented in GET /pods")


def remember(
    state: State,
    account: str,
    key: str,
    request: dict[str, Any] | None,
    *,
    answer: dict[str, Any] | None = None,
    refusal: Refusal | None = None,
) -> None:
    """Keep an order's outcome; without answer and refusal, that it was begun."""
    orders = state.tables.orders
    name = _name(account, key)
    # A key that is used again goes to the end.
    if name in orders:
        forget(state, account, key)
    told = refusal.to_record() if refusal else None
    orders[name] = OrderRecord(state.next_seq(), account, key, request, state.now, answer, told)
    state.touch("orders", name)
    # The oldest stand first, so what is out of date is found without a search.
    while orders:
        oldest = next(iter(orders))
        if state.now - orders[oldest].at < KEPT_SECONDS:
            break
        del orders[oldest]
        state.drop("orders", oldest)


def release(state: State, account: str, key: str) -> None:
    """Drop a key that was only held, so that the request that held it can run."""
    record = state.tables.orders.get(_name(account, key))
    if record is not None and record.request is None:
        forget(state, account, key)


def forget(state: State, account: str, key: str) -> None:
    """Drop what is known of a key."""
    name = _name(account, key)
    if state.tables.orders.pop(name, None) is not None:
        state.drop("orders", name)
