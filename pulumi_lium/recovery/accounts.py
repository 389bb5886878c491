"""The surroundings of the verbs for each account, outside the engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from pulumi_lium.api import SYSTEM_CLOCK, LiumApi
from pulumi_lium.api.errors import LiumError
from pulumi_lium.api.settings import DEFAULT_BASE_URL, normalise_base_url
from pulumi_lium.lifecycle.accounts import settings_for
from pulumi_lium.lifecycle.context import Context
from pulumi_lium.lifecycle.intents import IntentLog

from .survey import Contexts


def base_url_of(config: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Where the service of a stack is; needs no key."""
    return normalise_base_url(config.get("lium:baseUrl") or environ.get("LIUM_BASE_URL") or DEFAULT_BASE_URL)


def contexts_of(
    intents: IntentLog,
    environ: Mapping[str, str],
    report: Callable[[str], None],
    *,
    config: Mapping[str, Any] | None = None,
    is_hurried: Callable[[], bool] = lambda: False,
) -> Contexts:
    """Keys come from a stack's configuration, else from the environment. Each account is built when first used.

    Once `is_hurried`, a lost order is not waited for.
    """
    made: dict[str | None, Context] = {}

    def require_patience() -> None:
        if is_hurried():
            raise LiumError("It was interrupted, so a lost order was not waited for", code="interrupted")

    def context(account: str | None) -> Context:
        if account not in made:
            settings = settings_for((config or {}).get, environ, account)
            rng = random.SystemRandom()
            api = LiumApi(settings, rng=rng)
            made[account] = Context(api, SYSTEM_CLOCK, rng, report, intents, require_caller=require_patience)
        return made[account]

    return context
