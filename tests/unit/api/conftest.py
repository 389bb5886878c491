"""A client whose time is made up, against services on loopback."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pulumi_lium.api import LiumApi, RequestsTransport, Settings, Transport
from tests.support.fake_clock import FakeClock
from tests.support.loopback import LoopbackService

KEY = "sk_test_0123456789abcdef"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def serve() -> Iterator[Callable[..., LoopbackService]]:
    """`serve(answer, ...)` starts a service; every one ends with the test."""
    with ExitStack() as stack:
        yield lambda *answers: stack.enter_context(LoopbackService(*answers))


@pytest.fixture
def connect(clock: FakeClock) -> Iterator[Callable[..., LiumApi]]:
    """`connect(service)` gives a client of it; its connections are closed with the test."""
    with ExitStack() as stack:

        def client(service: LoopbackService | str, *, transport: Transport | None = None, key: str = KEY) -> LiumApi:
            real = RequestsTransport()
            stack.callback(real.close)
            base_url = service if isinstance(service, str) else service.base_url
            return LiumApi(Settings(base_url, key), transport=transport or real, clock=clock, rng=random.Random(1))

        yield client
