"""Where the service is and which key to use. Built once, at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from .errors import InvalidArgument

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
    """The base without a slash at its end (contract 1.1). Raises `InvalidArgument`; never repeats a password."""
    text = text.strip()
    example = f"Give it like {DEFAULT_BASE_URL}."
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidArgument("LIUM_BASE_URL is not a URL.", hint=example) from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise InvalidArgument("LIUM_BASE_URL holds a user name or password.", hint=f"Take it out. {example}")
    if parts.scheme not in ("http", "https"):
        raise InvalidArgument(f"LIUM_BASE_URL {text!r} does not begin with https:// or http://.", hint=example)
    if not host or "\\" in text or any(not 0x21 <= ord(character) < 0x7F for character in text):
        raise InvalidArgument(f"LIUM_BASE_URL {text!r} names no usable host.", hint=example)
    if parts.query or parts.fragment:
        raise InvalidArgument(f"LIUM_BASE_URL {text!r} has a query or a fragment.", hint=example)
    shown_host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown_host}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"


def _usable_key(secret: SecretStr | str) -> str:
    key = (secret if isinstance(secret, str) else secret.get_secret_value()).strip()
    if not key:
        raise InvalidArgument(
            "No API key is set.", hint="Set LIUM_API_KEY, or `pulumi config set --secret lium:apiKey`."
        )
    if any(not 0x21 <= ord(character) < 0x7F for character in key):
        raise InvalidArgument(
            "The API key holds a blank, a line break or a character outside ASCII.", hint="Copy it again, whole."
        )
    return key
