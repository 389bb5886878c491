"""The HTTP core: the only place where calls are retried, redirects followed and answers decoded."""

from __future__ import annotations

import random
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from .clock import Clock
from .settings import Settings
from .transport import Transport

M = TypeVar("M", bound=BaseModel)


class Retry(Enum):
    READ = "read"
    IDEMPOTENT = "idempotent"
    WRITE = "write"
    NEVER = "never"


class Answer(NamedTuple):
    document: Any

    def rows(self, model: type[M]) -> list[M]:
        raise NotImplementedError

    def row(self, model: type[M]) -> M:
        raise NotImplementedError

    def accepted(self) -> None:
        raise NotImplementedError


class HttpCore:
    def __init__(self, settings: Settings, transport: Transport, clock: Clock, rng: random.Random) -> None:
        raise NotImplementedError

    def get(self, path: str) -> Answer:
        raise NotImplementedError

    def call(self, method: str, path: str, *, retry: Retry, body: Any = None, headers: Any = None) -> Answer:
        raise NotImplementedError


def segment(value: str, name: str) -> str:
    raise NotImplementedError
