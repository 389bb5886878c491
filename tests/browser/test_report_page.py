"""The page of a report in a real browser: on a desk, on a phone, on paper."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._page.page import render_page

from tests.support.reports import host_records, measured, report_of, three_faults

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: What a test asks the page, answered in its title: the page itself has no script.
_ASK = """<script>
const box = (element) => element.getBoundingClientRect();
document.title = JSON.stringify({
  width: document.documentElement.scrollWidth,
  inner: window.innerWidth,
  bad: [...document.querySelectorAll(".badge.MUST_FIX")]
    .filter((e) => /^not /.test(e.textContent)).map((e) => box(e).bottom),
  hidden: [...document.querySelectorAll(".card p, .card dd")].filter((e) => box(e).right > window.innerWidth).length,
  cells: [...document.querySelectorAll("td.MUST_FIX")].map((e) => getComputedStyle(e).backgroundColor),
  good: [...document.querySelectorAll("td.OK")].map((e) => getComputedStyle(e).backgroundColor),
});
</script>"""
PHONE, DESK = (390, 844), (1280, 800)


def chromium(page: Path, *arguments: str) -> str:
    done = subprocess.run(
        [
            "chromium",
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            f"--user-data-dir={page.parent / 'profile'}",
            *arguments,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def ask(page: Path, size: tuple[int, int]) -> dict[str, Any]:
    """What the page looks like in a window of that size; a frame gives the size, as a window has a least width."""
    asking = page.with_name("asking.html")
    asking.write_text(page.read_text(encoding="utf-8") + _ASK, encoding="utf-8")
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<iframe src="asking.html" style="width:{size[0]}px;height:{size[1]}px;border:0"'
        ' onload="document.title = this.contentDocument.title"></iframe>',
        encoding="utf-8",
    )
    dom = chromium(frame, "--allow-file-access-from-files", "--virtual-time-budget=10000", "--dump-dom")
    (title,) = re.findall(r"<title>(\{.*?\})</title>", dom)
    return dict(json.loads(title))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page of a rack with three planted faults."""
    path = tmp_path / "lium-report.html"
    path.write_text(render_page(*three_faults()), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_each_planted_fault_is_seen_at_first_glance(page: Path, size: tuple[int, int]) -> None:
    seen = ask(page, size)
    assert seen["inner"] == size[0]
    assert len(seen["bad"]) == 3
    assert max(seen["bad"]) <= size[1], "without scrolling"
    assert seen["width"] <= size[0], "nothing is cut off at the side"
    assert seen["hidden"] == 0


def test_a_fault_has_another_colour_than_what_is_good(page: Path) -> None:
    seen = ask(page, DESK)
    assert seen["cells"]
    assert not set(seen["cells"]) & set(seen["good"])
    assert "rgba(0, 0, 0, 0)" not in {*seen["cells"], *seen["good"]}


def test_a_wide_rack_does_not_widen_the_page(tmp_path: Path) -> None:
    hosts = [f"gpu-{number:02}.rack-7.example" for number in range(40)]
    roce = measured(hosts, {(hosts[3], hosts[9]): None})
    path = tmp_path / "wide.html"
    path.write_text(render_page(report_of({host: host_records() for host in hosts}, roce), roce), encoding="utf-8")
    assert ask(path, PHONE)["width"] <= PHONE[0]


@pytest.mark.parametrize("hosts", [6, 20])
def test_on_paper_nothing_is_lost(tmp_path: Path, hosts: int) -> None:
    """Also what is folded away on a screen: the checks that are well, and on a large rack all of them."""
    page, pdf = tmp_path / "page.html", tmp_path / "page.pdf"
    report, roce = three_faults(hosts)
    page.write_text(render_page(report, roce), encoding="utf-8")
    chromium(page, "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    text = subprocess.run(
        ["pdftotext", "-layout", pdf, "-"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for words in (
        f"{hosts - 3} of {hosts} hosts can be sold",
        "ib_uverbs, rdma_ucm are not loaded",
        "Give wg0 another port",
        "Look at its port",
    ):
        assert words in text
    for host in report["hosts"]:
        assert host["name"] in text
    checks = sum(len(host["records"]) for host in report["hosts"])
    assert len(re.findall(r"Read from +source\n", text)) == checks


def test_a_picture_can_be_taken_of_it(page: Path) -> None:
    """With colours in it: a page whose style is broken is black on white."""
    png = page.with_suffix(".png")
    chromium(page, "--window-size=1280,1600", f"--screenshot={png}")
    data = png.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1280, 1600)
    assert len(data) > 20_000
