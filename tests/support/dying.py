"""Processes that die in the middle of a verb, played in one process: their files stay, their locks are free."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pulumi_lium.api import LiumApi, RawAnswer, Settings
from pulumi_lium.emulator.inprocess import InProcessTransport
from pulumi_lium.lifecycle.check import check
from pulumi_lium.lifecycle.context import Claims, Context
from pulumi_lium.lifecycle.order import Created, order
from pulumi_lium.recovery.intents import FileIntents
from tests.support.world import KEY, ClientClock, World, wanted

BASE_URL = "http://lium.test/api"


class Killed(BaseException):
    """The end of a process; nothing in it runs any more."""


class MortalTransport(InProcessTransport):
    """The service's transport; the process ends where `dies_at(method, path, "before" | "after")` is true."""

    def __init__(self, *arguments: Any, dies_at: Callable[[str, str, str], bool], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._dies_at = dies_at

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        path = url.removeprefix(BASE_URL)
        if self._dies_at(method, path, "before"):
            raise Killed
        answer = super().send(method, url, headers=headers, body=body, timeout=timeout)
        if self._dies_at(method, path, "after"):
            raise Killed
        return RawAnswer(*answer)


class Process:
    """A process at work on a world, with a journal on disk. `rng` seeds its names and keys."""

    def __init__(
        self,
        world: World,
        folder: Path,
        *,
        seed: int = 5,
        key: str = KEY,
        account: str | None = None,
        dies_at: Callable[[str, str, str], bool] = lambda method, path, when: False,
    ) -> None:
        self.intents = FileIntents(folder)
        clock = ClientClock(world.clock)
        transport = MortalTransport(world.service, sleep=world.clock.sleep, dies_at=dies_at)
        settings = Settings(BASE_URL, SecretStr(key), account)
        api = LiumApi(settings, transport=transport, clock=clock, rng=random.Random(3))
        self.told: list[str] = []
        self.ctx = Context(api, clock, random.Random(seed), self.told.append, self.intents, Claims())

    def order(self, **inputs: Any) -> Created:
        """Check and create, as the engine calls them for a resource that its state does not hold."""
        return order(self.ctx, self.check(**inputs))

    def check(self, **inputs: Any) -> dict[str, Any]:
        checked, failures = check(self.ctx, {}, wanted(**inputs))
        assert failures == []
        return checked

    def order_and_die(self, **inputs: Any) -> None:
        with suppress(Killed):
            self.order(**inputs)
        self.die()

    def die(self) -> None:
        """As the kernel does it: locks are let go, files stay."""
        for descriptor in self.intents._locks.values():
            os.close(descriptor)
        self.intents._locks.clear()

    def said(self, text: str) -> bool:
        return any(text in line for line in self.told)


RENT = "/executors/cluster/rent"


def at(method: str, path: str, when: str, nth: int = 1) -> Callable[[str, str, str], bool]:
    """Dies at the `nth` such request, before it is sent or after it was answered (and the answer not yet read)."""
    seen = 0

    def dies(asked: str, asked_path: str, asked_when: str) -> bool:
        nonlocal seen
        if (asked, asked_path, asked_when) == (method, path, when):
            seen += 1
            return seen == nth
        return False

    return dies
