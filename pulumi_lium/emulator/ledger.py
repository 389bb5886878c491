"""Ledger: every change of a balance, one row each, in whole millionths of a USD (contract 7.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .records import Record
from .wire import iso, usd


@dataclass(slots=True, eq=False, repr=False)
class LedgerRow(Record):
    """`amount` leaves the account's balance. Kinds: `charge`; `credit` (a broken pod's charges come back, amount below
    zero); `adjustment` (the balance was set by an event; no pod)."""

    account: str
    pod: str | None
    kind: str
    start: float
    end: float
    amount: int

    def public(self) -> dict[str, Any]:
        """The row of `GET /_emulator/state`."""
        return {
            "pod": self.pod,
            "account": self.account,
            "from": iso(self.start),
            "to": iso(self.end),
            "usd": usd(self.amount),
            "kind": self.kind,
        }
