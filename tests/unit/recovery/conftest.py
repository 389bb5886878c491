"""A market of its own for each test, in this process; a journal's folder, and a sweep on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sweeper import Sweeper
from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "intents"


@pytest.fixture
def sweeper(world: World, folder: Path) -> Sweeper:
    return Sweeper(world, folder)
