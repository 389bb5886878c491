"""The service between the wire and the market: routes, keys, bodies, faults, scripts, the journal and the store.

An exchange has two halves. `admit` notes the arrival and decides, in order of arrival, what the faults and the script
do to it; `perform` lets the market act and makes the answer. Whoever carries the bytes waits out the delays in between,
so that nothing here sleeps and one lock held for each half keeps the market whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError
from pydantic_core import from_json

from .exchange import JSON_TYPE, Answer, Cut, Request, envelope, status_text
from .faults import Effects, FaultBox, HideMemberFault
from .journal import Entry, Journal
from .market import Market, Reply
from .refusal import Refusal, invalid
from .routes import OFFERS, PODS, Call, Route, Text, find
from .scenario import Scenario
from .script import Script
from .store import Store

MAX_BODY = 1 << 20


@dataclass(slots=True)
class Admitted:
    """A request that has arrived and not yet been served."""

    request: Request
    market: Market
    """The market that it came to; after a reset there is another, on which it must not act."""
    request_id: str
    key: str | None
    entry: Entry
    effects: Effects
    holds_key: str | None = None


@dataclass(frozen=True, slots=True)
class _Listings:
    """What the listings say at one moment, for `stale_list`: pods by account, and offers."""

    pods: dict[str, list[dict[str, Any]]]
    offers: list[dict[str, Any]]

    @classmethod
    def of(cls, market: Market) -> _Listings:
        return cls(market.listings(), market.fabrics_on_sale())


class Clock(Protocol):
    """What the service needs of a clock: epoch seconds, and what a reset and a stored market do to it."""

    def now(self) -> float: ...
    def restart(self) -> None: ...
    def resume(self, at: float) -> None: ...


class Service:
    """The emulated service: one market and all that stands around it.

    Args:
        scenario: what the market starts as; ignored where `store` already holds a market.
        clock: the market's time.
        store: keeps every committed change on disk before its answer leaves; None keeps nothing.
    """

    def __init__(self, scenario: Scenario, clock: Clock, store: Store | None = None) -> None:
        self.lock = threading.RLock()
        self.resumed = False
        self._clock = clock
        self.journal = Journal()
        self.faults = FaultBox()
        self.script = Script()
        self._store = store
        # Whether the file lacks a change that could not be written: then the whole market is written next.
        self._behind = False
        self._requests = 0
        self._before: _Listings | None = None
        self.market = self._open(scenario)

    def _open(self, scenario: Scenario) -> Market:
        stored = self._store.load() if self._store else None
        if stored is not None:
            self.resumed = True
            market = Market.restore(stored, track_changes=True)
            self._clock.resume(market.now)
            return market
        market = Market(scenario, self._clock.now(), track_changes=self._store is not None)
        self._keep_all(market)
        return market

    def _keep_all(self, market: Market) -> None:
        if self._store:
            market.take_changes()
            self._behind = True
            self._store.replace(market.snapshot())
            self._behind = False

    def close(self) -> None:
        """Let go of the state file."""
        if self._store:
            self._store.close()

    # The control plane's side

    def reset(self, scenario: Scenario) -> None:
        """Start over: a new market, no faults, no script, an empty journal."""
        with self.lock:
            self._clock.restart()
            self.market = Market(scenario, self._clock.now(), track_changes=self._store is not None)
            self.journal.clear()
            self.faults.clear()
            self.script = Script()
            self._before = None
            self._requests = 0
            self._keep_all(self.market)

    def look(self, read: Callable[[Market], Any]) -> Any:
        """What `read` makes of the market at the present time."""
        with self.lock:
            self.market.advance_to(self._clock.now())
            self._commit()
            return read(self.market)

    def change(self, act: Callable[[Market], Any]) -> Any:
        """Let the control plane act on the market, at the present time, and keep what it changed."""
        with self.lock:
            self.market.advance_to(self._clock.now())
            before, revision = _Listings.of(self.market), self.market.revision
            try:
                return act(self.market)
            finally:
                if self.market.revision != revision:
                    self._before = before
                if self._store:
                    self.market.note_clock()
                self._commit()

    # The API's side

    def admit(self, request: Request) -> Admitted:
        """Note an arrival and decide what is done to it."""
        with self.lock:
            self._requests += 1
            request_id = f"req-{self._requests:04x}"
            key = request.headers.get("x-api-key") or None
            idempotency_key = request.headers.get("idempotency-key") or None
            entry = self.journal.open(request.method, request.path, self.market.identify(key), idempotency_key)
            effects = self.faults.meet(request, request_id)
            if effects.ending is None:
                effects.ending = self.script.tell(request)
            admitted = Admitted(request, self.market, request_id, key, entry, effects)
            if idempotency_key and entry.key_id and effects.delay_before and _will_order(admitted):
                self.market.advance_to(self._clock.now())
                self.market.hold_idempotency_key(key, idempotency_key)
                admitted.holds_key = idempotency_key
                self._commit()
            return admitted

    def perform(self, admitted: Admitted) -> Answer | Cut:
        """Let the service act, unless a fault or the script says otherwise, and make the answer that goes out."""
        ending = admitted.effects.ending
        with self.lock:
            if admitted.market is not self.market:
                return Cut.DROPPED
            self.market.advance_to(self._clock.now())
            if admitted.holds_key:
                self.market.release_idempotency_key(admitted.key, admitted.holds_key)
            if ending is None or ending.acts:
                answer, committed = self._serve(admitted)
            else:
                answer, committed = None, False
            if ending is not None:
                answer = ending.answer
                committed = committed if ending.committed is None else ending.committed
            admitted.entry.status = answer.status if answer else None
            admitted.entry.committed = committed
            self._commit()
        if answer is None:
            return ending.cut if ending else Cut.DROPPED
        headers = {"x-request-id": admitted.request_id, **answer.headers}
        return Answer(answer.status, answer.body, headers)

    def _serve(self, admitted: Admitted) -> tuple[Answer, bool]:
        """The service's own answer, and whether it changed the market."""
        ending = admitted.effects.ending
        try:
            route, parameters = _route(admitted.request)
            if not route.keyless and admitted.entry.key_id is None:
                raise Refusal(401, "invalid_api_key", "Invalid API key")
            call = Call(
                admitted.key,
                parameters,
                admitted.request.query,
                _checked_body(route, admitted.request),
                admitted.entry.idempotency_key if route.idempotent else None,
                lose_outcome=ending is not None and ending.lose_outcome,
            )
            before, revision = (_Listings.of(self.market) if route.writes else None), self.market.revision
            value = route.serve(self.market, call)
        except Refusal as refusal:
            body = refusal.envelope(admitted.request_id)
            return Answer.of_json(refusal.status, body, {k.lower(): v for k, v in refusal.headers.items()}), False
        if isinstance(value, Text):
            return Answer(
                200, value.text.encode("utf-8", "replace"), {"content-type": "text/plain; charset=utf-8"}
            ), False
        committed = route.writes and self.market.revision != revision
        headers: dict[str, str] = {}
        if isinstance(value, Reply):
            headers = {name.lower(): text for name, text in value.headers.items()}
            committed = value.committed
            value = value.body
        if committed:
            self._before = before
        if route is PODS or route is OFFERS:
            value = self._as_seen(route, value, admitted)
        return Answer.of_json(200, value, headers), committed

    def _as_seen(self, route: Route, rows: list[dict[str, Any]], admitted: Admitted) -> list[dict[str, Any]]:
        """The listing as the faults let the caller see it."""
        if admitted.effects.stale and self._before is not None:
            account = self.market.account_of(admitted.key)
            rows = self._before.offers if route is OFFERS else self._before.pods.get(account or "", [])
        if admitted.effects.hidden:
            rows = [row for row in rows if not _is_hidden(row, admitted.effects.hidden)]
        return rows

    def _commit(self) -> None:
        """Put what has changed on disk; returns only when it is there."""
        if self._store is None:
            return
        changes = self.market.take_changes()
        if self._behind:
            self._keep_all(self.market)
        elif changes is not None:
            self._behind = True
            self._store.commit(changes)
            self._behind = False


def _route(request: Request) -> tuple[Route, dict[str, str]]:
    route, found = find(request.method, request.segments)
    if isinstance(route, Route) and isinstance(found, dict):
        return route, found
    if found:
        allow = ", ".join(found)
        raise Refusal(
            405,
            "method_not_allowed",
            f"{request.path} does not know {request.method}",
            hint=f"It knows {allow}",
            headers={"allow": allow},
        )
    raise Refusal(404, "not_found", f"No such route: {request.method} {request.path}")


def _checked_body(route: Route, request: Request) -> dict[str, Any]:
    """The body as the route wants it. Raises Refusal 413, 415 or 422 that names the fields."""
    if route.body is None:
        return {}
    if len(request.body) > MAX_BODY:
        raise Refusal(413, "payload_too_large", f"The body is larger than {MAX_BODY} bytes")
    if not request.body:
        if route.body_required:
            raise invalid(("body", "a JSON object is required"))
        return {}
    kind = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
    if kind != JSON_TYPE and not kind.endswith("+json"):
        raise Refusal(415, "unsupported_media_type", f"Content-Type {kind or '(empty)'} is not {JSON_TYPE}")
    try:
        value = from_json(request.body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(("body", f"is not JSON: {error}")) from error
    if not isinstance(value, dict):
        raise invalid(("body", "a JSON object is required"))
    try:
        return route.body.model_validate(value).model_dump(exclude_unset=route.method == "PUT")
    except ValidationError as error:
        raise invalid(
            *((".".join(str(part) for part in fault["loc"]) or "body", fault["msg"]) for fault in error.errors())
        ) from error


def _will_order(admitted: Admitted) -> bool:
    """Whether this request is one whose idempotency key is busy while it runs, and it will act."""
    ending = admitted.effects.ending
    route, _ = find(admitted.request.method, admitted.request.segments)
    return route is not None and route.idempotent and (ending is None or ending.acts)


def _is_hidden(row: dict[str, Any], hidden: list[HideMemberFault]) -> bool:
    return any(
        row.get("cluster_id") is not None
        and row.get("cluster_node_index") == fault.rank
        and fault.cluster in (None, row["cluster_id"])
        for fault in hidden
    )


def failure(request_id: str, message: str = status_text(500)) -> Answer:
    """The answer where the emulator itself is at fault."""
    return Answer.of_json(500, envelope(500, "internal_error", message, request_id))
