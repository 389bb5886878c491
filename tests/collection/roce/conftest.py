"""Fixtures for the tests of the agent: the rehearsal's perftest, and agents on emulated hosts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collection.roce.agents import Agents, Model
from tools.rehearsal import build_perftest
from tools.rehearsal.fabric import Fabric, Fault


@pytest.fixture(scope="session")
def fake_perftest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_perftest(tmp_path_factory.mktemp("perftest"))


@pytest.fixture
def make_agents(tmp_path: Path, fake_perftest: Path) -> Iterator[Callable[..., Agents]]:
    made: list[Agents] = []

    def make(hosts: int, *faults: Fault, rails: int = 1, leaf: int = 4, **options: Any) -> Agents:
        names = [f"gpu{number:02}" for number in range(hosts)]
        # Addresses of this test alone, so that another test's agents on this machine are not met.
        block = zlib.crc32(str(tmp_path).encode()) % 65536
        network = f"127.{64 + block // 512}.{block % 256}"
        addresses = {name: f"{network}.{number + 1}" for number, name in enumerate(names)}
        options.setdefault("floor_s", 0.1)
        model = Model(Fabric(names, rails, 200.0, leaf, faults), addresses, tmp_path / "model.sock", **options)
        made.append(Agents(tmp_path, fake_perftest, model, addresses))
        return made[-1]

    yield make
    for agents in made:
        agents.close()
