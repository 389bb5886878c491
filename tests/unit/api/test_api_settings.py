"""Base URL and key: accepted as people write them, refused with a sentence, never repeated where secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from pulumi_lium.api import DEFAULT_BASE_URL, InvalidArgument, LiumApi, LiumError, Settings
from tests.unit.api.conftest import KEY


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://lium.io/api", "https://lium.io/api"),
        ("https://lium.io/api/", "https://lium.io/api"),
        ("https://lium.io/api///", "https://lium.io/api"),
        (" https://lium.io/api\n", "https://lium.io/api"),
        ("HTTPS://Lium.IO/Api", "https://lium.io/Api"),
        ("http://127.0.0.1:8321", "http://127.0.0.1:8321"),
        ("http://[::1]:8321/api", "http://[::1]:8321/api"),
        ("http://localhost:8321/", "http://localhost:8321"),
    ],
)
def test_base_urls(written, read) -> None:
    assert Settings(written, SecretStr(KEY)).base_url == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "https://"),
        ("lium.io/api", "https://"),
        ("ftp://lium.io/api", "https://"),
        ("file:///etc/passwd", "https://"),
        ("https://", "host"),
        ("https:///api", "host"),
        ("https://lium.io:port/api", "not a URL"),
        ("https://lium.io:99999/api", "not a URL"),
        ("https://[::1/api", "not a URL"),
        ("https://li um.io/api", "host"),
        ("https://lium.io\\@evil.example/api", "user name"),
        ("https://lium.io\\evil/api", "host"),
        ("https://lïum.io/api", "host"),
        ("https://lium.io/api?token=hunter2", "query"),
        ("hunter2", "https://"),
        ("https://lium.io/api#x", "fragment"),
        ("https://ana:hunter2@lium.io/api", "user name"),
        ("https://hunter2@lium.io/api", "user name"),
        ("https://:hunter2@lium.io/api", "user name"),
        ("ana:hunter2@lium.io/api", "user name"),
    ],
)
def test_base_urls_that_are_none(written, why) -> None:
    with pytest.raises(InvalidArgument, match=why) as caught:
        Settings(written, SecretStr(KEY))
    assert "LIUM_BASE_URL" in str(caught.value)
    assert DEFAULT_BASE_URL in str(caught.value)
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_from_env() -> None:
    found = Settings.from_env({"LIUM_API_KEY": KEY, "LIUM_BASE_URL": "http://127.0.0.1:1/api/"})
    assert (found.base_url, found.api_key.get_secret_value()) == ("http://127.0.0.1:1/api", KEY)
    assert Settings.from_env({"LIUM_API_KEY": KEY}).base_url == DEFAULT_BASE_URL
    assert Settings.from_env({"LIUM_API_KEY": KEY, "LIUM_BASE_URL": ""}).base_url == DEFAULT_BASE_URL


def test_the_official_clients_order_of_variables() -> None:
    found = Settings.from_env({"LIUM_API_KEY": "second", "LIUM_API_API_KEY": "first"})
    assert found.api_key.get_secret_value() == "first"


def test_arguments_win() -> None:
    environ = {"LIUM_API_KEY": "other", "LIUM_BASE_URL": "http://other"}
    found = Settings.from_env(environ, api_key=KEY, base_url="http://127.0.0.1:1", account="lab")
    assert (found.base_url, found.api_key.get_secret_value(), found.account) == ("http://127.0.0.1:1", KEY, "lab")


@pytest.mark.parametrize("environ", [{}, {"LIUM_API_KEY": ""}, {"LIUM_API_KEY": " \n"}])
def test_no_key(environ) -> None:
    with pytest.raises(InvalidArgument, match=r"LIUM_API_KEY.*lium:apiKey"):
        Settings.from_env(environ)


def test_a_line_break_at_the_end_of_a_key_is_no_fault() -> None:
    assert Settings.from_env({"LIUM_API_KEY": f"{KEY}\n"}).api_key.get_secret_value() == KEY


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY} x", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_is_none_is_not_repeated(key) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Settings.from_env({"LIUM_API_KEY": key})
    assert KEY not in f"{caught.value!r} {caught.value}"


def test_errors_of_settings_are_errors_of_the_package() -> None:
    assert issubclass(InvalidArgument, LiumError)
    assert issubclass(InvalidArgument, ValueError)


def test_no_repr_shows_the_key() -> None:
    found = Settings("https://lium.io/api", SecretStr(KEY), account="lab")
    api = LiumApi(found)
    shown = f"{found!r} {found} {api!r} {api.pods!r} {vars(api)} {vars(api.pods)} {vars(vars(api.pods)['_http'])}"
    assert KEY not in shown
    assert "lab" in repr(api)
