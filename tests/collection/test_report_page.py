"""The page of a report: what can be sold, what keeps the rest out, and nothing of a host's text taken for HTML."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._page.page import render_page
from ansible_collections.lium.cluster.plugins.plugin_utils._report import render
from ansible_collections.lium.cluster.plugins.plugin_utils._roce.results import ResultsError, for_report
from ansible_collections.lium.cluster.plugins.plugin_utils._sale import NO_FABRIC, sale

from tests.collection.conftest import ROOT
from tests.support.reports import host_records, measured, record, report_of, three_faults

SCHEMA = json.loads((ROOT / "docs" / "schema" / "report.schema.json").read_text())


class Page(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_hosts_with_a_blocker_are_not_sold() -> None:
    records = {"a": host_records(), "b": host_records(), "c": host_records(os__supported=record(status="MUST_FIX"))}
    (row,) = sale({"segment s": ["a", "b", "c"]}, records)
    assert row == {
        "name": "segment s",
        "hosts": ["a", "b", "c"],
        "sellable": ["a", "b"],
        "blocked": {"c": ["os.supported"]},
        "pairs": None,
    }


@pytest.mark.parametrize(
    ("status", "severity", "sold"),
    [
        ("WARN", "degraded", True),
        ("MUST_FIX", "degraded", True),
        ("MUST_FIX", "blocker", False),
        ("UNKNOWN", "degraded", True),
        ("UNKNOWN", "blocker", False),
        ("SKIPPED", "info", True),
    ],
)
def test_a_blocker_alone_keeps_a_host_out(status: str, severity: str, sold: bool) -> None:
    doubt = record(status=status, severity=severity)
    (row,) = sale({"s": ["a", "b", "c"]}, {"a": host_records(), "b": host_records(), "c": [doubt]})
    assert ("c" in row["sellable"]) is sold


def test_one_good_host_is_no_cluster() -> None:
    records = {"a": host_records(), "b": [record(status="MUST_FIX")]}
    (row,) = sale({"s": ["a", "b"]}, records)
    assert row["sellable"] == []
    assert row["blocked"] == {"a": ["fabric.group"], "b": ["os.supported"]}


def test_a_host_in_no_fabric_is_named() -> None:
    rows = sale({"s": ["a", "b"]}, {host: host_records() for host in "abc"})
    assert rows[-1] == {
        "name": NO_FABRIC,
        "hosts": ["c"],
        "sellable": [],
        "blocked": {"c": ["fabric.kind"]},
        "pairs": None,
    }


def test_only_hosts_whose_every_pair_is_proven_are_sold() -> None:
    hosts = ["a", "b", "c", "d"]
    roce = measured(hosts, {("a", "b"): None, ("a", "c"): None})
    records = {host: host_records() for host in hosts}
    (row,) = sale({"s": hosts}, records, roce["fabrics"])
    assert row["sellable"] == ["b", "c", "d"]
    assert row["blocked"] == {"a": ["roce.pairs"]}
    records["d"] = [record(status="MUST_FIX")]
    (row,) = sale({"s": hosts}, records, roce["fabrics"])
    assert row["sellable"] == ["b", "c"], "the largest set among those that nothing else keeps out"


def test_a_verification_names_the_fabric_where_no_host_was_looked_at() -> None:
    roce = measured(["a", "b"], {})
    (row,) = sale({}, {host: [record("roce.pairs")] for host in "ab"}, roce["fabrics"])
    assert (row["name"], row["sellable"]) == ("segment 10.77.0.0/24", ["a", "b"])


def test_the_three_faults_are_on_screen_and_page() -> None:
    report, roce = three_faults()
    jsonschema.validate(report, SCHEMA)
    (fabric,) = report["fabrics"]
    assert fabric["sellable"] == ["host1", "host4", "host6"]
    assert fabric["blocked"] == {"host2": ["rdma.modules"], "host3": ["wg.port_free"], "host5": ["roce.pairs"]}
    screen, page = render(report), Page(render_page(report, roce)).text
    for text in (
        "3 of 6 hosts",
        "ib_uverbs, rdma_ucm are not loaded",
        "UDP 51820: WireGuard interface wg0 of this host",
        "0 of 5 pairs proven",
    ):
        assert text in page
        assert text in screen
    assert "10 of 15 pairs proven" in page
    assert "host host5 (5 pairs)" in page
    assert page.startswith("3 of 6 hosts can be sold"), page[:80]


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    page = Page(render_page(*three_faults()))
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)


def test_links_lead_to_places_of_the_page() -> None:
    page = Page(render_page(*three_faults()))
    places = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(places) == len(set(places))
    assert {(attributes["href"] or "")[1:] for tag, attributes in page.tags if tag == "a"} <= set(places)


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "{{ 7 * 7 }}", "&amp;\0'"])
def test_text_of_a_host_is_text_on_the_page(evil: str) -> None:
    bad = record(status="MUST_FIX", title=evil, observed=evil, remediation=evil, expected=evil, evidence_source=evil)
    host = f"a{evil}"
    report = report_of({host: [bad], "b": host_records()})
    roce = measured([host, "b"], {(host, "b"): None})
    page = Page(render_page(report, roce))
    clean = Page(
        render_page(
            report_of({"a": [record(status="MUST_FIX")], "b": host_records()}), measured(["a", "b"], {("a", "b"): None})
        )
    )
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in clean.tags]
    assert " ".join(evil.replace("\0", "\ufffd").split()) in page.text.replace("\0", "\ufffd")


def cells(page: str) -> list[str]:
    return re.findall(r'<td style="[^"]*" class="(\w+)"', page)


def test_pairs_are_shaded_by_what_their_links_allow() -> None:
    hosts = ["a", "b", "c"]
    roce = measured(hosts, {("a", "b"): 55.0, ("b", "c"): None})
    page = render_page(report_of({host: host_records() for host in hosts}, roce), roce)
    assert cells(page) == ["SKIPPED", "OK", "OK", "OK", "SKIPPED", "MUST_FIX", "OK", "MUST_FIX", "SKIPPED"]
    depth = [int(value) for value in re.findall(r"var\(--ok\) (\d+)%", page)]
    assert depth[0] < depth[1], "55 of 100 is paler than 92 of 100"
    assert "a and b: 55 Gb/s, 55% of what the links allow" in page
    assert "b and c: packets are dropped on the way" in page


def test_a_large_fabric_is_a_picture_of_one_point_a_pair() -> None:
    hosts = [f"h{number:03}" for number in range(100)]
    roce = measured(hosts, {("h003", "h050"): None})
    page = render_page(report_of({host: host_records() for host in hosts}, roce), roce)
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    png = base64.b64decode(data)
    assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (100, 100)
    rows = zlib.decompress(png[png.index(b"IDAT") + 4 : png.index(b"IEND") - 8])
    points = [[rows[row * 301 + 1 + 3 * column :][:3] for column in range(100)] for row in range(100)]
    failed = {
        (row, column) for row in range(100) for column in range(100) if points[row][column] == bytes((192, 38, 45))
    }
    assert failed == {(3, 50), (50, 3)}
    assert "not proven with 1 (h050)" in Page(page).text
    assert len(page) < 1_000_000


def test_the_overlay_has_its_map() -> None:
    report: dict[str, Any] = report_of({"a": host_records(), "b": host_records()})
    report["wireguard_pairs"] = [
        {"from": "a", "to": "b", "state": "reachable", "cause": ""},
        {"from": "b", "to": "a", "state": "not verified", "cause": "UDP 51820 does not arrive"},
    ]
    page = render_page(report)
    assert cells(page) == ["SKIPPED", "OK", "UNKNOWN", "SKIPPED"]
    assert "b to a: UDP 51820 does not arrive" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a readable file"),
        ("[]", "no list of records"),
        ('{"records": []}', "no list of fabrics"),
        ('{"records": [], "fabrics": [{}]}', "lacks blocking"),
        ('{"records": [{"a": 1}], "fabrics": []}', "lacks b, cause"),
    ],
)
def test_results_that_are_none_are_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "lium-roce.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=says):
        for_report(str(path))
    assert for_report(str(tmp_path / "absent.json")) is None
