"""A machine of the marketplace: in an offer it is free, in a pod it is the host (contract 3.1)."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, model_validator

from ._model import Count, Model, Number, Readable, ReadableText, Text, Usd, UtcTime

_RTX = re.compile(r"\bRTX\s*(PRO)?\s*(\d+D?)\b")
_DATA_CENTRE = re.compile(r"\b([A-Z]{1,2}\d{2,4}[A-Z]?)\b")


def short_gpu_type(model: str) -> str:
    """`NVIDIA H100 80GB HBM3` → `H100`: the short name that people select by (contract 3.1)."""
    model = model.upper()
    if found := _RTX.search(model):
        return f"RTX{found[1] or ''}{found[2]}"
    if found := _DATA_CENTRE.search(model):
        return found[1]
    return model.split()[-1] if model.split() else ""


class Node(Model):
    """A machine. Prices are USD per hour; one that the service did not give is null, never 0."""

    id: Text = ""
    gpu_model: ReadableText = Field(default="", validation_alias="machine_name")
    gpu_count: Count = 1
    available_gpu_count: Readable[Count] = None
    min_gpu_count_for_rental: Readable[Count] = None
    price_per_gpu: Readable[Usd] = None
    country: Readable[str] = None
    country_code: Readable[str] = None
    city: Readable[str] = None
    public_ip: ReadableText = Field(default="", validation_alias="executor_ip_address")
    status: Readable[str] = None
    tier: Readable[str] = None
    driver_version: Readable[str] = None
    upload_mbps: Readable[Number] = Field(default=None, validation_alias="effective_upload_speed_mbps")
    download_mbps: Readable[Number] = Field(default=None, validation_alias="effective_download_speed_mbps")
    max_cuda_version: Readable[Number] = None
    reliability_score: Readable[Number] = None
    frequent_rent_failures: Readable[bool] = None
    last_verified_at: Readable[UtcTime] = None

    @model_validator(mode="before")
    @classmethod
    def _from_row(cls, row: Any) -> Any:
        """Bring the nested parts of a row to the top, and find the GPU count where the contract says to look."""
        if not isinstance(row, dict):
            return row
        flat = dict(row)
        specs = _mapping(row.get("specs"))
        gpu = _mapping(specs.get("gpu"))
        location = _mapping(row.get("location")) or _mapping(specs.get("location"))
        found = {
            "country": location.get("country"),
            "country_code": location.get("country_code") or location.get("iso_code"),
            "city": location.get("city"),
            "driver_version": gpu.get("driver"),
        }
        flat.update({field: value for field, value in found.items() if value is not None})
        if flat.get("gpu_count") is None:
            details = gpu.get("details")
            counted = len(details) if isinstance(details, list) else None
            flat["gpu_count"] = gpu["count"] if gpu.get("count") is not None else counted or 1
        return flat

    @property
    def gpu_type(self) -> str:
        """The short name of the GPU: `H100`."""
        return short_gpu_type(self.gpu_model)

    @property
    def price_per_hour(self) -> float | None:
        """USD per hour for the whole machine; null when the service gave no price."""
        return None if self.price_per_gpu is None else self.price_per_gpu * self.gpu_count


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
