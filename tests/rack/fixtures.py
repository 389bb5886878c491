"""Fixtures for tests on virtual hosts, for every test folder.

One rack serves a test session. A test that asks for hosts gets them clean: those that an earlier test had are cloned
anew. Tests that only look may share hosts: `shared_rack` is reset only after a test that changed something.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rack.host import Host
from tests.rack.image import Kind
from tests.rack.packages import why_not
from tests.rack.rack import Rack


class SessionRack:
    """The rack of a test session, with what its hosts are like by now."""

    def __init__(self) -> None:
        self._rack: Rack | None = None
        self._clean: dict[int, Kind] = {}

    def with_hosts(self, count: int, kind: Kind = "bare") -> Rack:
        """The rack with `count` hosts, all clean and of that kind, and no rules on the switch."""
        if self._rack is None:
            self._rack = Rack.up(count, name=f"test-{os.getpid()}", kind=kind, owned=True)
            self._clean = dict.fromkeys(range(1, count + 1), kind)
        rack = self._rack
        rack.switch.clear()
        present = len(rack.hosts)
        used = [number for number in range(1, min(count, present) + 1) if self._clean.get(number) != kind]
        if used:
            rack.reset(*used, kind=kind, roce=True)
        if count != present:
            rack.resize(count, kind=kind)
        self._clean = dict.fromkeys(range(1, count + 1), kind)
        return rack

    def touched(self, *numbers: int) -> None:
        """Those hosts may be anything now."""
        for number in numbers:
            self._clean.pop(number, None)

    def end(self) -> None:
        """Switch everything off."""
        if self._rack is not None:
            self._rack.down()


@pytest.fixture(scope="session")
def session_rack() -> Iterator[SessionRack]:
    """The session's rack before any host is asked for. Where racks cannot run, the tests that need one say why."""
    obstacle = why_not()
    if obstacle is not None:
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(f"no rack of virtual hosts: {obstacle}")
        pytest.skip(f"no rack of virtual hosts: {obstacle}")
    rack = SessionRack()
    yield rack
    rack.end()


def _hosts(count: int, kind: Kind) -> Callable[[SessionRack], Iterator[Rack]]:
    def hosts(session_rack: SessionRack) -> Iterator[Rack]:
        yield session_rack.with_hosts(count, kind)
        session_rack.touched(*range(1, count + 1))

    hosts.__doc__ = f"A rack of {count} clean {kind} hosts with Soft-RoCE; the test may do with them what it likes."
    return hosts


rack = pytest.fixture(_hosts(2, "bare"), name="rack")
full_rack = pytest.fixture(_hosts(2, "full"), name="full_rack")
rack_of_four = pytest.fixture(_hosts(4, "bare"), name="rack_of_four")
full_rack_of_four = pytest.fixture(_hosts(4, "full"), name="full_rack_of_four")


@pytest.fixture
def shared_rack(session_rack: SessionRack) -> Rack:
    """Two bare hosts for a test that leaves them as they are."""
    return session_rack.with_hosts(2)


@pytest.fixture
def shared_full_rack(session_rack: SessionRack) -> Rack:
    """Two full hosts for a test that leaves them as they are."""
    return session_rack.with_hosts(2, "full")


@pytest.fixture
def host(session_rack: SessionRack) -> Iterator[Host]:
    """Host 1 of two, clean and bare; the test may do with it what it likes, and leaves the other as it is."""
    yield session_rack.with_hosts(2).hosts[0]
    session_rack.touched(1)


@pytest.fixture
def rack_inventory(tmp_path: Path) -> Callable[[Rack], Path]:
    """Writes the inventory of a rack for one test: `rack_inventory(rack)` is its path."""
    return lambda rack: rack.write_inventory(tmp_path / "inventory.yml")
