"""Faults: what goes wrong on the way between a client and the service (design 4.3).

A fault is a small named object; a rule says which requests meet it and how often. Faults never change the market
themselves: they decide whether the service acts, when, and what the caller gets to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from .exchange import JSON_TYPE, Answer, Cut, Request, envelope, json_bytes, status_text
from .pattern import Pattern

HTML_TYPE = "text/html"
MAINTENANCE_PAGE = b"<html><head><title>Maintenance</title></head><body>We will be back soon.</body></html>"


HeaderValue = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]
Headers = dict[Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")], HeaderValue]
"""Response headers that HTTP can carry."""


class _Fault(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StatusFault(_Fault):
    """Answer with this status. Without `body` the service's error envelope is sent; a text body goes out as it is."""

    kind: Literal["status"]
    code: int = Field(ge=200, le=599)
    body: Any = None
    headers: Headers = Field(default_factory=dict)
    commit: bool = Field(default=False, description="the service acts all the same, and its own answer is lost")
    lose_outcome: bool | None = Field(
        default=None,
        description="with `commit`: nothing is recorded under the Idempotency-Key. Default: true for 500, the service's"
        " own failure; false for others, which a gateway sends while the service finishes",
    )


class RefusedFault(_Fault):
    """The connection is reset; the service never sees the request."""

    kind: Literal["refused"]


class DropBeforeCommitFault(_Fault):
    """The connection is closed without an answer; nothing was done."""

    kind: Literal["drop_before_commit"]


class DropAfterCommitFault(_Fault):
    """The service acts, then the connection is closed without an answer."""

    kind: Literal["drop_after_commit"]


class DelayFault(_Fault):
    """Wait before the service acts, or after it. It acts though the caller may have gone."""

    kind: Literal["delay"]
    seconds: float = Field(ge=0, le=3600, description="s, of real time, whatever the market's clock")
    when: Literal["before", "after"] = "before"


class NotJsonFault(_Fault):
    """The service acts; the answer is a page of HTML with status 200."""

    kind: Literal["not_json"]


class StaleListFault(_Fault):
    """The next `n` listings are answered as they were before the latest committed change."""

    kind: Literal["stale_list"]
    n: int = Field(default=1, ge=1)


class HideMemberFault(_Fault):
    """Listings leave out the cluster members of this rank."""

    kind: Literal["hide_member"]
    rank: int = Field(ge=0)
    cluster: str | None = Field(default=None, description="only of this cluster id; default: of every cluster")


Fault = Annotated[
    StatusFault
    | RefusedFault
    | DropBeforeCommitFault
    | DropAfterCommitFault
    | DelayFault
    | NotJsonFault
    | StaleListFault
    | HideMemberFault,
    Field(discriminator="kind"),
]


class FaultRule(BaseModel):
    """Which requests meet a fault: those that match `on`, after the first `after`, `times` times (0: for ever)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    on: str = Field(description="`METHOD /path`, `*` for one path segment")
    times: int = Field(default=1, ge=0)
    after: int = Field(default=0, ge=0)
    fault: Fault

    @field_validator("on")
    @classmethod
    def _spelled_right(cls, value: str) -> str:
        Pattern.parse(value)
        return value


@dataclass(frozen=True, slots=True)
class Ending:
    """How an exchange ends when the service's own answer does not go out.

    `acts`: the service carries the request out all the same. `committed`: what the journal says where the service
    does not act (a script may claim a success); None leaves it to what the service did.
    """

    answer: Answer | None
    cut: Cut = Cut.DROPPED
    acts: bool = False
    committed: bool | None = None
    lose_outcome: bool = False
    """The service acts and forgets what it answered (contract 4.8: a request that failed transiently)."""


@dataclass(slots=True)
class Effects:
    """All that the faults in force do to one request."""

    delay_before: float = 0.0
    delay_after: float = 0.0
    ending: Ending | None = None
    stale: bool = False
    hidden: list[HideMemberFault] = field(default_factory=list)


@dataclass(slots=True)
class _Armed:
    id: str
    rule: FaultRule
    pattern: Pattern
    seen: int = 0
    fired: int = 0

    @property
    def limit(self) -> int | None:
        """How often it fires in all; None for ever."""
        if self.rule.times == 0:
            return None
        listings = self.rule.fault.n if isinstance(self.rule.fault, StaleListFault) else 1
        return self.rule.times * listings

    @property
    def spent(self) -> bool:
        return self.limit is not None and self.fired >= self.limit


class FaultBox:
    """The fault rules in force, oldest first.

    Delays and changed listings of all due rules add up. Of those that end the exchange the oldest due one wins, and
    the others keep their turn.
    """

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self._count = 0

    def add(self, rule: FaultRule) -> dict[str, Any]:
        """Put a rule in force and answer its row."""
        self._count += 1
        armed = _Armed(f"fault-{self._count}", rule, Pattern.parse(rule.on))
        self._armed.append(armed)
        return _row(armed)

    def clear(self) -> None:
        self._armed.clear()

    def rows(self) -> list[dict[str, Any]]:
        """The rules still in force. `left` is how often each will still fire, null for ever."""
        return [_row(armed) for armed in self._armed]

    def meet(self, request: Request, request_id: str) -> Effects:
        """Let every rule look at a request that has arrived; count it, and say what is done to it."""
        effects = Effects()
        for armed in self._armed:
            if not armed.pattern.matches(request):
                continue
            ends = not isinstance(armed.rule.fault, DelayFault | StaleListFault | HideMemberFault)
            if ends and effects.ending is not None:
                continue
            armed.seen += 1
            if armed.seen <= armed.rule.after:
                continue
            armed.fired += 1
            _apply(armed.rule.fault, effects, request_id)
        self._armed = [armed for armed in self._armed if not armed.spent]
        return effects


def _apply(fault: Fault, effects: Effects, request_id: str) -> None:
    match fault:
        case DelayFault(seconds=seconds, when="before"):
            effects.delay_before += seconds
        case DelayFault(seconds=seconds):
            effects.delay_after += seconds
        case StaleListFault():
            effects.stale = True
        case HideMemberFault():
            effects.hidden.append(fault)
        case RefusedFault():
            effects.ending = Ending(None, Cut.REFUSED)
        case DropBeforeCommitFault():
            effects.ending = Ending(None)
        case DropAfterCommitFault():
            effects.ending = Ending(None, acts=True)
        case NotJsonFault():
            effects.ending = Ending(Answer(200, MAINTENANCE_PAGE, {"content-type": HTML_TYPE}), acts=True)
        case StatusFault():
            lost = fault.code == 500 if fault.lose_outcome is None else fault.lose_outcome
            effects.ending = Ending(_status_answer(fault, request_id), acts=fault.commit, lose_outcome=lost)


def _status_answer(fault: StatusFault, request_id: str) -> Answer:
    headers = {"content-type": JSON_TYPE, **{name.lower(): value for name, value in fault.headers.items()}}
    if isinstance(fault.body, str):
        if not any(name.lower() == "content-type" for name in fault.headers):
            headers["content-type"] = HTML_TYPE if fault.body.lstrip().startswith("<") else "text/plain; charset=utf-8"
        return Answer(fault.code, fault.body.encode("utf-8", "replace"), headers)
    body = fault.body
    if body is None:
        phrase = status_text(fault.code)
        body = envelope(fault.code, _error_code(fault.code), phrase, request_id)
    return Answer(fault.code, json_bytes(body), headers)


def _error_code(status: int) -> str:
    """The code that goes with a status where nothing says it more exactly (contract 2.2)."""
    if status >= 500:
        return "server_error"
    known = {401: "invalid_api_key", 403: "permission_denied", 429: "rate_limited"}
    return known.get(status, status_text(status).lower().replace(" ", "_"))


def _row(armed: _Armed) -> dict[str, Any]:
    left = None if armed.limit is None else armed.limit - armed.fired
    return {
        "id": armed.id,
        **armed.rule.model_dump(mode="json"),
        "seen": armed.seen,
        "fired": armed.fired,
        "left": left,
    }
