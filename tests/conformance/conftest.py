"""The official `lium.io` client against the emulator: its command line as a process, its SDK in this one.

Nothing of the client is changed; only the SDK's clock may be the emulator's, so that its waits cost no real time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lium.sdk import Config, Lium

from tests.conformance.client import OWNER_KEY, Cli, EmulatorTime
from tools.emulator import Emulator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.conformance)


@pytest.fixture(scope="session")
def ssh_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public half lies beside it."""
    path = tmp_path_factory.mktemp("ssh") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ana@build01", "-f", path], check=True)
    return path


@pytest.fixture
def home(tmp_path: Path, ssh_key: Path) -> Path:
    """A home folder with that key and nothing else."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    for path in (ssh_key, ssh_key.with_suffix(".pub")):
        (folder / ".ssh" / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture
def cli(emulator: Emulator, home: Path) -> Cli:
    """The command line against the emulator on a real clock."""
    return Cli(home, emulator.base_url)


@pytest.fixture
def sdk(virtual_emulator: Emulator, home: Path, ssh_key: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Lium]:
    """Makes SDK clients of the emulator on a virtual clock that the SDK's own sleeps move."""
    monkeypatch.setenv("HOME", str(home))
    time = EmulatorTime(virtual_emulator)
    monkeypatch.setattr("lium.sdk.client.time", time)
    monkeypatch.setattr("lium.sdk.utils.time", time)

    def make(key: str = OWNER_KEY) -> Lium:
        return Lium(Config(api_key=key, base_url=virtual_emulator.base_url, ssh_key_path=ssh_key))

    return make
