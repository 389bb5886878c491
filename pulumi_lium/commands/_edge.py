"""What every command has in common: exit codes, the service to talk to, output for people and for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..api import ApiError, InvalidArgument, LiumApi, LiumError, Refused, Settings

FAILED = 1
"""Also when the listing cannot be read: nothing is known then."""
WRONG_USE = 2
REFUSED = 3
"""The service said no."""
MAY_BILL = 4
"""Something may still bill."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """One line for a person and the exit code of design 4.2 in place of a traceback."""
    from ..lifecycle.errors import InvalidInputs

    try:
        yield
    except (InvalidArgument, InvalidInputs) as error:
        raise _Stop(error, WRONG_USE) from error
    except (ApiError, Refused) as error:
        # A gateway's 5xx is no decision of the service.
        raise _Stop(error, FAILED if error.status is not None and error.status >= 500 else REFUSED) from error
    except LiumError as error:
        raise _Stop(error, FAILED) from error


class _Stop(click.ClickException):
    def __init__(self, error: LiumError, code: int) -> None:
        super().__init__(str(error))
        self.exit_code = code  # type: ignore[misc]


def connect() -> LiumApi:
    """The service of the environment (`LIUM_API_KEY`, `LIUM_BASE_URL`)."""
    return LiumApi(Settings.from_env(os.environ))


def print_json(document: Any) -> None:
    """A document on standard output, and nothing else there."""
    click.echo(json.dumps(document, indent=2))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs.")
