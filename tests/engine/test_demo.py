"""`make demo`, as a newcomer runs it, and stopped in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ProcessHandle, children
from tests.support.waiting import wait_for
from tools.pulumi.cli import Cli

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


class Demo:
    """The demo in a process of its own; `text()` is what it has printed."""

    def __init__(self, folder: Path, path: str) -> None:
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self._log = folder / "demo.log"
        environ = {"PATH": path, "HOME": os.environ["HOME"], "LANG": "C.UTF-8", "TMPDIR": str(self.scratch)}
        environ |= {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tools.demo"], cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        return self._log.read_text()

    def wait_until_says(self, text: str) -> None:
        wait_for(lambda: text in self.text() or self.process.poll() is not None, what=f"{text!r}", timeout=120)
        assert text in self.text(), self.text()


@pytest.fixture
def demo(tmp_path: Path, pulumi_cli: Cli) -> Iterator[Demo]:
    demo = Demo(tmp_path, pulumi_cli.path(os.environ["PATH"]))
    yield demo
    if demo.process.poll() is None:
        for handle in [*children(demo.process.pid), ProcessHandle(demo.process.pid)]:
            handle.end()
            handle.close()
    demo.process.wait()


def test_the_demo_orders_shows_destroys_and_settles(demo: Demo) -> None:
    code = demo.process.wait(240)
    text = demo.text()
    assert code == 0, text
    assert re.search(r"offer chosen: 2 machines of 8 x H100, \w+ fabric \S", text)
    assert re.search(r"price: \$\d+\.\d\d an hour", text)
    assert re.search(r"^  0 +10\.42\.0\.1 .*ssh root@", text, re.MULTILINE)
    assert re.search(r"^  1 +10\.42\.0\.2 .*ssh root@", text, re.MULTILINE)
    assert "master address for torchrun: 10.42.0.1" in text
    paid = re.search(r"ledger: 2 pods were charged \$(\S+) in all; nothing bills now: \$0\.00 an hour, 0 pods", text)
    assert paid is not None, text
    assert float(paid[1]) > 0
    assert "Traceback" not in text
    assert list(demo.scratch.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_nodes_boot_it_destroys_first(demo: Demo, number: signal.Signals) -> None:
    demo.wait_until_says("train-ready creating")
    with_it = children(demo.process.pid)
    demo.process.send_signal(number)
    code = demo.process.wait(180)
    text = demo.text()
    assert code == 130, text
    assert "nothing bills now: $0.00 an hour, 0 pods" in text
    assert "Traceback" not in text
    for handle in with_it:
        handle.wait(timeout=30)
        handle.close()
    assert list(demo.scratch.iterdir()) == []
