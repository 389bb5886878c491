"""The emulator's process: an emulator that does not start is an error with its words, and nothing stays behind."""

from __future__ import annotations

import sys

import pytest

from tools.console import SetupError
from tools.emulator import Emulator


def python(code: str) -> list[str]:
    """A stand-in for `pulumi-lium`: Python that runs `code` and ignores the arguments behind it."""
    return [sys.executable, "-c", code]


def test_one_that_ends_at_once_is_an_error_with_its_words() -> None:
    with pytest.raises(SetupError, match="exit code 3") as error:
        Emulator(python("import sys; print('port taken', file=sys.stderr); sys.exit(3)"))
    assert "port taken" in str(error.value)


def test_one_that_says_something_else_first_is_an_error() -> None:
    with pytest.raises(SetupError, match="first line is 'hello'"):
        Emulator(python("import time; print('hello', flush=True); time.sleep(60)"))


def test_one_that_says_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.emulator.START_TIMEOUT_S", 0.2)
    with pytest.raises(SetupError, match="did not answer"):
        Emulator(python("import time; time.sleep(60)"))


def test_the_process_ends_with_the_block() -> None:
    code = "import time; print('Lium API emulator: http://127.0.0.1:1/api', flush=True); time.sleep(60)"
    with Emulator(python(code)) as emulator:
        assert emulator.base_url == "http://127.0.0.1:1/api"
        process = emulator._process
        assert process.poll() is None
    assert process.poll() is not None
