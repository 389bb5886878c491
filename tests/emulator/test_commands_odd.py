"""Odd inputs to every command: each is named in one line, and nothing is asked of the service or the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pytest

from tools.emulator import Emulator

DEEP = "[" * 100_000
FILES = {
    "text.bin": b"\xff\xfe",
    "empty.json": b"",
    "list.json": b"[1, 2]",
    "bare.json": b"{}",
    "deep.json": DEEP.encode(),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that are not what a command expects, a folder, and a CLI that notes that it was called."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
    program.chmod(0o755)
    return tmp_path


def run(
    folder: Path, lium_env: Mapping[str, str], *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "pulumi_lium.cli", *arguments],
        cwd=folder,
        env={"HOME": str(folder), **lium_env, "PATH": path, "PYTHONPATH": os.getcwd()},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command", ["offers", "offers --json", "doctor --json", "sweep --json", "offers --nodes 1 --json"]
)
def test_an_output_that_takes_nothing_is_one_line(folder: Path, lium_env: dict[str, str], command: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(folder, lium_env, *command.split(" "), stdout=full)
    assert done.returncode == (2 if "--nodes" in command else 1)
    assert "Traceback" not in done.stderr
    assert ("nodes: is 1" if "--nodes" in command else "No space left on device") in done.stderr


def test_a_reader_that_has_had_enough_is_no_error_to_speak_of(folder: Path, lium_env: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(folder, lium_env, "offers", "--json", stdout=writer)
    finally:
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("offers --nodes 99999999999999999999999999", 2, "too large"),
        ("offers --nodes 2.0", 2, "--nodes"),
        ("offers --max-price-per-hour nan", 2, "max_price_per_hour: is nan"),
        ("offers --max-price-per-hour 1e500", 2, "max_price_per_hour: is inf"),
        ("offers --gpu-type=", 2, "gpu_type: is empty"),
        ("offers --machines=", 2, "machines: entry 0 is empty"),
        ("offers --machines ü,ü", 2, "names 1 machines for 2 nodes"),
        ("offers --account=", 2, "account's name is empty"),
        ("offers --account é!", 2, "LIUM_API_KEY_É_"),
        ("offers extra", 2, "extra"),
        ("doctor --nodes 2", 2, "--nodes"),
        ("sweep --stack-export folder", 2, "is a directory"),
        ("sweep --stack-export none.json", 2, "does not exist"),
        ("sweep --stack-export text.bin", 1, "text.bin is no text in UTF-8"),
        ("sweep --stack-export empty.json", 1, "empty.json is no JSON"),
        ("sweep --stack-export list.json", 1, "list.json holds no JSON object"),
        ("sweep --stack-export bare.json", 1, "bare.json: deployment is missing"),
        ("sweep --stack-export deep.json", 1, "deep.json is no JSON"),
        ("sweep --older-than=", 2, "no span of time"),
        ("sweep --older-than 99999999999999d", 2, "between 1m and 365d"),
        ("sweep --wait nan", 2, "nan is no number of seconds"),
        ("sweep --wait -1", 2, "--wait"),
        ("extend  --ttl 8h", 2, "id is empty"),
        ("extend x --ttl ٨h", 2, "no span of time"),
        ("extend x --by 0m", 2, "between 1m and 365d"),
        ("extend x --stack y --by 1h", 2, "Name the cluster"),
        ("extend --stack= --by 1h", 2, "stack's name is empty"),
        ("recover --stack=", 2, "stack's name is empty"),
        ("teardown --stack=", 2, "stack's name is empty"),
        ("teardown --stack= --remove-stack", 2, "stack's name is empty"),
        ("teardown --stack x --cwd list.json", 2, "is a file"),
        ("teardown --stack x --timeout nan", 2, "nan is no number of seconds"),
        ("teardown --stack x --lock-age -1", 2, "no span of time"),
        ("emulator --port abc", 2, "abc"),
        ("emulator --port 0 --host=", 1, "host is empty"),
        ("emulator --port 0 --host ünicode.invalid", 1, "ünicode.invalid"),
        ("emulator --port 0 --scenario folder", 2, "is a directory"),
        ("emulator --port 0 --scenario text.bin", 1, "text.bin"),
        ("emulator --port 0 --scenario empty.json", 1, "must be a mapping"),
        ("emulator --port 0 --scenario deep.json", 1, "nested too deeply"),
        ("emulator --port 0 --state folder", 2, "is a directory"),
        ("emulator --port 0 --state list.json", 1, "list.json"),
        ("emulator --port 0 --clock sundial", 2, "sundial"),
    ],
)
def test_each_is_named_and_nothing_is_done(
    folder: Path, lium_env: dict[str, str], emulator: Emulator, command: str, code: int, says: str
) -> None:
    done = run(folder, lium_env, *command.split(" "))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 2000
    assert emulator.journal() == []
    assert not (folder / "called").exists(), "the engine was asked"
    assert (folder / "list.json").read_bytes() == FILES["list.json"]
