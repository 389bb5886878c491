"""Only what was started is ended; what a killed run left is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rack import process
from tests.rack.errors import RackError
from tests.rack.fixtures import SessionRack
from tests.rack.packages import why_not
from tests.rack.rack import RACKS, Rack
from tests.rack.shell import ending_with_us
from tests.rack.switch import Rule
from tests.support.processes import runs

pytestmark = pytest.mark.rack

LEAVE_A_RACK = """
import os, signal, sys
from tests.rack.rack import Rack
Rack.up(1, name=sys.argv[1], owned=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_end_ends_the_recorded_process(tmp_path: Path) -> None:
    record = tmp_path / "record"
    process.start(record, ["sleep", "600"], log=tmp_path / "log")
    while not record.exists():
        pass
    pid = int(record.read_text().split()[0])
    assert process.alive(record)
    process.end(record)
    assert not runs(pid)
    assert not record.exists()
    process.end(record)


def test_a_process_that_only_has_the_number_is_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "record"
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        record.write_text(f"{bystander.pid} 1\n")
        assert not process.alive(record)
        process.end(record)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_is_to_end_with_us_does_not_begin_after_us(tmp_path: Path) -> None:
    """We may die before the kernel has been asked to tell of it; a middleman is in our place here."""
    ran, began = tmp_path / "ran", [*ending_with_us(), "touch"]
    assert subprocess.run([*began, str(ran)], check=False).returncode == 0
    assert ran.exists()
    ran.unlink()
    done = subprocess.run(["sh", "-c", '"$@"; echo "$?"', "sh", *began, str(ran)], check=False, capture_output=True)
    assert done.stdout == b"1\n"
    assert not ran.exists()


def test_a_rack_whose_owner_was_killed_is_ended_by_the_next(session_rack: SessionRack) -> None:
    name = f"killed-{os.getpid()}"
    done = subprocess.run([sys.executable, "-c", LEAVE_A_RACK, name], check=False)
    assert done.returncode == -signal.SIGKILL
    left = RACKS / name
    pid = int((left / "host1.process").read_text().split()[0])
    assert runs(pid)
    rack = Rack.up(1, name=f"next-{os.getpid()}", owned=True)
    rack.down()
    assert not left.exists()
    assert not runs(pid)
    assert not Path(f"/run/netns/rack-{name}").exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in str(why_not())
    with pytest.raises(RackError, match="need root"):
        Rack.up(1, name="no-root")


@pytest.mark.parametrize("hosts", [0, 17])
def test_impossible_sizes_are_refused(hosts: int) -> None:
    with pytest.raises(RackError, match=f"1 to 16 hosts, not {hosts}"):
        Rack.up(hosts, name="size")


def test_an_unknown_rack_is_named() -> None:
    with pytest.raises(RackError, match="no rack 'nowhere' is up; start one with `make rack`"):
        Rack.attach("nowhere")
    with pytest.raises(RackError, match="a rack's name"):
        Rack("../etc")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"action": "drop", "port": 4791}, "port 4791 needs a protocol"),
        ({"action": "thin", "amount": 0}, "above 0 and at most 1, not 0"),
        ({"action": "thin", "amount": 5}, "above 0 and at most 1, not 5"),
        ({"action": "delay", "amount": 100}, "at most 60, not 100"),
    ],
)
def test_senseless_rules_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RackError, match=message):
        Rule(**fields)
