"""What every command has in common: exit codes, the service to talk to, output for people and for programs.

With `--json` standard output holds one JSON document, also when the command fails: `{"error": {…}}` then, while the
line for a person stands on standard error as ever.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from ..api import ApiError, InvalidArgument, LiumApi, LiumError, Refused
from ..lifecycle.accounts import settings_for
from . import JSON_FLAG

FAILED = 1
"""Also when the listing cannot be read: nothing is known then."""
WRONG_USE = 2
REFUSED = 3
"""The service said no."""
MAY_BILL = 4
"""Something may still bill."""


@contextmanager
def exit_codes(*, as_json: bool = False) -> Iterator[None]:
    """One line for a person and the exit code of design 4.2 in place of a traceback; a document too with `as_json`."""
    from ..lifecycle.errors import InvalidInputs

    try:
        yield
    except (InvalidArgument, InvalidInputs) as error:
        _stop(error, WRONG_USE, as_json)
    except (ApiError, Refused) as error:
        # A gateway's 5xx is no decision of the service.
        _stop(error, FAILED if error.status is not None and error.status >= 500 else REFUSED, as_json)
    except LiumError as error:
        _stop(error, FAILED, as_json)
    except click.ClickException as error:
        if as_json:
            _print(error_document(_code_of(error), error.format_message(), _advice_of(error), error.exit_code))
        raise
    except click.Abort:
        if as_json:
            _print(error_document("interrupted", "It was interrupted", None, FAILED))
        raise
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever read the output has had enough
            raise
        _drop_what_cannot_be_written()
        where = f"{error.filename}: " if error.filename else ""
        told = LiumError(f"{where}{error.strerror or error}", code="os_error", hint="Free space, or mend the path.")
        _stop(told, FAILED, as_json)


def _stop(error: LiumError, exit_code: int, as_json: bool) -> NoReturn:
    if as_json:
        document = error_document(_code_of(error), error.message, error.hint or error.advice or None, exit_code)
        document["error"] |= {
            "status": error.status,
            "request_id": error.request_id,
            "outcome_unknown": error.outcome_unknown,
        }
        _print(document)
    stop = click.ClickException(str(error))
    stop.exit_code = exit_code  # type: ignore[misc]
    raise stop from error


def _print(document: dict[str, Any]) -> None:
    with suppress(OSError):  # where standard output is what failed, the exit code and the line still tell
        print_json(document)
    _drop_what_cannot_be_written()


def _drop_what_cannot_be_written() -> None:
    """Else the interpreter tries again at its end, and its exit code takes the place of ours."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_document(code: str, message: str, hint: str | None, exit_code: int) -> dict[str, Any]:
    """What a program reads in place of a command's own document."""
    return {"error": {"code": code, "message": message, "hint": hint, "exit_code": exit_code}}


def _code_of(error: LiumError | click.ClickException) -> str:
    """The error's own code, else one from the name of its class: `transport_error`."""
    if isinstance(error, LiumError):
        return error.code or re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    return "wrong_use" if isinstance(error, click.UsageError) else "failed"


def _advice_of(error: click.ClickException) -> str | None:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"See `{ctx.command_path} --help`." if ctx else None


def connect(account: str | None = None) -> LiumApi:
    """The service of the environment: `LIUM_BASE_URL`, and `LIUM_API_KEY` or the variable of the named account."""
    return LiumApi(settings_for(lambda _: None, os.environ, account))


def print_json(document: Any) -> None:
    """A document on standard output, and nothing else there."""
    click.echo(json.dumps(document, indent=2))


json_option = click.option(
    JSON_FLAG, "as_json", is_flag=True, help="Print one JSON document on standard output, for programs; errors too."
)
account_option = click.option(
    "--account", metavar="NAME", help="The account whose key is in LIUM_API_KEY_NAME; by default that of LIUM_API_KEY."
)
