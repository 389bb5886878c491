"""Fixtures of every test folder: the emulator as a process of its own, as people run it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.emulator import Emulator

pytest_plugins = ("tests.rack.fixtures",)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As `nohup make test &` leaves it: what the tests start would inherit that, and no Ctrl-C would reach it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

OWNER_KEY = "sk_emulator_owner"
PULUMI_LIUM = (str(Path(sys.prefix) / "bin" / "pulumi-lium"),)


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees, or spends from, the account of the person who runs it."""
    for name in [name for name in os.environ if name.startswith(("LIUM_", "PULUMI_"))]:
        monkeypatch.delenv(name)


def _environ(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR", "VIRTUAL_ENV")}
    return {**kept, "HOME": str(home)}


@pytest.fixture(scope="session")
def _shared_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    home = tmp_path_factory.mktemp("emulator-home")
    with Emulator(PULUMI_LIUM, ["--clock", "real"], _environ(home)) as emulator:
        yield emulator


@pytest.fixture(scope="session")
def _shared_virtual_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    home = tmp_path_factory.mktemp("virtual-emulator-home")
    with Emulator(PULUMI_LIUM, ["--clock", "virtual"], _environ(home)) as emulator:
        yield emulator


@pytest.fixture
def emulator(_shared_emulator: Emulator) -> Emulator:
    """The emulator on a real clock, started over with the built-in scenario."""
    _shared_emulator.reset()
    return _shared_emulator


@pytest.fixture
def virtual_emulator(_shared_virtual_emulator: Emulator) -> Emulator:
    """The emulator on a virtual clock (`advance`), started over with the built-in scenario."""
    _shared_virtual_emulator.reset()
    return _shared_virtual_emulator


@pytest.fixture
def start_emulator(tmp_path: Path) -> Iterator[Callable[..., Emulator]]:
    """Starts an emulator with arguments of the test's choice, for example `start_emulator("--state", str(file))`."""
    started: list[Emulator] = []

    def start(*arguments: str) -> Emulator:
        started.append(Emulator(PULUMI_LIUM, arguments, _environ(tmp_path)))
        return started[-1]

    yield start
    for emulator in started:
        emulator.stop()


@pytest.fixture
def lium_env(emulator: Emulator) -> dict[str, str]:
    """Environment variables that point a client at `emulator` with its first key."""
    return {"LIUM_API_KEY": OWNER_KEY, "LIUM_BASE_URL": emulator.base_url}
