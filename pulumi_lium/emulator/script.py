"""Scripted stories: fixed answers in the order of a tale (format: the field cases' README).

A story has write steps (orders, deletes) and read steps. A read step that stands behind write steps is told only once
those writes have been seen, and from then on the read steps before them are past: a client that lists more or less
often still meets the same story. The last step that a route may tell repeats. Before the first of its steps is due, a
scripted read route tells that first step already, without using it up.

A step with an empty answer is a gap: in its turn the emulator answers by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from .exchange import JSON_TYPE, Answer, Cut, Request, json_bytes
from .faults import Ending, Headers, HeaderValue
from .pattern import Pattern

REMARKS = frozenset({"guard", "note", "auth", "pending_seconds", "repeat_last", "offers"})
"""Words and numbers for the person who writes the test; they change nothing here."""

_READS = ("GET", "HEAD", "OPTIONS")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_remarks(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if key not in REMARKS}
        return value


class ScriptAnswer(_Part):
    """What a step answers: `status` with `json` or `raw`, or a `fault`; nothing at all lets the emulator answer."""

    status: int | None = Field(default=None, ge=200, le=599)
    json_body: JsonValue = Field(default=None, alias="json")
    raw: str | None = None
    content_type: HeaderValue | None = None
    headers: Headers = Field(default_factory=dict)
    fault: Literal["refused", "drop_before_commit", "drop_after_commit"] | None = None
    commit: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> ScriptAnswer:
        if self.raw is not None and "json_body" in self.model_fields_set:
            raise ValueError("an answer has either json or raw, not both")
        if (
            self.status is None
            and self.fault is None
            and (self.raw is not None or "json_body" in self.model_fields_set)
        ):
            raise ValueError("an answer with a body needs a status")
        return self


class ScriptStep(_Part):
    """One step: which request, and what it meets."""

    on: str
    answer: ScriptAnswer

    @field_validator("on")
    @classmethod
    def _spelled_right(cls, value: str) -> str:
        Pattern.parse(value)
        return value


class ScriptStory(_Part):
    """A whole script; without steps it ends the one that runs."""

    steps: list[ScriptStep] = Field(default_factory=list)


@dataclass(slots=True)
class _Step:
    pattern: Pattern
    answer: ScriptAnswer
    after: frozenset[int]
    """Indices of the write steps that stand before this read step."""
    used: bool = False

    @property
    def reads(self) -> bool:
        return self.pattern.method in _READS


@dataclass(slots=True)
class Script:
    """A story being told. `tell` answers the ending that a request meets, or None where the emulator answers."""

    _steps: list[_Step] = field(default_factory=list)

    @classmethod
    def of(cls, story: ScriptStory) -> Script:
        steps: list[_Step] = []
        writes: set[int] = set()
        for index, step in enumerate(story.steps):
            pattern = Pattern.parse(step.on)
            reads = pattern.method in _READS
            steps.append(_Step(pattern, step.answer, frozenset(writes) if reads else frozenset()))
            if not reads:
                writes.add(index)
        return cls(steps)

    @property
    def length(self) -> int:
        return len(self._steps)

    def tell(self, request: Request) -> Ending | None:
        """Take the step of the story that this request meets."""
        route = [step for step in self._steps if step.pattern.matches(request)]
        if not route:
            return None
        due = self._due(route) if route[0].reads else route
        if not due:
            return _ending(route[0].answer, request)
        step = next((step for step in due if not step.used), due[-1])
        step.used = True
        return _ending(step.answer, request)

    def _due(self, route: list[_Step]) -> list[_Step]:
        """The read steps of the present chapter: behind as many of the writes already seen as any step of the route."""
        seen = {index for index, step in enumerate(self._steps) if step.used and not step.reads}
        open_steps = [step for step in route if step.after <= seen]
        chapter = max((len(step.after) for step in open_steps), default=0)
        return [step for step in open_steps if len(step.after) == chapter]


def _ending(answer: ScriptAnswer, request: Request) -> Ending | None:
    if answer.fault == "refused":
        return Ending(None, Cut.REFUSED)
    if answer.fault == "drop_before_commit":
        return Ending(None)
    if answer.fault == "drop_after_commit":
        return Ending(None, acts=True, committed=True)
    if answer.status is None:
        return None
    headers = {name.lower(): value for name, value in answer.headers.items()}
    headers.setdefault("content-type", answer.content_type or JSON_TYPE)
    body = json_bytes(answer.json_body) if answer.raw is None else answer.raw.encode("utf-8", "replace")
    writes = request.method not in _READS
    return Ending(
        Answer(answer.status, body, headers),
        acts=answer.commit,
        committed=writes and (answer.commit or _says_done(answer)),
    )


def _says_done(answer: ScriptAnswer) -> bool:
    """Whether a scripted answer to a write tells of a success (contract 4.8: 2xx, and `success` not false)."""
    body: Any = answer.json_body
    if answer.raw is not None:
        try:
            body = json.loads(answer.raw)
        except ValueError:
            body = None
    refused = isinstance(body, dict) and body.get("success") is False and "pods" not in body
    return answer.status is not None and answer.status < 300 and not refused
