"""Billing: what a pod has cost so far, debits every five minutes, the final settlement, credits (contract 7.3)."""

from __future__ import annotations

from .ledger import LedgerRow
from .pods import Pod
from .state import DEBIT_SECONDS, State
from .wire import usd


def accrued(pod: Pod, at: float) -> int:
    """What the pod has cost until `at`, in millionths of a USD, charged or not."""
    if pod.billed_from is None:
        return 0
    return round(pod.price * (at - pod.billed_from) / 3600.0)


def start(state: State, pod: Pod) -> None:
    """The pod runs: it bills from now on. Debits lie on a grid of five minutes that begins with the market."""
    if not state.billing:
        while state.start + DEBIT_SECONDS * state.debits < state.now:
            state.debits += max(1, int((state.now - state.start) // DEBIT_SECONDS) - state.debits)
    pod.billed_from = pod.billed_to = state.now
    state.billing[pod.id] = pod
    if len(state.billing) == 1:
        state.plan_debit()


def settle(state: State, pod: Pod) -> None:
    """Debit what the pod has cost since the last debit.

    Charged is the whole cost so far less what was charged before, so that roundings never add up.
    """
    if pod.billed_from is None or pod.billed_to is None:
        return
    amount = accrued(pod, state.now) - pod.charged
    if state.now > pod.billed_to:
        _enter(state, pod.account, pod.id, "charge", pod.billed_to, amount)
        pod.key.spend(amount, state.now)
        state.touch("keys", pod.key_id)
        pod.charged += amount
        pod.billed_to = state.now
        state.touch("pods", pod.id)


def stop(state: State, pod: Pod) -> None:
    """Final settlement: the pod does not bill from now on."""
    if state.billing.pop(pod.id, None) is not None:
        settle(state, pod)
        if not state.billing:
            state.plan_debit()


def credit(state: State, pod: Pod) -> None:
    """Give back what was charged for a pod that its provider closed by force.

    The contract says that such a pod credits the account (7.3.4) and names no amount: here it is all that was charged.
    """
    if pod.charged:
        _enter(state, pod.account, pod.id, "credit", pod.billed_from or state.now, -pod.charged)
        pod.key.spend(-pod.charged, state.now)
        state.touch("keys", pod.key_id)
        pod.charged = 0


def set_balance(state: State, account_id: str, balance: int) -> None:
    """Set an account's balance; the difference is a ledger row of its own."""
    account = state.tables.accounts[account_id]
    _enter(state, account_id, None, "adjustment", state.now, account.balance - balance)


def debit_all(state: State) -> None:
    """The debit that comes every five minutes."""
    state.debits += 1
    state.plan_debit()
    # By age of the pods, not in the order in which they came up: a market that was stored does not know that order.
    for pod in sorted(state.billing.values(), key=lambda pod: pod.seq):
        settle(state, pod)


def unsettled(state: State, pods: list[Pod]) -> int:
    """What these pods have cost and was not charged yet."""
    return sum(accrued(pod, state.now) - pod.charged for pod in pods if pod.id in state.billing)


def burn(pods: list[Pod]) -> float:
    """USD an hour that these pods bill now."""
    return usd(sum(pod.price for pod in pods if pod.bills))


def _enter(state: State, account_id: str, pod: str | None, kind: str, begin: float, amount: int) -> None:
    account = state.tables.accounts[account_id]
    account.balance -= amount
    seq = state.next_seq()
    name = str(seq)
    state.tables.ledger[name] = LedgerRow(seq, account_id, pod, kind, begin, state.now, amount)
    state.touch("ledger", name)
    state.touch("accounts", account_id)
