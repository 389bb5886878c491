"""Host: a machine, who holds its GPUs, and its node row (contract 3.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import scenario
from .records import UNSTORED, Record
from .wire import micros

if TYPE_CHECKING:
    from .fabrics import FabricGroup
    from .pods import Pod

# MiB of memory per GPU, where the product's name does not carry it.
_CAPACITY = {"H200": 143771, "B200": 183359, "B300": 275040, "L40S": 46068, "4090": 24564, "5090": 32607}


@dataclass(slots=True, eq=False, repr=False)
class Host(Record):
    """A machine of a provider.

    `taken` counts the GPUs that others rent, outside this market's pods; `used` those of its pods. An offline host is
    in no list. `refusals` orders fail on it though it looks free (-1: all of them), with `refusal_reason`.
    """

    spec: scenario.Host = field(metadata=UNSTORED)
    provider: scenario.Provider = field(metadata=UNSTORED)
    taken: int = 0
    online: bool = True
    refusals: int = 0
    refusal_reason: str | None = None
    used: int = field(metadata=UNSTORED, default=0)
    pods: dict[str, Pod] = field(metadata=UNSTORED, default_factory=dict)
    group: FabricGroup | None = field(metadata=UNSTORED, default=None)
    fabric_ip: str | None = field(metadata=UNSTORED, default=None)
    id: str = field(metadata=UNSTORED, default="")
    gpu_count: int = field(metadata=UNSTORED, default=0)
    price: int = field(metadata=UNSTORED, default=0)
    base: dict[str, Any] = field(metadata=UNSTORED, default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(metadata=UNSTORED, default_factory=dict)

    def __post_init__(self) -> None:
        self.id = self.spec.id
        self.gpu_count = self.spec.gpu_count
        self.price = micros(self.spec.price_per_gpu) * self.gpu_count
        self.base = self._base()

    @property
    def free(self) -> int:
        """GPUs that nobody holds; 0 while the host is offline."""
        return self.gpu_count - self.taken - self.used if self.online else 0

    @property
    def whole(self) -> bool:
        """Whether the host is entirely free."""
        return self.online and not self.taken and not self.used

    @property
    def rentable(self) -> bool:
        """Whether an ordinary pod fits: whole when the host rents whole only, else its smallest share (contract
        3.1)."""
        return self.free >= (self.spec.min_gpu_count_for_rental or self.gpu_count)

    def changed(self) -> None:
        """The occupancy changed, and with it what is on sale."""
        if self.group is not None:
            self.group.stale = True

    def hold(self, pod: Pod) -> None:
        """A pod takes its GPUs here."""
        self.pods[pod.id] = pod
        self.used += pod.gpu_count
        if self.taken + self.used > self.gpu_count:
            raise AssertionError(f"host {self.id} is over-occupied")
        self.changed()

    def release(self, pod: Pod) -> None:
        """A pod gives its GPUs back."""
        del self.pods[pod.id]
        self.used -= pod.gpu_count
        self.changed()

    def row(self) -> dict[str, Any]:
        """Node row, as in offers and GET /executors. Shared: the reader must not change it."""
        free = self.free
        if free not in self.rows:
            self.rows[free] = {**self.base, "available_gpu_count": free}
        return self.rows[free]

    def _base(self) -> dict[str, Any]:
        model = self.spec.gpu_model
        count = self.gpu_count
        place = self.provider.location
        return {
            "id": self.spec.id,
            "machine_name": model,
            "gpu_count": count,
            "min_gpu_count_for_rental": self.spec.min_gpu_count_for_rental,
            "price_per_gpu": float(self.spec.price_per_gpu),
            "status": "active",
            "tier": self.spec.tier,
            "executor_ip_address": self.spec.public_ip,
            "location": {"country": place.country, "country_code": place.country_code, "city": place.city},
            "specs": {
                "gpu": {
                    "count": count,
                    "driver": self.spec.driver,
                    "details": [{"name": model, "capacity": _capacity(model)}] * count,
                },
                "cpu": {"count": 24 * count},
                "ram": {"total": 264241152 * count},
                "hard_disk": {"total": 939524096 * count, "free": 875000000 * count},
                "network": {"upload_speed": 900.0, "download_speed": 950.0},
                "available_port_count": 40,
                "sysbox_runtime": True,
            },
            "effective_upload_speed_mbps": 900.0,
            "effective_download_speed_mbps": 950.0,
            "max_cuda_version": self.spec.max_cuda_version,
            "nvlink": self.spec.nvlink,
            "interconnect": {
                "nvlink": self.spec.nvlink,
                "pcie_class": "PIX" if self.spec.nvlink else "SYS",
                "p2p": True,
            },
            "gpu_power_limited": False,
            "frequent_rent_failures": False,
            "last_verified_at": None,
            "reliability_score": 99.0,
        }


def _capacity(model: str) -> int:
    """Memory per GPU in MiB."""
    named = re.search(r"(\d+)\s?GB", model)
    if named:
        return int(named[1]) * 1024 - 361
    return next((size for mark, size in _CAPACITY.items() if mark in model), 24564)
