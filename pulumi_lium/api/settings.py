"""Where the service is and which key to use. Built once, at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from .errors import InvalidArgument, NoApiKey

DEFAULT_BASE_URL = "https://lium.io/api"


@dataclass(frozen=True)
class Settings:
    """One account of one service. `account` is its name in the configuration (no secret); null is the default one."""

    base_url: str
    api_key: SecretStr
    account: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalise_base_url(self.base_url))
        object.__setattr__(self, "api_key", SecretStr(_usable_key(self.api_key)))

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        account: str | None = None,
    ) -> Settings:
        """Settings from the environment, in the official client's variables; an argument wins over its variable.

        `LIUM_API_API_KEY` comes before `LIUM_API_KEY` (contract 6.1), so that both clients act for one account.
        An empty value counts as none. Raises `InvalidArgument`.
        """
        key = api_key or environ.get("LIUM_API_API_KEY") or environ.get("LIUM_API_KEY") or ""
        return cls(
            base_url=base_url or environ.get("LIUM_BASE_URL") or DEFAULT_BASE_URL,
            api_key=key if isinstance(key, SecretStr) else SecretStr(key),
            account=account,
        )


def normalise_base_url(text: str) -> str:
    """The base without a slash at its end (contract 1.1). Raises `InvalidArgument`.

    The text is never repeated: it may hold a password, or be a key that was put into the wrong variable.
    """
    text = text.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_base_url("is not a URL") from None
    if "@" in text:
        raise _no_base_url("holds a user name or password: take it out")
    if parts.scheme not in ("http", "https"):
        raise _no_base_url("does not begin with https:// or http://")
    if not host or "\\" in text or not _is_plain(text):
        raise _no_base_url("names no usable host")
    if parts.query or parts.fragment:
        raise _no_base_url("has a query or a fragment")
    authority = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    return f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"


def _no_base_url(why: str) -> InvalidArgument:
    return InvalidArgument(f"LIUM_BASE_URL {why}.", hint=f"Give it like {DEFAULT_BASE_URL}.")


def _is_plain(text: str) -> bool:
    return all(0x21 <= ord(character) < 0x7F for character in text)


def _usable_key(secret: SecretStr | str) -> str:
    key = (secret if isinstance(secret, str) else secret.get_secret_value()).strip()
    if not key:
        hint = "Set LIUM_API_KEY. For a stack `pulumi config set --secret lium:apiKey` does too."
        raise NoApiKey("No API key is set.", hint=hint)
    if not _is_plain(key):
        raise InvalidArgument(
            "The API key holds a blank, a line break or a character outside ASCII.", hint="Copy it again, whole."
        )
    return key
