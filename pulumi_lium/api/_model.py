"""The field types that the models share.

Two kinds of fields: *decisive* ones (ids, status, cluster, rank: what an action rests on) must be right, or the whole
answer is undecodable; *informational* ones (`Readable[...]`) become null when they cannot be read, so that a strange
`reliability_score` keeps nobody from deleting a cluster.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidatorFunctionWrapHandler
from pydantic.functional_validators import WrapValidator

_LARGEST_EXACT = 2**53
_MOST_USD = 1e9


class Model(BaseModel):
    """A row of the service: immutable, unknown fields ignored, inputs kept out of error texts."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, hide_input_in_errors=True)


def _whole(value: Any) -> Any:
    """Numbers may travel as 2.0 or "2" (contract 3.1, 3.3); true, 2.5 and numbers beyond exact floats are none."""
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > _LARGEST_EXACT:
        raise ValueError("not a whole number")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("not a number")
    return value


def _utc(moment: datetime) -> datetime:
    """Naive means UTC (contract 1.8)."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError("beyond the calendar") from None


def _null_if_unreadable(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValueError:
        return None


def _empty_if_null(value: Any) -> Any:
    return "" if value is None else value


def _empty_if_unreadable(value: Any) -> str:
    return value if isinstance(value, str) else ""


_T = TypeVar("_T")

WholeNumber = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Usd = Annotated[float, BeforeValidator(_number), Field(ge=0, le=_MOST_USD, allow_inf_nan=False)]
UtcTime = Annotated[datetime, AfterValidator(_utc)]
Text = Annotated[str, BeforeValidator(_empty_if_null)]
ReadableText = Annotated[str, BeforeValidator(_empty_if_unreadable)]
Id = Annotated[str, Field(min_length=1, strict=True)]
Readable = Annotated[_T | None, WrapValidator(_null_if_unreadable)]
