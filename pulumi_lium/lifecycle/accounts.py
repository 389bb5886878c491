"""Which key: one per account, from the stack's configuration or the environment, never from an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulumi_lium.api import InvalidArgument, NoApiKey, Settings

_LONGEST_NAME = 64


def fault_of_account_name(account: str) -> str | None:
    """What is wrong with the name of an account; None where nothing is.

    A key that is given in the name's place is refused, and not repeated: the name stands in the state and in messages.
    """
    if not account.strip():
        return "is empty: leave it out, or name a configured account"
    if account.lower().startswith(("sk_", "sk-")) or len(account) > _LONGEST_NAME:
        return "looks like an API key: give a name here, and the key as `lium:apiKey-NAME` or LIUM_API_KEY_NAME"
    return None


def settings_for(config: Callable[[str], Any], environ: Mapping[str, str], account: str | None) -> Settings:
    """Settings of one account: stack configuration first, then the environment.

    The default account has `lium:apiKey` or `LIUM_API_KEY`; the account NAME has `lium:apiKey-NAME` or
    `LIUM_API_KEY_NAME`, and never falls back to another account's key. `lium:baseUrl` or `LIUM_BASE_URL` says where.
    """
    base_url = config("lium:baseUrl")
    if account is None:
        return Settings.from_env(environ, api_key=config("lium:apiKey"), base_url=base_url)
    if fault := fault_of_account_name(account):
        raise InvalidArgument(f"The account's name {fault}.")
    variable = "LIUM_API_KEY_" + "".join(c if c.isalnum() else "_" for c in account.upper())
    key = config(f"lium:apiKey-{account}") or environ.get(variable)
    if not key:
        raise NoApiKey(
            f"No API key is set for the account {account!r}.",
            hint=f"Set {variable}. For a stack `pulumi config set --secret lium:apiKey-{account}` does too.",
        )
    return Settings.from_env(environ, api_key=key, base_url=base_url, account=account)
