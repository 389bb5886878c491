"""Which key: one per account, from the stack's configuration or the environment, never from an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulumi_lium.api import InvalidArgument, NoApiKey, Settings


def settings_for(config: Callable[[str], Any], environ: Mapping[str, str], account: str | None) -> Settings:
    """Settings of one account: stack configuration first, then the environment.

    The default account has `lium:apiKey` or `LIUM_API_KEY`; the account NAME has `lium:apiKey-NAME` or
    `LIUM_API_KEY_NAME`, and never falls back to another account's key. `lium:baseUrl` or `LIUM_BASE_URL` says where.
    """
    base_url = config("lium:baseUrl")
    if account is None:
        return Settings.from_env(environ, api_key=config("lium:apiKey"), base_url=base_url)
    if not account.strip():
        raise InvalidArgument("The account's name is empty.", hint="Leave it out, or name a configured account.")
    variable = "LIUM_API_KEY_" + "".join(c if c.isalnum() else "_" for c in account.upper())
    key = config(f"lium:apiKey-{account}") or environ.get(variable)
    if not key:
        raise NoApiKey(
            f"No API key is set for the account {account!r}.",
            hint=f"Run `pulumi config set --secret lium:apiKey-{account}`, or set {variable}.",
        )
    return Settings.from_env(environ, api_key=key, base_url=base_url, account=account)
