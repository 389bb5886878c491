"""A market of its own for each test, in this process."""

from __future__ import annotations

import pytest

from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World()
