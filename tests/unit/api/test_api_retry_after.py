from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulumi_lium.api._retry_after import LONGEST_WAIT, retry_after_seconds

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("1_0", None),
        ("٣", None),
        ("7, 7", None),
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0.493", 0.493),
        ("7.", 7.0),
        ("60.5", 60.0),
        ("99999999999", 60.0),
        ("9" * 400, None),
        ("Mon, 30 Nov 2026 09:00:30 GMT", 30.0),
        ("Monday, 30-Nov-26 09:00:30 GMT", 30.0),
        ("Mon Nov 30 09:00:30 2026", 30.0),
        ("Mon, 30 Nov 2026 10:00:30 +0100", 30.0),
        ("Mon, 30 Nov 2026 09:00:30 -0000", 30.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Fri, 31 Dec 2027 23:59:59 GMT", 60.0),
        ("Mon, 30 Feb 2026 09:00:30 GMT", None),
        ("Mon, 30 Nov 2026 99:00:30 GMT", None),
    ],
)
def test_each_form(header, seconds) -> None:
    assert retry_after_seconds(header, NOW) == seconds


@given(st.text() | st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{1,5} \d\d:\d\d:\d\d( [+-]?\w{1,6})?\Z"))
def test_no_header_gives_more_than_the_cap_or_an_error(header) -> None:
    seconds = retry_after_seconds(header, NOW)
    assert seconds is None or 0 <= seconds <= LONGEST_WAIT
