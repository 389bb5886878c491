"""The package is cheap to import: what costs is loaded by the first call."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pulumi_lium.api as api


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import pulumi_lium.api",
        "from pulumi_lium.api import LiumError, NotFound, Conflict, Clock, SYSTEM_CLOCK",
        "from pulumi_lium.api import Transport, RawAnswer, RequestsTransport",
    ],
)
def test_names_that_cost_nothing(statement) -> None:
    assert loaded_by(statement).isdisjoint({"pydantic", "requests", "urllib3", "pulumi"})


def test_a_client_needs_no_requests_until_it_calls() -> None:
    loaded = loaded_by("from pulumi_lium.api import LiumApi, Settings; LiumApi(Settings('http://127.0.0.1:1', 'sk_x'))")
    assert "pydantic" in loaded
    assert loaded.isdisjoint({"requests", "urllib3", "pulumi"})


def test_every_name_is_there_and_every_public_error_is_named() -> None:
    from pulumi_lium.api import errors

    for name in api.__all__:
        assert getattr(api, name) is not None
    public = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert public <= set(api.__all__)
    assert set(api.__all__) <= set(dir(api))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = api.NoSuchName
