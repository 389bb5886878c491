"""Folders that are made once: by one of two processes, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tools.cache import cache_root, digest, made_once

ROOT = Path(__file__).resolve().parents[3]

# Makes root/thing, logs that it did, and waits for the file `gate`.
MAKER = """
import sys, time
from pathlib import Path
from tools.cache import made_once
root, log, gate = map(Path, sys.argv[1:])
def make(scratch):
    with log.open("a") as file:
        file.write("made\\n")
    while not gate.exists():
        time.sleep(0.02)
    (scratch / "content").write_text("whole")
print((made_once(root, "thing", make) / "content").read_text())
"""


def start_maker(root: Path, log: Path, gate: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", MAKER, str(root), str(log), str(gate)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_two_processes_make_it_once(tmp_path: Path) -> None:
    root, log, gate = tmp_path / "cache", tmp_path / "log", tmp_path / "gate"
    first = start_maker(root, log, gate)
    wait_for(log.exists, what="the first maker is at work")
    second = start_maker(root, log, gate)
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting")
    gate.touch()
    assert first.communicate(timeout=30)[0].splitlines()[-1] == "whole"
    assert second.communicate(timeout=30)[0].splitlines()[-1] == "whole"
    assert log.read_text() == "made\n"


def test_a_killed_maker_leaves_no_half(tmp_path: Path) -> None:
    root, log, gate = tmp_path / "cache", tmp_path / "log", tmp_path / "gate"
    killed = start_maker(root, log, gate)
    wait_for(log.exists, what="the maker is at work")
    killed.kill()
    killed.communicate()
    assert not (root / "thing").exists()
    gate.touch()
    after = start_maker(root, log, gate)
    assert after.communicate(timeout=30)[0].strip() == "whole"
    assert sorted(path.name for path in root.iterdir()) == ["thing", "thing.lock"]


def test_a_failed_maker_leaves_no_half(tmp_path: Path) -> None:
    def fail(scratch: Path) -> None:
        (scratch / "half").touch()
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        made_once(tmp_path, "thing", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]
    assert (made_once(tmp_path, "thing", lambda scratch: (scratch / "whole").touch()) / "whole").exists()


def test_the_digest_tells_lists_of_parts_apart() -> None:
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])
    assert digest([b"abc"]) == digest([b"abc"])


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/home/u"}, "linux", "/home/u/.cache/pulumi-lium"),
        ({"HOME": "/home/u", "XDG_CACHE_HOME": "/var/c"}, "linux", "/var/c/pulumi-lium"),
        ({"HOME": "/home/u", "XDG_CACHE_HOME": "relative"}, "linux", "/home/u/.cache/pulumi-lium"),
        ({"HOME": "/Users/u"}, "darwin", "/Users/u/Library/Caches/pulumi-lium"),
    ],
)
def test_the_place_of_the_cache(environ: dict[str, str], platform: str, expected: str) -> None:
    assert cache_root(environ, platform) == Path(expected)
